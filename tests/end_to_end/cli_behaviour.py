"""Checks exit codes, error lines and help of the command line.

    python3 cli_behaviour.py TIDEMARK
"""
import gzip
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, TIDEMARK, check, check_equal, finish, report, run  # noqa: E402
from trace_file import KINDS  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())
snapshot = SNAPSHOTS / "default.pickle.gz"
SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces"


def refuses(what, *args, says=()):
    result = run(*args)
    check_equal(result.returncode, 2, f"{what}: exit status")
    lines = result.stderr.splitlines()
    check_equal(len(lines), 1, f"{what}: one line on stderr, not {lines}")
    check_equal(result.stdout, "", f"{what}: nothing on stdout")
    for text in says:
        check(text in result.stderr, f"{what}: {result.stderr!r} says {text!r}")


# Help.
for command in ("import", "info", "report", "whatif", "plan", "diff", "check", "prepare", "doctor", "version"):
    result = run(command, "--help")
    check_equal(result.returncode, 0, f"{command} --help: exit status")
    check("Example" in result.stdout, f"{command} --help has an example")
result = run("--help")
check_equal(result.returncode, 0, "--help: exit status")
check("report" in result.stdout, "--help lists the commands")
check(run("version").stdout.startswith("tidemark "), "version")
result = run("doctor")
check_equal(result.returncode, 1 if "missing" in result.stdout else 0, "doctor: exit status")
check("CUDA driver" in result.stdout, "doctor names the driver")

# Without a display, with or without a viewer, `view` writes a page; an installed tidemark has it in share/.
installed = tmp / "prefix/bin/tidemark"
installed.parent.mkdir(parents=True)
shutil.copy(TIDEMARK, installed)
bare = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")} | {"TMPDIR": str(tmp)}


def view(*args):
    return subprocess.run([installed, "view", snapshot, *args], env=bare, capture_output=True, text=True)


check("without the viewer and without its page" in view().stderr, "view, where there is nothing to view with")
(tmp / "prefix/share/tidemark").mkdir(parents=True)
(tmp / "prefix/share/tidemark/tidemark-view.html").write_text("<p>viewer</p>\n<!-- traces -->\n<p>end</p>\n")
check("needs tidemark-view" in view("--screenshot", tmp / "x.png").stderr, "a picture without the viewer")
for words in ([], ["--browser"], ["--panel", "map"]):
    for viewer in (False, True):
        if viewer:
            (tmp / "prefix/bin/tidemark-view").write_text("#!/bin/sh\necho a window\n")
            (tmp / "prefix/bin/tidemark-view").chmod(0o755)
        result = view(*words)
        check_equal(result.returncode, 0, f"view {words}: {result.stderr}")
        check("open it in a browser" in result.stdout, f"view {words}: {result.stdout!r} says what to do")
        page = pathlib.Path(result.stdout.split(" (")[0])
        check(f'data-name="{snapshot.name}' in page.read_text(), f"view {words}: the trace is in the page")
        page.unlink()
        (tmp / "prefix/bin/tidemark-view").unlink(missing_ok=True)

# Bad usage and bad input.
refuses("an unknown command", "frobnicate", says=["frobnicate"])
refuses("no path", "report", says=["PATH"])
refuses("a missing file", "report", tmp / "none.tmk", says=["none.tmk"])
refuses("a missing snapshot", "report", tmp / "none.pickle", says=["none.pickle"])
empty = tmp / "empty.pickle"
empty.touch()
refuses("an empty file", "report", empty, says=["empty.pickle"])
text = tmp / "notes.txt"
text.write_text("hello\n" * 100)
refuses("a text file", "report", text, says=["notes.txt"])
garbage = tmp / "garbage.tmk"
garbage.write_bytes(os.urandom(5000))
refuses("random bytes", "info", garbage, says=["garbage.tmk", "not a tidemark trace"])
renamed = tmp / "renamed.tmk"
renamed.write_bytes(snapshot.read_bytes())
check_equal(run("report", renamed).returncode, 0, "a snapshot is known by its content")
cut = tmp / "cut.pickle.gz"
cut.write_bytes(snapshot.read_bytes()[:4000])
refuses("a cut gzip", "report", cut, says=["cut.pickle.gz"])
half = tmp / "half.pickle"
half.write_bytes(gzip.open(snapshot).read()[:50000])
refuses("a cut pickle", "report", half, says=["half.pickle"])
other = tmp / "other.pickle"
other.write_bytes(pickle.dumps([1, 2, 3]))
refuses("a pickle of something else", "report", other, says=["other.pickle", "not a PyTorch"])
evil = tmp / "evil.pickle"
evil.write_bytes(b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.")
refuses("a pickle that runs code", "import", evil, "-o", tmp / "evil.tmk", says=["GLOBAL"])
check(not (tmp / "evil.tmk").exists(), "a failed import leaves no file")
refuses("an unwritable output", "import", snapshot, "-o", tmp / "no" / "x.tmk", says=["x.tmk"])
refuses("a directory as output", "import", snapshot, "-o", tmp, says=["directory"])
nothing = tmp / "nothing"
nothing.mkdir()
refuses("an empty directory", "report", nothing, says=["no trace"])
refuses("a wrong instant", "report", snapshot, "--at", "noon", says=["noon"])
refuses("no such rank", "report", snapshot, "--rank", "7", says=["rank 7"])
refuses("an OOM that never was", "report", snapshot, "--at", "oom", says=["no out-of-memory error was recorded"])

refuses("an import of a trace", "import", next((SAMPLES / "leak").glob("*.tmk")), "-o",
        tmp / "again.tmk", says=["already a tidemark trace"])

# Output that cannot be written is an error, however large it is.
for command in (["report", snapshot, "--json"], ["report", snapshot], ["info", snapshot],
                ["diff", snapshot, snapshot, "--json"], ["whatif", snapshot, "--all"],
                ["plan", snapshot, "--batch", "2x"], ["--help"]):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([TIDEMARK, *map(str, command)], stdout=full, stderr=subprocess.PIPE,
                              text=True)
    check_equal(done.returncode, 2, f"{command[0]} onto a full disk: exit status")
    check("No space left" in done.stderr, f"{command[0]} onto a full disk: {done.stderr!r}")

# An option that does not exist is named, whatever follows it.
refuses("an unknown option", "report", snapshot, "--bogus", says=["unknown option '--bogus'"])
refuses("an unknown option alone", "report", "--bogus", says=["unknown option '--bogus'"])
for options in (["--bogus"], ["--bogus=3"], ["-q", "--bogus"]):
    refuses(f"run {options}", "run", *options, "--", "/bin/true", "--its-own",
            says=[f"unknown option '{options[-1]}'", "tidemark run --help"])
refuses("an unknown option with a value", "run", "--bogus", "5", "--", "/bin/true",
        says=["unknown option '--bogus'"])
refuses("options of the program without --", "run", "python3", "--its-own",
        says=["unknown option '--its-own'", "after --"])

# Importing gives the same answers as reading directly; the file replaces an older one.
trace = tmp / "run.tmk"
trace.write_text("older")
result = run("import", snapshot, "-o", trace)
check_equal((result.returncode, result.stderr), (0, ""), "import")
direct, imported = report(snapshot), report(trace)
direct["source"].pop("path"), imported["source"].pop("path")
check_equal(imported, direct, "the imported trace says what the snapshot says")
check_equal([p.name for p in tmp.glob("*.partial")], [], "no partial file is left")

# A directory is read completely; a bad file in it is named and the others are still read.
many = tmp / "many"
many.mkdir()
(many / "a.tmk").write_bytes(trace.read_bytes())
(many / "b.tmk").write_bytes(b"broken")
result = run("info", many)
check_equal(result.returncode, 0, "a directory with a broken file: exit status")
check("b.tmk" in result.stderr, "the broken file is named")

# A truncated trace: what remains is reported, and so is the loss.
short = tmp / "short.tmk"
short.write_bytes(trace.read_bytes()[: trace.stat().st_size * 2 // 3])
result = run("info", short)
check_equal(result.returncode, 0, "a cut trace: exit status")
check("ends inside a block" in result.stdout, "info says that the trace is cut")
check_equal(report(short)["ranks"][0]["loss"]["truncated"], True, "the report says that it is cut")

# Commands that print no report warn of the loss.
short.write_bytes(trace.read_bytes()[:-100])
for command, *args in (["export", "--format", "csv", "-o", tmp / "csv"], ["whatif", "--all"]):
    result = run(command, short, *args)
    check_equal(result.returncode, 0, f"{command} of a cut trace: exit status")
    check(f"warning: {short}: the file ends in the middle of a block" in result.stderr,
          f"{command} warns of the cut: {result.stderr!r}")
    result = run(command, many, *args)
    check_equal(result.stderr.count("b.tmk"), 1, f"{command} warns of the broken file once")
for args in (["diff", short, trace], ["diff", trace, short]):
    result = run(*args)
    check_equal((result.returncode, result.stderr), (0, ""), "diff of a cut trace")
    check_equal(result.stdout.count("the file ends in the middle of a block"), 1,
                f"diff tells of the cut: {result.stdout!r}")
# A check does not pass if what is lost could have held a higher peak.
for path, loss in ((short, "the file ends in the middle of a block"), (many, "b.tmk")):
    result = run("check", path, "--max-peak", "1TiB")
    check_equal((result.returncode, result.stdout), (2, ""), f"check of {path.name}")
    check_equal(result.stderr.count(loss), 1, f"check warns of {loss} once: {result.stderr!r}")
    check("--allow-losses" in result.stderr, f"check says what allows it: {result.stderr!r}")
    check_equal(run("check", trace, "--baseline", path).returncode, 2, f"baseline {path.name}")
    allowed = run("check", path, "--max-peak", "1TiB", "--allow-losses")
    check_equal(allowed.returncode, 0, f"check of {path.name} with its losses")
    check_equal(run("check", path, "--max-peak", "1MiB").returncode, 1, f"{path.name}: too much")


def damaged(path):
    """A copy whose blocks of allocator events cannot be read."""
    data = bytearray(path.read_bytes())
    at = data.find(b"TMKF")
    while at >= 0:
        kind, = struct.unpack_from("<H", data, at + 4)
        stored, = struct.unpack_from("<I", data, at + 8)
        if kind == KINDS["FrameworkEvents"]:
            data[at + 56 + stored // 2] ^= 0xFF
        at = data.find(b"TMKF", at + 56 + stored)
    bad = path.with_name("damaged-" + path.name)
    bad.write_bytes(data)
    return bad


# No conclusion is drawn from what is missing.
failed = tmp / "failed.tmk"
run("import", SNAPSHOTS / "oom_fraction.pickle.gz", "-o", failed)
bad = damaged(failed)
refuses("an OOM that may be lost", "report", bad, "--at", "oom", says=["in what could be read"])
text = run("report", bad).stdout
check("damaged block could not be read" in text, f"the loss is told: {text}")
check("began late" not in text, f"the history may have begun in time: {text}")
cut = tmp / "cut-early.tmk"
cut.write_bytes(failed.read_bytes()[:200])
for path in (bad, cut):
    text = run("report", path).stdout
    check("No memory event could be read" in text, f"{path.name}: {text}")
    for claim in ("No problems found", "Nothing was recorded"):
        check(claim not in text, f"{path.name}: {claim!r} is not known: {text}")
    for command in (["whatif", path, "--all"], ["plan", path, "--batch", "2x"]):
        result = run(*command)
        check_equal(result.returncode, 2, f"{command}: exit status")
        check("damaged or truncated, and none of its events" in result.stderr, result.stderr)
for pair in ((bad, failed), (failed, bad), (bad, bad)):
    text = run("diff", *pair).stdout
    check("damaged block could not be read" in text, f"diff tells of the damage: {text}")
    for claim in ("nothing was recorded", "findings gone:", "new findings:"):
        side = {"findings gone:": 1, "new findings:": 0}.get(claim)
        if side is None or pair[side] == bad:
            check(claim not in text, f"diff: {claim!r} is not known: {text}")
check_equal(run("check", bad, "--max-peak", "1TiB").returncode, 2, "check of a damaged trace")

# The instant can be chosen, and colours stay off a pipe.
ooms = SNAPSHOTS / "oom_fraction.pickle.gz"
at_oom = report(ooms, "--at", "oom")["ranks"][0]["devices"][0]
check_equal(at_oom["oom"][0]["requested_bytes"] > 0, True, "the failed request is there")
check_equal(at_oom["ledger_at_peak"][0]["bytes"], at_oom["oom"][0]["allocated_bytes"],
            "the ledger at the OOM is the OOM's")
check("\x1b" not in run("report", ooms).stdout, "no colours in a pipe")

# plan: bad values get one line, and a plan has text, JSON and a picture.
for words, says in ((["--batch", "twice"], ["--batch", "twice"]), (["--seq", "0"], ["--seq", "0"]),
                    (["--precision", "fp8"], ["--precision", "fp8"]),
                    (["--optimizer", "lion"], ["--optimizer", "lion"]),
                    (["--shard", "zero9", "--ranks", "2"], ["--shard", "zero9"]),
                    (["--shard", "zero1"], ["--ranks"]), (["--ranks", "2"], ["--shard"]),
                    (["--card", "big"], ["--card", "big"]),
                    (["--card", "12"], ["--card 12", "12GiB?"]), (["--picture", "plan.gif"], [".svg"]),
                    (["--alloc-conf", "expandable:True"], ["expandable"]),
                    (["--checkpoint"], ["nn.Modules"]), (["--rank", "7"], ["rank"]),
                    ([snapshot, "--batch", "2x"], ["nothing can be learnt"])):
    refuses(f"plan {words}", "plan", snapshot, *words, says=says)
result = run("plan", snapshot, "--batch", "2x", "--precision", "bf16", "--card", "80GiB",
             "--picture", tmp / "plan.svg")
check_equal((result.returncode, result.stderr), (0, ""), "plan: exit status")
for text in ("batch 2x, precision bf16", "fits", "recorded", "activation"):
    check(text in result.stdout, f"plan says {text!r}: {result.stdout}")
check("</svg>" in (tmp / "plan.svg").read_text(), "plan: a picture")
answers = [json.loads(run("plan", snapshot, "--json", *words).stdout)["devices"][0]
           for words in ([], ["--batch", "2x"], ["--batch", "0.5x"], ["--optimizer", "sgd"])]
same, more, less, sgd = (answer["plan"]["allocated_peak_bytes"] for answer in answers)
check_equal(answers[0]["plan"]["reserved_peak_bytes"],
            answers[0]["recorded"]["replayed_reserved_peak_bytes"], "plan: nothing changes")
check(less < same < more, f"plan: {less}, {same}, {more}")
check(sgd < same, f"plan: an optimizer without states: {sgd}, {same}")
fit = json.loads(run("plan", snapshot, "--json", "--fit", "--card", "10GiB").stdout)["devices"][0]["fit"]
check(fit["batch_factor"] > 1, f"plan --fit: {fit}")
# A given card counts also where the recording ran out of memory, and a batch that fits has the caveats
# of its own plan.
scenarios = SNAPSHOTS.parent / "scenarios"
out = run("plan", scenarios / "memory_fraction.bad.tmk", "--card", "24GiB").stdout
check("left" in out and "limit counts" not in out, f"plan: the limit of --card: {out}")
out = run("plan", scenarios / "memory_fraction.fixed.tmk", "--card", "24GiB", "--fit").stdout
best, = (line for line in out.splitlines() if "Largest batch" in line)
check("cache is emptied" in best and "upper end" not in best, f"plan --fit: {best}")
outcome = json.loads(run("plan", scenarios / "memory_fraction.fixed.tmk", "--card", "24GiB", "--fit",
                         "--json").stdout)["devices"][0]["fit"]["outcome"]
check(outcome["high_reserved_peak_bytes"] > outcome["on_card"]["limit_bytes"]
      and not outcome["on_card"]["may_not_fit"], f"plan --fit: a cache can be emptied: {outcome}")
# A snapshot does not say what else is on the card: there is some, and the plan tells how much it takes.
device, = json.loads(run("plan", snapshot, "--json", "--fit", "--card", "10GiB").stdout)["devices"]
check_equal((device["other_bytes"], device["other_bytes_assumed"]), (640 << 20, True), "plan: the rest")
room = (10 << 30) - device["other_bytes"]
check_equal(device["capacity_bytes"], room, "plan: what is left for PyTorch")
fitting = device["fit"]["outcome"]["on_card"]["reserved_peak_bytes"]
check(fitting <= room, f"plan --fit: {fitting} of {room}")
check("assumed to take 640.0 MiB" in run("plan", snapshot, "--fit", "--card", "10GiB").stdout,
      "plan: the assumption is stated")

check("512.0 MiB: no room for PyTorch beside 640.0 MiB" in run("plan", snapshot, "--card", "512MiB").stdout,
      "plan: a card that is too small")
refuses("plan --fit on such a card", "plan", snapshot, "--fit", "--card", "512MiB", says=["larger one"])
# A recording has readings of the card: what was not PyTorch's is named, on another card only that of the process itself.
recorded = SAMPLES / "torch" / "compiled.tier2.tmk"
device, = json.loads(run("plan", recorded, "--json", "--card", "24GiB").stdout)["devices"]
check_equal((device["other_bytes"] > 1 << 28, device["other_bytes_assumed"]), (True, False), "plan: readings")
check("for PyTorch (this process held " in run("plan", recorded, "--card", "24GiB").stdout,
      "plan: what takes the rest of the card")
check("for PyTorch (CUDA and others held " in run("plan", recorded).stdout, "plan: the recorded card")
check_equal(device["capacity_source"], "card", "plan: what limits it")
half = run("plan", recorded, "--recorded-conf", "per_process_memory_fraction:0.5").stdout
check("for PyTorch, as its memory fraction allows: fits" in half, f"plan: a fraction: {half}")
refuses("plan --precision fp32 of a program in 32 bits", "plan", snapshot, "--precision", "fp32",
        says=["--precision fp32"])

# prepare: what is no directory is named as such, and nothing is made there.
refuses("prepare without a directory", "prepare", tmp / "nowhere", says=["nowhere: no such directory"])
refuses("prepare of a file", "prepare", snapshot, says=["is not a directory"])

# check --max-module on a recording without any.
refuses("no modules", "check", snapshot, "--max-module", "layers=1GiB", says=["no nn.Modules were recorded"])

# Completion of a list: what was typed stays.
known = run("complete", "check", "--fail-on", "").stdout.split()
check({"any", "creep", "fragmentation"} <= set(known), f"--fail-on is completed: {known}")
check_equal(run("complete", "report", "--fail-on", "creep,fr").stdout.split(), ["creep," + id for id in known],
            "the next word of --fail-on")

# whatif: rejects the settings torch rejects, and its table says what to do.
refuses("whatif without settings", "whatif", snapshot, says=["--alloc-conf", "--all"])
refuses("an unknown setting", "whatif", snapshot, "--alloc-conf", "expandable:True",
        says=["expandable"])
refuses("a bad value", "whatif", snapshot, "--alloc-conf", "max_split_size_mb:64",
        "--alloc-conf", "expandable_segments:yes", says=["expandable_segments", "True or False"])
refuses("a bad card", "whatif", snapshot, "--all", "--card", "big", says=["--card", "big"])
refuses("a bad version", "whatif", snapshot, "--all", "--torch", "1.9", says=["--torch", "1.9"])
refuses("a rank that is not there", "whatif", snapshot, "--all", "--rank", "7", says=["rank"])
result = run("whatif", snapshot, "--all")
check_equal(result.returncode, 0, "whatif --all: exit status")
check("\x1b" not in result.stdout, "whatif: no colours in a pipe")
for text in ("each of 612 blocks", "expandable_segments:True", "would save"):
    check(text in result.stdout, f"whatif --all says {text!r}")
table = json.loads(run("whatif", snapshot, "--all", "--json").stdout)["devices"][0]["predictions"]
peaks = [p["reserved_peak_bytes"] for p in table]
check_equal(peaks, sorted(peaks), "whatif --all: the best first")
check(len(table) > 8, "whatif --all: many settings")
tight = json.loads(run("whatif", snapshot, "--json", "--card", "200MiB", "--alloc-conf",
                       "").stdout)["devices"][0]["predictions"][0]
check_equal(tight["out_of_memory"], True, "whatif: a card that is too small")
check(tight["reserved_peak_bytes"] <= 200 << 20, "whatif: no more than the card is reserved")
# What a smaller card does to every setting is no merit of one of them.
roomy = SNAPSHOTS / "streams.pickle.gz"
recorded = json.loads(run("whatif", roomy, "--json", "--alloc-conf", "").stdout)["devices"][0]["recorded"]
for share in (70, 80, 90):
    card = f"{recorded['reserved_peak_bytes'] * share // 100}B"
    own = json.loads(run("whatif", roomy, "--json", "--card", card, "--alloc-conf",
                         recorded["conf"]).stdout)["devices"][0]
    check_equal(own["predictions"][0]["out_of_memory"], False, "whatif: it fits")
    check_equal(own["predictions"][0]["saves_bytes"], 0, "whatif: the recorded settings save nothing")
    check(any("on this card the recorded settings" in note for note in own["notes"]),
          "whatif: says what it compares with")
states_only = tmp / "states.pickle"
bare = pickle.loads(gzip.open(snapshot).read())
bare["device_traces"] = [[]]
bare["segments"] = []
states_only.write_bytes(pickle.dumps(bare))
refuses("a snapshot without history", "whatif", states_only, "--all", says=["states.pickle"])

# diff: memory of one helper function is told apart by who called it.
def calls_helper(file, caller, line, size):
    frames = [{"name": "make", "filename": "/srv/helper.py", "line": 10},
              {"name": caller, "filename": "/srv/train.py", "line": line}]
    common = {"stream": 0, "frames": frames}
    trace = [{"action": "segment_alloc", "addr": 1 << 40, "size": size, "time_us": 1, **common},
             {"action": "alloc", "addr": 1 << 40, "size": size, "time_us": 2, **common}]
    block = {"address": 1 << 40, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
    file.write_bytes(pickle.dumps({"device_traces": [trace], "segments": [
        {"device": 0, "address": 1 << 40, "total_size": size, "stream": 0, "segment_type": "large",
         "is_expandable": False, "blocks": [block]}]}))
    return file


helped = run("diff", calls_helper(tmp / "helped1.pickle", "forward", 5, 64 << 20),
             calls_helper(tmp / "helped2.pickle", "collect", 21, 300 << 20)).stdout
for text in ("+300.0 MiB", "called by collect /srv/train.py:21", "-64.0 MiB", "called by forward /srv/train.py:5"):
    check(text in helped, f"diff says {text!r}: {helped}")

# JSON is valid whatever the names are.
odd = pickle.loads(gzip.open(SNAPSHOTS / "annotated.pickle.gz").read())
for entry in odd["device_traces"][0]:
    entry["frames"] = [{"name": 'q"\\\n\x01é', "filename": "\u2028.py", "line": 3}]
odd_file = tmp / "odd.pickle"
odd_file.write_bytes(pickle.dumps(odd))
frames = report(odd_file)["ranks"][0]["devices"][0]["by_stack"][0]["frames"]
check_equal(frames, ['q"\\\n\x01é \u2028.py:3'], "odd names come back")

# A variable of a script that is not set must not switch an option off.
for option in ("--max-peak", "--baseline"):
    refuses(f"check {option} with nothing", "check", snapshot, option, "", says=["empty value"])
refuses("run into nothing", "run", "-o", "", "--", "true", says=["-o", "empty value"])
for command in ("report", "info"):
    refuses(f"{command} of nothing", command, "", says=["the path of the trace is empty"])
refuses("a negative number of stacks", "report", snapshot, "--stacks", "-1", says=["--stacks"])

# Ranks of a job are no strangers, even if the trace has only one of them.
guilty = SAMPLES / "ranks" / "guilty4"
ids = {f["id"] for f in report(next(guilty.glob("rank0*.tmk")))["findings"]}
check("other_process" not in ids, f"one rank of four: {ids}")
scenarios = pathlib.Path(__file__).resolve().parents[1] / "data" / "scenarios"
overhead = [f for f in report(scenarios / "many_communicators.bad")["findings"]
            if f["id"] == "nccl_overhead"]
check_equal([f["evidence"]["communicators"] for f in overhead], [8], "communicators")

# Two processes without a rank, one of which ran out of memory.
both = tmp / "both"
both.mkdir()
for name in ("adam_first_step.bad.tmk", "healthy.bad.tmk"):
    (both / name).write_bytes((scenarios / name).read_bytes())
said = [line for line in run("check", both).stdout.splitlines() if "out of memory on" in line]
check(len(said) == 1 and said[0].count("cuda:0") == 1, f"one device ran out: {said}")

# A limit of which only a lower bound is known is not stated as a fact.
result = run("whatif", SNAPSHOTS / "oom_fraction.pickle.gz", "--alloc-conf", "")
check("a memory fraction was the limit: at least 512.0 MiB" in result.stdout,
      f"whatif: the limit is a lower bound: {result.stdout}")
check("memory fraction" not in run("whatif", snapshot, "--alloc-conf", "").stdout, "whatif without one")

# The size of a snapshot is that of its file.
check_equal(run("info", snapshot).stdout.splitlines()[1].split(", ")[:2],
            ["1 file", f"{snapshot.stat().st_size / 1024:.1f} KiB"], "info: the size of a snapshot")

# Number of bytes that can only be a number of GiB, of every option that takes memory.
for words in (["report", snapshot, "--card", "12"], ["check", snapshot, "--max-peak", "12"],
              ["whatif", snapshot, "--alloc-conf", "", "--card", "12"],
              ["export", snapshot, "--format", "sqlite", "-o", tmp / "none.db", "--ranks", "5"]):
    result = run(*words)
    says = f"{snapshot}: no rank 5 in this trace" if "--ranks" in words else f"{words[-2]} 12 would be bytes"
    check(result.returncode == 2 and result.stderr.startswith(f"tidemark: {says}"),
          f"{words[0]}: {result.stderr!r}")
check_equal(run("check", snapshot, "--max-peak", 80 << 30).returncode, 0, "a number of bytes")

# A plan of a run that leaks says so.
for name, leaks in (("bad", True), ("fixed", False)):
    text = run("plan", scenarios / f"inference_cache.{name}.tmk", "--fit", "--card", "24GiB").stdout
    check_equal("a longer run needs more" in text, leaks, f"plan of inference_cache.{name}: {text}")

# Snapshots are merged like traces; the report is that of the directory.
dumped = tmp / "dumped"
dumped.mkdir()
for rank in range(2):
    (dumped / f"snap_rank{rank}.pickle.gz").write_bytes(snapshot.read_bytes())
result = run("merge", dumped, "-o", tmp / "merged.tmk")
check_equal(result.returncode, 0, f"merge of a directory of snapshots: {result.stderr!r}")
check("2 processes from 2 files" in result.stdout, f"both are in it: {result.stdout!r}")
of_directory, merged = (report(path)["ranks"] for path in (dumped, tmp / "merged.tmk"))
check_equal([rank["devices"] for rank in merged], [rank["devices"] for rank in of_directory], "merged ranks")

# What is said of the files is said once: in the text of a command, or on stderr.
(dumped / "snap_rank2.pickle.gz").write_bytes(b"no snapshot")
for times, words in ((1, ["report", dumped]), (2, ["diff", dumped, dumped])):  # once for each side
    in_text = run(*words)
    check_equal((in_text.returncode, in_text.stderr), (0, ""), f"{words[0]}: nothing on stderr")
    check_equal(in_text.stdout.count("snap_rank2.pickle.gz"), times, f"{words[0]}: {in_text.stdout}")
    warned = run(*words, "--json").stderr
    check_equal(warned.count("snap_rank2.pickle.gz"), times, f"{words[0]} --json: {warned}")

# A job without one of its ranks is not complete, in a directory or merged.
three = tmp / "three"
three.mkdir()
for path in guilty.glob("*.tmk"):
    if not path.name.startswith("rank1"):
        (three / path.name).write_bytes(path.read_bytes())
check_equal(run("merge", three, "-o", tmp / "three.tmk").returncode, 0, "merge of three ranks")
for path in (three, tmp / "three.tmk"):
    result = run("check", path, "--allow-oom", "--max-peak", "1TiB")
    check_equal(result.returncode, 2, f"{path.name}: a rank is missing")
gap = tmp / "gap"
gap.mkdir()
for rank in (0, 2):
    (gap / f"snapshot_rank{rank}.pickle.gz").write_bytes(snapshot.read_bytes())
check_equal(run("check", gap, "--allow-oom", "--max-peak", "1TiB").returncode, 2, "rank 1 of 3")

# The ranks wait in the first collective that the absent one never called; they enqueue more.
stuck, = report(guilty)["rank_comparison"]["waiting"]
check_equal((stuck["sequence"], stuck["ranks"], stuck["absent"]), (45, [0, 1, 3], [2]), "stuck in")

finish()
