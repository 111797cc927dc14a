"""Checks that names in a file cannot control the terminal or a spreadsheet.

    python3 hostile_text.py TIDEMARK

The names of a snapshot hold escape sequences, control characters, characters that reverse the
writing direction, and formulas. They are shown visibly, in pipes and on a terminal with colours.
"""
import csv
import os
import pathlib
import pickle
import pty
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import TIDEMARK, check, check_equal, finish, report, run  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())
MiB = 1 << 20
HOSTILE = {
    "colour": "\x1b[31mred", "clear": "\x1b[2J", "title": "\x1b]0;owned\x07", "link": "\x1b]8;;x\x1b\\",
    "c1": "\x9b2J", "return": "a\rok", "line": "a\nFAILED b", "tab": "a\tb", "bell": "a\x07",
    "back": "a\x08\x7f", "override": "a\u202eb", "isolate": "\u2066x\u2069", "mark": "\u200f",
    "separator": "a\u2028b", "nul": "a\x00b",
}
FORMULAS = ("=HYPERLINK(\"x\")", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OURS = re.compile("\x1b\\[(0|1|2|32|33|1;31)m")


def snapshot(names, name):
    """One allocation per name, in a function, file and annotation of that name; then a failure."""
    address, trace, blocks = 0x7F0000000000, [], []
    size = 2 * MiB
    trace.append({"action": "segment_alloc", "addr": address, "size": size * len(names),
                  "stream": 0, "time_us": 1, "frames": []})
    for i, text in enumerate(names):
        frames = [{"name": text, "filename": text + ".py", "line": 1}]
        trace.append({"action": "alloc", "addr": address + i * size, "size": size, "stream": 0,
                      "time_us": 10 + i, "frames": frames})
        blocks.append({"address": address + i * size, "size": size, "requested_size": size,
                       "state": "active_allocated", "frames": frames})
    trace.append({"action": "oom", "addr": 64 * MiB, "device_free": 0, "size": 1 << 40, "stream": 0,
                  "time_us": 1000, "frames": frames})
    path = tmp / f"{name}.pickle"
    path.write_bytes(pickle.dumps({
        "segments": [{"device": 0, "address": address, "total_size": size * len(names),
                      "allocated_size": size * len(names), "active_size": size * len(names),
                      "requested_size": size * len(names), "stream": 0, "segment_type": "large",
                      "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                      "blocks": blocks}],
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": names[0], "max_split_size": -1},
        "external_annotations": [{"device": 0, "time_us": 5, "name": text, "stage": "START"}
                                 for text in names]}))
    return path


# A chroot may have no pseudo-terminals.
TERMINALS = os.path.exists("/dev/ptmx") and os.path.isdir("/dev/pts") and os.listdir("/dev/pts")


def on_a_terminal(*args):
    """What the command writes to a terminal."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([TIDEMARK, *map(str, args)], stdout=slave, stderr=slave,
                               env=environment)
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        out += part
    os.close(master)
    process.wait()
    return out


def is_safe(out, what):
    try:
        text = out.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        return check(False, f"{what}: cut inside a character: {error}")
    bad = UNSAFE.search(OURS.sub("", text))
    check(bad is None, f"{what}: {bad and text[max(0, bad.start() - 30):bad.end() + 30]!r}")


def commands(path, other):
    yield ["report", path]
    yield ["report", path, "--at", "oom", "--stacks", "50"]
    yield ["report", other]
    yield ["info", path]
    yield ["check", path, "--fail-on", "any"]
    yield ["diff", other, path]
    yield ["diff", path, other, "--stacks", "50"]
    yield ["whatif", path, "--all"]
    yield ["plan", path, "--batch", "2x"]
    yield ["recover", tmp / "a\x1b[2Jb"]
    yield ["report", tmp / "none\x1b[2J.tmk"]
    yield ["export", path, "--format", "perfetto", "-o", tmp / "out"]
    yield ["merge", path, other, "-o", tmp / "out.tmk"]


def folder_of(text):
    """Traces whose names have the text: one is whole, one is cut off, and one is no trace."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=text, dir=tmp))
    whole = folder / f"{text}.tmk"
    check_equal(run("merge", plain, "-o", whole).returncode, 0, "a trace")
    (folder / f"cut{text}.tmk").write_bytes(whole.read_bytes()[:-200])
    (folder / f"none{text}.tmk").write_bytes(b"none")
    (folder / f"more{text}").mkdir()
    (folder / f"more{text}" / "a.tmk").write_bytes(b"none")
    return folder


def folder_commands(folder):
    for command in ("report", "info", "check", "prepare", "recover"):
        yield [command, folder]
    yield ["diff", folder, plain]
    yield ["merge", folder, "-o", folder / "out"]
    yield ["merge", folder, "-o", next(folder.glob("cut*"))]  # refused: it is part of the input


plain = snapshot(["f", "g"], "plain")
for name, text in HOSTILE.items():
    path = snapshot([text, "x" * 30 + text * 40, "é" * 200 + text], name)
    in_folder = () if "\0" in text else folder_commands(folder_of(text))
    for command in (*commands(path, plain), *in_folder):
        done = subprocess.run([TIDEMARK, *map(str, command)], capture_output=True)
        is_safe(done.stdout + done.stderr, f"{name}: {command[0]}")
        if TERMINALS:
            out = on_a_terminal(*command)
            is_safe(out, f"{name}: {command[0]} on a terminal")
    # A terminal shows our own colours only.
    if TERMINALS:
        page = on_a_terminal("report", path, "--stacks", "50").decode(errors="replace")
        check("\x1b[1m" in page, f"{name}: colours on a terminal")
    # For programs, the names are kept.
    frames = {f for s in report(path)["ranks"][0]["devices"][0]["by_stack"] for f in s["frames"]}
    check(any(text in f for f in frames), f"{name}: JSON keeps the name")
    tables = tmp / "tables"
    check_equal(run("export", path, "--format", "csv", "-o", tables).returncode, 0, f"{name}: csv")

# Spreadsheets run cells that begin with these characters.
path = snapshot(FORMULAS, "formulas")
check_equal(run("export", path, "--format", "csv", "-o", tmp / "cells").returncode, 0, "csv")
seen = set()
for file in (tmp / "cells").glob("*.csv"):
    with open(file, newline="", encoding="utf-8") as lines:
        for row in csv.reader(lines):
            for cell in row:
                number = re.fullmatch(r"-?\d+", cell)
                check(number or cell[:1] not in ("=", "+", "-", "@", "\t", "\r"),
                      f"{file.name}: {cell!r} is no formula")
                seen.add(cell)
check("'-1" not in seen and "-1" in seen, "a negative number is a number")
for formula in FORMULAS:
    check("'" + formula in seen, f"{formula!r} has an apostrophe in front")

finish()
