"""Checks that small crafted inputs take no memory out of proportion.

    python3 crafted_inputs.py TIDEMARK
"""
import gzip
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import growing_inputs  # noqa: E402
from growing_inputs import BASE, MiB, cost, event, made, snapshot  # noqa: E402
from harness import SANITIZED, TIDEMARK, check, check_equal, finish, report, run  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())
entries = [event("segment_alloc", BASE, 2 * MiB, 5), event("alloc", BASE, 512, 6)]


def costs(path, most_mib, wanted=0):
    """Reads it and checks the exit status and the memory; returns what was said."""
    status, said, _, mib = cost([TIDEMARK, "report", path])
    check_equal(status, wanted, f"{path.name}: exit status ({said.strip()})")
    check(SANITIZED or mib < most_mib, f"{path.name}, {path.stat().st_size} bytes: {mib:.0f} MiB")
    return said


def pickle_of(name, opcodes, compressed=False):
    path = tmp / name
    content = b"\x80\x04(" + opcodes * (48_000_000 if compressed else 16_000_000) + b"l."
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path


def shared_blocks():
    block = {"address": BASE, "size": 512, "requested_size": 512, "state": "active_allocated",
             "frames": []}
    shared = {"device": 0, "total_size": 2 * MiB, "stream": 0, "blocks": [block] * 999}
    segments = [{**shared, "address": BASE + i * 2 * MiB} for i in range(999)]
    return snapshot(tmp, "segments", [], segments)


def wide_dict():
    wide = {**entries[1], **{str(i): i for i in range(100_000)}}
    return snapshot(tmp, "wide", [[wide, entries[0]] * 50_000])


# Containers of one byte each, plain and compressed.
for name, opcodes in (("dicts", b"}"), ("tuples", b")"), ("memo", b"}\x94"), ("none", b"N")):
    said = costs(made(pickle_of, f"{name}.pickle", opcodes), 300, 2)
    check_equal(said.count("\n"), 1, f"{name}: one line: {said}")
bomb = made(pickle_of, "bomb.pickle.gz", b"}", True)
check("250 times its size" in costs(bomb, 100, 2), "the gzip bomb is named")

# Lists that many devices or segments share are read once.
said = costs(snapshot(tmp, "devices", [entries] * 16_000), 100, 2)
check("at most 128 devices" in said, f"too many devices: {said}")
shared = snapshot(tmp, "shared", [entries * 1000] * 100)
costs(shared, 60)
check_equal([d["events"] for d in report(shared)["ranks"][0]["devices"]], [2000], "shared entries")
costs(made(shared_blocks), 60)

# Segments, but no allocation in them: all is holes, and no instant is that of a peak of 0 bytes.
unused = snapshot(tmp, "unused", [[event("segment_alloc", BASE + i * 300 * MiB, 300 * MiB, 5)
                                   for i in range(2)]])
costs(unused, 60)
peaks = [" ".join(line.split()) for line in run("report", unused).stdout.splitlines()
         if line.startswith("  allocated peak")]
check_equal(peaks, ["allocated peak 0 B 0 bytes"], "unused segments")

# Torch also marks the time of the snapshot on devices on which nothing was allocated.
idle = snapshot(tmp, "idle", [[event("snapshot", 0, 0, 9)], entries])
costs(idle, 60)
check_equal([d["device"] for d in report(idle)["ranks"][0]["devices"] if d["reserved_peak"]["bytes"]],
            [1], "a device on which nothing happened")

# A dict with very many keys, referred to very often.
costs(made(wide_dict), 100)

# Stacks of which each has one frame more than the one before; devices in a trace.
costs(made(growing_inputs.deep_stacks, tmp, 8000), 100)
costs(made(growing_inputs.devices, tmp, 1000), 100)
many = made(growing_inputs.devices, tmp, 50_000)
costs(many, 150)
check_equal(len(report(many)["ranks"][0]["devices"]), 1024, "devices beyond the limit")

# A stack whose frame is missing: its id must not become the size of a table.
trace = growing_inputs.TraceFile()
trace.table(1, "Processes", [growing_inputs.process_row(trace, 1, 0, 1)])
trace.table(1, "Frames", [{"id": 1, "function": trace.string(1, "f"), "kind": 1}])
trace.table(1, "Stacks", [{"id": 1, "frame": 0xFFFFFFFF}, {"id": 2, "parent": 1, "frame": 1 << 30}])
trace.table(1, "FrameworkEvents", [
    {"time_ns": 1, "action": 4, "address": BASE, "size_bytes": 2 * MiB, "stack": 1},
    {"time_ns": 2, "action": 1, "address": BASE, "size_bytes": 512, "block_bytes": 512, "stack": 2}])
path = trace.save(tmp / "frames.tmk")
costs(path, 60)
for form in ("csv", "sqlite", "perfetto", "snapshot"):
    status, said, _, mib = cost([TIDEMARK, "export", path, "--format", form, "-o", tmp / form])
    check_equal(status, 0, f"{form} of a missing frame: {said}")
    check(SANITIZED or mib < 60, f"{form} of a missing frame: {mib:.0f} MiB")

finish()
