"""Checks that every output of a run says the same: text, JSON, HTML page, info, exports.

    python3 report_agreement.py TIDEMARK

Losses, ranks, the line of the user's code, and numbers that one command shows and another repeats.
"""
import html
import pathlib
import pickle
import re
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402
from perfetto_file import PerfettoFile  # noqa: E402

MiB = 1 << 20
A = 0x7F0000000000
RECORDED = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces"
tmp = pathlib.Path(tempfile.mkdtemp())


def page_of(path, *args):
    page = tmp / "page.html"
    result = run("report", path, "--html", page, *args)
    check_equal(result.returncode, 0, f"{path.name}: {result.stderr}")
    return html.unescape(page.read_text())


def event(action, address, size, time_us, frames=()):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us,
            "frames": list(frames)}


def saved(name, trace, segments=()):
    path = tmp / f"{name}.pickle"
    path.write_bytes(pickle.dumps({"segments": list(segments), "device_traces": [trace],
                                   "allocator_settings": {}, "external_annotations": []}))
    return path


# Losses are in every output.
contradiction = saved("contradiction", [
    event("segment_alloc", A, 20 * MiB, 1), event("alloc", A, 2 * MiB, 2),
    event("alloc", A, 2 * MiB, 3), event("alloc", A, 2 * MiB, 4)])
cut = tmp / "cut.tmk"
whole = RECORDED / "torch" / "training.tier2.tmk"
cut.write_bytes(whole.read_bytes()[:whole.stat().st_size * 2 // 3])
for path in (contradiction, cut, SNAPSHOTS / "late.pickle.gz", SNAPSHOTS / "ring.pickle.gz"):
    losses = report(path)["losses"]
    check(losses, f"{path.name}: something was lost")
    text, page = run("report", path).stdout, page_of(path)
    for loss in losses:
        check("! " + loss in text, f"{path.name}: the text says {loss!r}")
        check(loss in page, f"{path.name}: the page says {loss!r}")
    for output in (text, page):
        check("No problems found." not in output, f"{path.name}: not all is well")
check("No problems found.</p>" in page_of(saved("good", [
    event("segment_alloc", A, 20 * MiB, 1), event("alloc", A, 2 * MiB, 2)], [{
        "device": 0, "address": A, "total_size": 20 * MiB, "allocated_size": 2 * MiB,
        "active_size": 2 * MiB, "requested_size": 2 * MiB, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [
            {"address": A, "size": 2 * MiB, "requested_size": 2 * MiB,
             "state": "active_allocated", "frames": []},
            {"address": A + 2 * MiB, "size": 18 * MiB, "requested_size": 0, "state": "inactive",
             "frames": []}]}])), "a good run")
check("\nNo problems found.\n" in run("report", tmp / "good.pickle").stdout, "and in text")

# The page has what the text has: ranks, curves, the user's line.
job = RECORDED / "ranks" / "guilty4"
text, page = run("report", job).stdout, page_of(job)
ranks = re.search(r"\nRanks\n((?:  .*\n)+)", text).group(1).splitlines()
check(len(ranks) > 3, "the text compares the ranks")
for line in ranks:
    check(line[2:] in page, f"the page says {line!r}")
extra = [f["evidence"]["extra_bytes"] for f in report(job)["findings"]
         if f["id"] == "rank_imbalance"][0]
shown = f"{extra / MiB:.1f} MiB"
check(f"difference {shown}" in text, f"the ranks differ by {shown}")
check(f"needs {shown} more" in text, f"the finding says {shown}, too")
check("above them" not in text, "there is no other number for it")
for path in (RECORDED / "leak", RECORDED / "run_out"):
    page = page_of(path)
    check('<path class="allocated"' in page, f"{path.name}: a curve without PyTorch")
    check("allocated from the driver" in page, f"{path.name}: named")
    for share in report(path, "--stacks", "3")["ranks"][0]["devices"][0]["by_stack"][:3]:
        check(share["frames"][0] in page, f"{path.name}: {share['frames'][0]} is on the page")
    check("0 B allocated" not in page, f"{path.name}: nothing is made up")
library = [{"name": "relu", "filename": "/usr/lib/python3/dist-packages/torch/f.py", "line": 9},
           {"name": "forward", "filename": "/home/me/train.py", "line": 7}]
own = saved("own", [event("segment_alloc", A, 20 * MiB, 1),
                    event("alloc", A, 2 * MiB, 2, library),
                    {**event("oom", 0, 1 << 40, 3, library), "device_free": 0}])
check("at forward /home/me/train.py:7" in run("report", own).stdout, "the text names the user's line")
for summary in re.findall(r'<summary class="frame">(.*?)</summary>', page_of(own)):
    check_equal(summary, "forward /home/me/train.py:7", "the page names the user's line")

# A finding names its device where the process has several, and only there.
def out_of_memory_on(*devices):
    full = [event("segment_alloc", A, 20 * MiB, 1), event("alloc", A, 18 * MiB, 2, library),
            {**event("oom", 0, 64 * MiB, 3, library), "device_free": 0}]
    path = tmp / "devices.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [
        full if failed else full[:2] for failed in devices]}))
    return path


several = out_of_memory_on(False, True)
check_equal([f["device"] for f in report(several)["findings"]], [1], "the second device failed")
check("  cuda:1: out of memory" in run("report", several).stdout, "the text names the device")
check("capacity on cuda:1" in page_of(several), "the page does")
check("capacity on cuda:1: " in run("check", several, "--fail-on", "capacity").stdout, "check does")
one = out_of_memory_on(True)
check("  out of memory" in run("report", one).stdout, "one device needs no name")
check("capacity on" not in page_of(one), "nor on the page")

# A line that advice names is the finding's, and stands above the advice on the page, too.
seen = 0
for path in (SNAPSHOTS / "oom_fraction.pickle.gz", job):
    page = page_of(path)
    for finding in report(path)["findings"]:
        for advice in finding["advice"]:
            named = re.search(r"\S+\.py:\d+", advice["detail"])
            if not named:
                continue
            check(any(frame.endswith(named[0]) for frame in finding["evidence"]["frames"]),
                  f"{path.name}: {finding['id']}: {named[0]}")
            card = page[page.rindex('<div class="finding', 0, page.index(advice["detail"])):]
            seen += 1
            check(card.index('<summary class="frame">') < card.index(advice["detail"]),
                  f"{path.name}: {finding['id']}: the line is above")
check(seen > 1, f"{seen} pieces of advice name a line")

# The ledger says why it is above the highest reading of the card.
ledgers = 0
for path in (RECORDED / "leak", RECORDED / "torch" / "training.tier1.tmk", whole):
    device = report(path)["ranks"][0]["devices"][0]
    above = device["ledger_device_used_bytes"] - device["device_used_peak"]["bytes"]
    ledgers += above > 0
    for output in (run("report", path).stdout, page_of(path)):
        check_equal("more than its highest reading" in output, above > 0, f"{path.name}: {above}")
check_equal(ledgers, 1, "ledgers above the highest reading")

# More allocated than is known to be reserved: the curve is not cut off.
above = saved("above", [event("alloc", A, 64 * MiB, 2), event("segment_alloc", 2 * A, 2 * MiB, 3)])
device = report(above)["ranks"][0]["devices"][0]
heights = [float(y) for y in re.findall(r"V(-?[\d.]+)", re.search(
    r'class="allocated" d="([^"]*)"', page_of(above)).group(1))]
check(min(heights) >= 0, f"the curve stays inside: {min(heights)}")
check_equal([device[f"{kind}_peak"]["bytes"] for kind in ("allocated", "reserved")],
            [64 * MiB, 2 * MiB], "more allocated than reserved")
reserved = [float(y) for y in re.findall(r"V(-?[\d.]+)", re.search(
    r'class="reserved" d="([^"]*)"', page_of(above)).group(1))]
check(min(heights) < min(reserved), "the curve is not cut off at the reserved bytes")

# One count of events.
for path in (SNAPSHOTS / "default.pickle.gz", RECORDED / "leak", whole, job):
    count = report(path)["source"]["events"]
    words = f"{count:,} memory event"
    check(words in run("info", path).stdout, f"{path.name}: info counts {words}")
    check(words in run("report", path).stdout, f"{path.name}: report counts {words}")
    check(words in page_of(path), f"{path.name}: the page counts {words}")

# What is cached and free is described at a named instant. If the process held most before its
# history began, that is not the beginning.
late = saved("held", [
    event("free_requested", A, 2 * MiB, 10), event("free_completed", A, 2 * MiB, 11),
    event("segment_free", A, 40 * MiB, 12), event("segment_alloc", A + 64 * MiB, 20 * MiB, 13),
    event("alloc", A + 64 * MiB, 8 * MiB, 14)], [{
        "device": 0, "address": A + 64 * MiB, "total_size": 20 * MiB, "allocated_size": 8 * MiB,
        "active_size": 8 * MiB, "requested_size": 8 * MiB, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [
            {"address": A + 64 * MiB, "size": 8 * MiB, "requested_size": 8 * MiB,
             "state": "active_allocated", "frames": []},
            {"address": A + 72 * MiB, "size": 12 * MiB, "requested_size": 0, "state": "inactive",
             "frames": []}]}])
holes = report(late)["ranks"][0]["devices"][0]["fragmentation"]
check_equal((holes["moment"], holes["cached_free_bytes"]), ("allocated peak", 12 * MiB),
            "began late")
check_equal(report(SNAPSHOTS / "default.pickle.gz")["ranks"][0]["devices"][0]["fragmentation"][
    "moment"], "reserved peak", "recorded from the beginning")
check_equal(report(SNAPSHOTS / "oom_fraction.pickle.gz")["ranks"][0]["devices"][0][
    "fragmentation"]["moment"], "out-of-memory error", "ran out of memory")

# More memory is lost than used, on a card that is not known: a note. Not where little can be saved.
for workload, noted in (("small_and_huge", True), ("conv_images", True), ("mlp_adam", False)):
    found = report(SNAPSHOTS.parent / "whatif" / workload / "default.pickle.gz")["findings"]
    check_equal("fragmentation" in [f["id"] for f in found], noted, f"{workload}: holes")

# An error of the driver: what only PyTorch knows is unknown, not 0.
base = tmp / "run_out.db"
run("export", RECORDED / "run_out", "--format", "sqlite", "-o", base)
rows = sqlite3.connect(base).execute(
    "SELECT layer, allocated_bytes, reserved_bytes, device_free_bytes FROM out_of_memory").fetchall()
check(rows, "the errors are there")
for layer, allocated, reserved, free in rows:
    check_equal((layer, allocated, reserved), ("driver", None, None), "an error of the driver")
    check(free is None or free > 0, f"free bytes {free}")
check_equal(report(RECORDED / "run_out")["ranks"][0]["devices"][0]["oom"][-1]["allocated_bytes"],
            None, "in the JSON, too")
run("export", RECORDED / "run_out", "--format", "perfetto", "-o", tmp / "run_out.pftrace")
failed = [e.args for e in PerfettoFile(tmp / "run_out.pftrace").events if e.name == "out of memory"]
check_equal(len(failed), len(rows), "as many in Perfetto")
for args in failed:
    check_equal(args["layer"], "driver", "an error of the driver in Perfetto")
    check(not {"allocated_bytes", "reserved_bytes"} & args.keys(), f"unknown, not 0: {args}")
    check(args.get("device_free_bytes") != 0, f"unknown free bytes: {args}")

# Nothing is advised that saves nothing; times before the first event have one sign.
only_error = saved("only_error", [{**event("oom", 0, 100 * MiB, 10), "device_free": 5}])
advised = []
for path in (only_error, job, *sorted((SNAPSHOTS.parent / "scenarios").iterdir())):
    findings = report(path)["findings"]
    for finding in findings:
        check(not re.search(r"\b1 (\w+ )?\w+ (hold|keep|have|are|were)\b", finding["summary"]),
              f"{path.name}: {finding['summary']}")
    found = [advice for finding in findings for advice in finding["advice"]]
    advised += found
    for advice in found:
        check(advice["saves_bytes"] != 0 or "saves" not in advice["detail"],
              f"{path.name}: {advice['detail']}")
check("halve_batch" in {a["action"] for a in advised} and len(advised) > 50, f"{len(advised)} pieces")
for path in (only_error, late, SNAPSHOTS / "late.pickle.gz"):
    for text in (run("report", path).stdout, page_of(path)):
        check("+-" not in text, f"{path.name}: one sign")

shutil.rmtree(tmp)
finish()
