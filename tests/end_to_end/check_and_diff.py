"""Checks `check`, `diff`, `report --fail-on` and `report --html`: answers and exit codes.

    python3 check_and_diff.py TIDEMARK

The HTML page must not load anything from elsewhere.
"""
import csv
import html.parser
import json
import pathlib
import pickle
import re
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402
from trace_file import TraceFile  # noqa: E402

MiB = 1 << 20
tmp = pathlib.Path(tempfile.mkdtemp())
RECORDED = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces"
default = SNAPSHOTS / "default.pickle.gz"
ran_out = SNAPSHOTS / "oom_fraction.pickle.gz"
peak = report(default)["ranks"][0]["devices"][0]["reserved_peak"]["bytes"]


def status(wanted, *args):
    result = run(*args)
    check_equal(result.returncode, wanted, f"{' '.join(map(str, args))}: exit status")
    return result


# check: size limits.
status(0, "check", default, "--max-peak", peak)
status(1, "check", default, "--max-peak", peak - 1)
status(0, "check", default, "--max-peak", "1GiB")
status(0, "check", default, "--max-peak", "0.5g")
status(1, "check", default, "--max-peak", "100 MB".replace(" ", ""))
# A limit and a peak that differ are shown with digits that differ.
first, last = re.search(r"cuda:0 (.*), limit (.*)",
                        run("check", default, "--max-peak", peak - 1).stdout).groups()
check(first != last, f"check: {first} exceeds {last}")
first, last = re.search(r": (\S+) %, limit (\S+) %",
                        run("check", default, "--baseline", default, "--max-growth",
                            "-0.001").stdout).groups()
check(float(first) > float(last), f"check: {first} % exceeds {last} %")
for bad in ("much", "-5", "12furlongs", ""):
    result = run("check", default, "--max-peak=" + bad)
    check_equal(result.returncode, 2, f"--max-peak={bad!r}: exit status")
# check: comparison with another run.
status(0, "check", default, "--baseline", default, "--max-growth", "0")
expandable = SNAPSHOTS / "expandable.pickle.gz"
other = report(expandable)["ranks"][0]["devices"][0]["reserved_peak"]["bytes"]
grew = 100 * (peak / other - 1)
status(0, "check", default, "--baseline", expandable, "--max-growth", grew + 0.1)
status(1, "check", default, "--baseline", expandable, "--max-growth", grew - 0.1)
status(2, "check", default, "--max-growth", "3")
for number in ("nan", "inf"):
    result = status(2, "check", default, "--baseline", expandable, "--max-growth", number)
    check("--max-growth" in result.stderr, result.stderr)
status(2, "check", default, "--baseline", tmp / "none.tmk")
# check: findings. By default errors fail; with ids only those fail.
status(0, "check", default)
result = status(1, "check", ran_out)
check("FAILED capacity" in result.stdout, "check names what failed")
check("\nwarning passed over: creep; --fail-on creep makes the check fail\n"
      in run("check", RECORDED / "leak").stdout, "warnings are not hidden")
status(1, "check", RECORDED / "leak", "--fail-on", "creep")
noted = run("check", SNAPSHOTS / "graphs.pickle.gz", "--fail-on", "graph_private_pool,creep").stdout
check("no failing findings; only noted: graph_private_pool" in noted, f"notes are not hidden: {noted}")
# check: another card. What is allocated must fit; what is only reserved, in a replay.
sizes = report(default)["ranks"][0]["devices"][0]
allocated, reserved = (sizes[name]["bytes"] for name in ("allocated_peak", "reserved_peak"))
context = 640 * MiB  # assumed, of a snapshot
check("ok     fits a card of" in status(0, "check", default, "--card", reserved + context).stdout,
      "a card that is large enough")
for limits in ([], ["--max-peak", "1TiB"]):
    tight = status(0, "check", default, "--card", (allocated + reserved) // 2 + context, *limits).stdout
    check("ok     runs on a card of" in tight and "warning passed over: capacity" in tight, tight)
    # Everything fits, but not with the holes between it.
    holes = status(1, "check", default, "--card", allocated + context + MiB, *limits).stdout
    check_equal(holes.count("in a replay of its requests,"), 1, holes)
for options in ([], ["--max-peak", "1TiB"], ["--fail-on", "creep"], ["--fail-on", "any"]):
    small = status(1, "check", default, "--card", allocated + context - MiB, *options).stdout
    check_equal(small.count("FAILED capacity: it does not fit a card of this size"), 1, small)
check("--card" in status(2, "check", default, "--card", "0").stderr, "no card has no memory")
status(1, "check", ran_out, "--fail-on", "creep,memory_fraction")
status(0, "check", ran_out, "--fail-on", "rank_imbalance", "--allow-oom")
status(1, "check", ran_out, "--fail-on", "any")
# report: one of both outputs.
check("--json" in status(2, "report", default, "--html", tmp / "x.html", "--json").stderr,
      "report --html --json names the option")
# check: a run that ran out of memory fails, whatever its peak was, unless that is allowed.
for limits in (["--max-peak", "1TiB"], ["--baseline", ran_out], ["--fail-on", "rank_imbalance"]):
    result = status(1, "check", ran_out, *limits)
    check("FAILED out of memory on cuda:0" in result.stdout, f"{limits}: {result.stdout!r}")
    status(0, "check", ran_out, *limits, "--allow-oom")
status(0, "check", RECORDED / "torch" / "out_of_memory.tier2.tmk", "--allow-oom")
check("--card" in status(2, "report", default, "--card", "0").stderr, "no card has no memory")
for trace in (RECORDED / "torch" / "out_of_memory.tier1.tmk", RECORDED / "run_out"):
    status(1, "check", trace, "--max-peak", "1TiB")
    status(0, "check", trace, "--max-peak", "1TiB", "--allow-oom")
status(0, "check", RECORDED / "leak", "--max-peak", "1TiB")
# What led to it is still an error.
leak = {"segments": [], "device_traces": [[]], "allocator_settings": {}, "external_annotations": []}
for step in range(12):
    for line, size in ((5, 8), (6, 20)):  # one is kept, one is freed
        entry = {"addr": (1 << 40) + (2 * step + line - 5) * (32 << 20), "size": size << 20,
                 "stream": 0, "time_us": 1_000_000 + 1000 * step + line,
                 "frames": [{"name": "train", "filename": "train.py", "line": line}]}
        leak["device_traces"][0] += [dict(entry, action=action)
                                     for action in ("segment_alloc", "alloc")]
    leak["device_traces"][0] += [dict(entry, action=action)
                                 for action in ("free_requested", "free_completed", "segment_free")]
    leak["external_annotations"] += [
        {"stage": stage, "name": "Optimizer.step", "device": 0,
         "time_us": 1_000_900 + 1000 * step + k}
        for k, stage in enumerate(("START", "END"))]
leak["segments"] = [
    {"device": 0, "address": e["addr"], "total_size": e["size"], "allocated_size": e["size"],
     "active_size": e["size"], "requested_size": e["size"], "stream": 0, "segment_type": "large",
     "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
     "blocks": [{"address": e["addr"], "size": e["size"], "requested_size": e["size"],
                 "state": "active_allocated", "frames": e["frames"]}]}
    for e in leak["device_traces"][0] if e["action"] == "alloc" and e["size"] == 8 << 20]
grows = tmp / "grows.pickle"
grows.write_bytes(pickle.dumps(leak, protocol=4))
failures = [{"action": "oom", "device_free": 1 << 20, "size": (100 + i) << 20, "stream": 0,
             "time_us": 1_020_000 + i, "frames": leak["device_traces"][0][0]["frames"]}
            for i in range(20)]
leak["device_traces"][0] += failures
grown = tmp / "grown.pickle"
grown.write_bytes(pickle.dumps(leak, protocol=4))
check_equal([f["severity"] for f in report(grown)["findings"] if f["id"] == "creep"], ["error"],
            "a leak that filled the card")
result = status(1, "check", grown, "--allow-oom")
check("FAILED creep" in result.stdout and "out of memory on" not in result.stdout
      and "FAILED capacity" not in result.stdout, result.stdout)
check("passed over: creep" in status(0, "check", grown, "--allow-oom", "--max-peak", "1TiB").stdout,
      "errors are not hidden by a limit")
# A baseline that ran out of memory says little.
result = status(0, "check", grows, "--baseline", grown)
check("grown.pickle: the baseline ran out of memory on cuda:0" in result.stderr, result.stderr)
check_equal(status(0, "check", grows, "--baseline", grows).stderr, "", "a sound baseline")
# Every error that the report knows is on the page.
status(0, "report", grown, "--html", tmp / "grown.html")
page = (tmp / "grown.html").read_text()
check_equal(page.count("Out of memory at "), 16, "errors on the page")
check("4 earlier failed requests" in page, "and those before them are counted")
# check: a run of which nothing was measured does not pass.
nothing = tmp / "nothing.pickle"
nothing.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]], "allocator_settings": {},
                                  "external_annotations": []}))
cut = tmp / "cut.tmk"
cut.write_bytes(next((RECORDED / "leak").glob("*.tmk")).read_bytes()[:200])
for path in (nothing, cut):
    for limits in ([], ["--max-peak", "1TiB"], ["--fail-on", "any"], ["--baseline", default]):
        result = run("check", path, *limits)
        check_equal(result.returncode, 2, f"check {path.name} {limits}: {result.stdout!r}")
        check("nothing to check" in result.stderr or "no " in result.stderr, result.stderr)
# check: what is missing is said, and so is which peak was compared.
half = tmp / "half.tmk"
whole = RECORDED / "torch" / "training.tier2.tmk"
half.write_bytes(whole.read_bytes()[:whole.stat().st_size * 2 // 3])
result = run("check", half, "--max-peak", "1TiB")
check("the file ends in the middle of a block" in result.stderr, f"check: {result.stderr!r}")
# recover: a file that nothing can complete is not complete.
check("ends in the middle of a block" in status(0, "recover", half).stdout, "recover: half a file")
check("complete, nothing to do" in status(0, "recover", whole).stdout, "recover: a whole file")
status(2, "recover", tmp / "none.tmk")
check("reserved peak of cuda:0" in status(0, "check", default, "--max-peak", "1TiB").stdout,
      "check names the peak")
check("driver peak of cuda:0" in status(0, "check", RECORDED / "leak", "--max-peak", "1TiB").stdout,
      "check names the peak of the driver")
# Below the driver peak, but above what PyTorch reserved.
trace = TraceFile()
trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                              "start_ns": 10**9}])
trace.table(1, "FrameworkEvents", [
    {"time_ns": 10**9 + i, "action": action, "address": 1 << 40, "size_bytes": 20 * MiB,
     "block_bytes": 20 * MiB} for i, action in enumerate((4, 1))])
trace.table(1, "DriverEvents", [
    {"time_ns": 10**9 + i, "operation": 1, "kind": 1, "address": (i + 1) << 40,
     "size_bytes": mib * MiB, "owner": trace.string(1, owner)}
    for i, (owner, mib) in enumerate((("torch", 20), ("nccl", 900)))])
of_both = trace.save(tmp / "of_both.tmk")
check("FAILED driver peak of cuda:0 920.0 MiB, limit 100.0 MiB"
      in status(1, "check", of_both, "--max-peak", "100MiB").stdout, "the driver peak fails")
status(0, "check", of_both, "--max-peak", "920MiB")
check("reserved peak or, if it is higher, the driver peak"
      in " ".join(run("check", "--help").stdout.split()), "the help says which peak")
# Decimal and binary sizes.
status(1, "check", default, "--max-peak", f"{peak // 1000}kB")
status(0, "check", default, "--max-peak", f"{peak // 1000 + 1}KB")
status(0, "check", default, "--max-peak", f"{peak // 1024}KiB")
# A process that was attached to: the driver's peak lacks what is older.
attached = RECORDED / "attach" / "entered.tmk"
device = report(attached)["ranks"][0]["devices"][0]
driver, older = device["driver_peak"]["bytes"], device["driver_before_recording_bytes"]
check_equal(older, {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}["pre_attach"],
            "memory that is older than the recording")
check(f"at least: up to {older / MiB:.1f} MiB older" in run("report", attached).stdout,
      "the text calls it a lower bound")
status(0, "check", attached, "--max-peak", driver + older)
status(1, "check", attached, "--max-peak", driver - 1)
for limits in (["--max-peak", driver + older - 1], ["--baseline", attached]):
    result = status(2, "check", attached, *limits)
    check("running process" in result.stderr and result.stdout == "", f"{limits}: {result.stderr!r}")
    status(0, "check", attached, *limits, "--allow-losses")
check_equal(report(RECORDED / "leak")["ranks"][0]["devices"][0]["driver_before_recording_bytes"], 0,
            "a recording from the start lacks nothing")
# What is older is told of the device that may exceed the limit, not of the one with the peak.
trace = TraceFile()
trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                              "start_ns": 10**9}])
trace.table(1, "Devices", [{"ordinal": d, "total_bytes": 16 << 30} for d in (0, 1)])
contexts = [{"time_ns": 10**9, "operation": 17, "device": d, "handle": d + 1,
             "flags": 8} for d in (0, 1)]  # 8: it existed before the recording began
trace.table(1, "DriverEvents", contexts + [
    {"time_ns": 10**9 + 2 + d, "operation": 1, "kind": 1, "device": d, "address": (d + 1) << 40,
     "size_bytes": mib * MiB} for d, mib in ((0, 240), (1, 40))])
trace.table(1, "Counters", [
    {"time_ns": 10**9 + i, "value": mib * MiB, "device": d, "kind": 1}
    for i, (d, mib) in enumerate(((0, 100), (1, 900), (0, 340), (1, 940)))])
older = trace.save(tmp / "older.tmk")
device = report(older)["ranks"][0]["devices"][1]
result = status(2, "check", older, "--max-peak", "500MiB")
check(f"up to {device['driver_before_recording_bytes'] / MiB:.1f} MiB that it held on cuda:1 before"
      in result.stderr, result.stderr)
# A state without history has no peak.
state = RECORDED / "attach" / "snapshot.tmk"
check_equal(report(state)["ranks"][0]["devices"][0]["state_only"], True, "tidemark snapshot")
text = run("report", state).stdout
check(" peak " not in text and "no history" in text, f"no peak is claimed: {text}")
check("(no stack recorded)" in text and "no Python stack" not in text, f"true words: {text}")
for limits in ([], ["--max-peak", "1TiB"], ["--fail-on", "any"]):
    result = status(2, "check", state, *limits)
    check("no history" in result.stderr, f"{limits}: {result.stderr!r}")
    status(0, "check", state, *limits, "--allow-losses")
# Retries are known only where the driver's calls were recorded.
for path, retries in ((default, None), (state, None), (RECORDED / "leak", 0),
                      (RECORDED / "torch" / "training.tier2.tmk", 0)):
    check_equal(report(path)["ranks"][0]["devices"][0]["alloc_retries"], retries,
                f"{path.name}: retries")
# What was lost of a rank is lost in the merged trace, and of that rank.
ranks = tmp / "ranks"
shutil.copytree(RECORDED / "ranks" / "ddp2", ranks)
status(0, "check", ranks, "--max-peak", "1TiB")
cut = next(ranks.glob("rank1-*.tmk"))
cut.write_bytes(cut.read_bytes()[:cut.stat().st_size * 2 // 3])
merged = tmp / "merged.tmk"
status(0, "merge", ranks, "-o", merged)
for path in (ranks, merged):
    status(2, "check", path, "--max-peak", "1TiB")
    status(0, "check", path, "--max-peak", "1TiB", "--allow-losses")
check_equal([bool(r["loss"]["entries_skipped"]) for r in report(merged)["ranks"] if r["rank"] >= 0],
            [False, True], "the rank that lost events")
check(any("truncated" in line for line in report(merged, "--rank", 1)["losses"]), "and why")
again = tmp / "again.tmk"
status(0, "merge", merged, "-o", again)
status(2, "check", again, "--max-peak", "1TiB")
# Two jobs in one directory are not one.
both = tmp / "both"
shutil.copytree(RECORDED / "ranks" / "ddp2", both)
for path in (RECORDED / "ranks" / "ddp4").glob("rank*"):
    shutil.copy(path, both)
result = status(2, "check", both, "--max-peak", "1TiB", "--allow-losses")
check("several jobs (0cc497bdfa52ca56, 9eea20f5af8e7e01)" in result.stderr, result.stderr)
check_equal(result.stdout, "", "neither of the jobs passes")
result = status(2, "merge", both, "-o", tmp / "both.tmk")
check("several jobs (0cc497bdfa52ca56, 9eea20f5af8e7e01)" in result.stderr
      and not (tmp / "both.tmk").exists(), result.stderr)
check("several jobs" in run("info", both).stdout and "complete" not in run("info", both).stdout,
      "info of two jobs")
# Killed processes.
killed = report(RECORDED / "ranks" / "guilty4")
check_equal([r["rank"] for r in killed["ranks"] if r["loss"]["last_kernels"]], [0, 1, 3],
            "ranks that were killed")
line = ("rank 0, rank 1, rank 3 were killed or did not exit normally: kernels of the last moments "
        "may be missing")
check(line in killed["losses"] and line in run("report", RECORDED / "ranks" / "guilty4").stdout, line)
passed = run("check", RECORDED / "ranks" / "guilty4", "--max-peak", "999GiB", "--allow-oom")
check(passed.returncode == 0 and "the run was cut off" in passed.stderr, passed.stdout + passed.stderr)
check(not any("killed" in text for text in report(RECORDED / "ranks" / "ddp2")["losses"]),
      "processes that ended in order")
# The same without kernels: nothing is lost, but the report ends early.
trace = TraceFile()
trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                              "start_ns": 10**9}])
trace.table(1, "FrameworkEvents", [
    {"time_ns": 10**9 + i, "action": action, "address": 1 << 40, "size_bytes": 4 * MiB,
     "block_bytes": 4 * MiB} for i, action in enumerate((4, 1))])
ended = trace.string(1, "the process ended without finishing its trace")
trace.table(1, "Health", [{"time_ns": 10**9 + 2, "kind": 8, "value": 2, "detail": ended}])
unfinished = trace.save(tmp / "killed.tmk")
check_equal(report(unfinished)["ranks"][0]["loss"]["killed"], True, "a killed process")
text = run("report", unfinished).stdout
check("the process was killed or did not exit normally: the recording ends there" in text
      and "No problems found in what was recorded." in text, text)
check("complete" not in run("info", unfinished).stdout, "info of a killed process")
# A process whose pid goes on in a later trace called exec.
successor = TraceFile()
successor.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                                  "start_ns": 2 * 10**9}])
successor.table(1, "DriverEvents", [{"time_ns": 2 * 10**9, "operation": 1, "kind": 1,
                                     "address": 1 << 40, "size_bytes": 4 * MiB}])
replaced = tmp / "replaced"
replaced.mkdir()
shutil.copy(unfinished, replaced / "vm-7.tmk")
successor.save(replaced / "vm-7-2.tmk")
check_equal([r["loss"]["killed"] for r in report(replaced)["ranks"]], [False, False], "exec")
line = "process 7 replaced itself by another program (exec), which has a trace of its own"
check(line in report(replaced)["losses"] and not any("killed" in text
      for text in report(replaced)["losses"]), report(replaced)["losses"])
(replaced / "vm-7-2.tmk").unlink()
stranger = TraceFile()
stranger.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 8, "source": 1,
                              "start_ns": 2 * 10**9}])
stranger.save(replaced / "vm-8.tmk")
check("process 7 was killed or did not exit normally: the recording ends there"
      in report(replaced)["losses"], report(replaced)["losses"])
# A recorder that could not write any more: the process was not killed, but the rest is lost.
full = trace.string(1, "writing stopped while the process was running: No space left on device")
trace.table(1, "Health", [{"time_ns": 10**9 + 2, "kind": 3, "value": 64, "detail": full}])
unwritten = trace.save(tmp / "unwritten.tmk")
check_equal(report(unwritten)["ranks"][0]["loss"]["killed"], False, "a full disk kills nobody")
text = run("report", unwritten).stdout
check("was killed" not in text and "No space left on device" in text, text)
status(2, "check", unwritten, "--max-peak", "1GiB")
check("complete" not in run("info", unwritten).stdout, "info of a recording that was stopped")
# A recording that is still going on, or was cut off between two blocks: a higher peak may follow.
trace = TraceFile()
trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                              "start_ns": 10**9}])
trace.table(1, "DriverEvents", [{"time_ns": 10**9, "operation": 1, "kind": 1, "address": 1 << 40,
                                 "size_bytes": 4 * MiB}])
going_on = trace.save(tmp / "going_on.tmk", finished=False)
result = status(2, "check", going_on, "--max-peak", "1GiB")
check("still going on or was cut off" in result.stderr, result.stderr)
status(1, "check", going_on, "--max-peak", "1MiB")
status(0, "check", going_on, "--max-peak", "1GiB", "--allow-losses")
status(0, "check", trace.save(tmp / "finished.tmk"), "--max-peak", "1GiB")
# Of a process that has only just begun to record, nothing is written yet.
begun = tmp / "begun"
begun.mkdir()
shutil.copy(tmp / "finished.tmk", begun / "first.tmk")
status(0, "check", begun, "--max-peak", "1GiB")
TraceFile().save(begun / "second.tmk", finished=False)
result = status(2, "check", begun, "--max-peak", "1GiB")
check("second.tmk: has no readable process yet" in result.stderr, result.stderr)
status(1, "check", begun, "--max-peak", "1MiB")
status(0, "check", begun, "--max-peak", "1GiB", "--allow-losses")
for detail in (64, 1):
    result = status(0, "report", begun, "--detail", detail)
    check("second.tmk: has no readable process yet" in result.stdout, f"{detail}: {result.stdout}")
# What the driver's pool keeps of freed memory is not in the driver's peak.
def pool_trace(name, pools):
    """32 MiB of a pool, freed; then 100 MiB outside of it."""
    trace = TraceFile()
    trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                                  "start_ns": 10**9}])
    trace.table(1, "DriverEvents", [
        {"time_ns": 10**9 + ms * 10**6, "operation": operation, "kind": kind, "address": address,
         "size_bytes": size * MiB}
        for ms, operation, kind, address, size in ((0, 1, 6, 1 << 40, 32), (100, 2, 6, 1 << 40, 0),
                                                   (1000, 1, 1, 1 << 41, 100),
                                                   (2000, 2, 1, 1 << 41, 0))])
    trace.table(1, "Counters", [{"time_ns": 10**9 + ms * 10**6, "value": value * MiB, "subject": 3,
                                 "kind": 5} for ms, value in pools])
    return trace.save(tmp / name)


kept = pool_trace("pool_kept.tmk", [(50, 32)])
check_equal(report(kept)["ranks"][0]["devices"][0]["driver_pool_cache_bytes"], 32 * MiB, "a pool")
check("driver peak" in run("report", kept).stdout
      and "without 32.0 MiB that the pool keeps" in run("report", kept).stdout,
      run("report", kept).stdout)
status(0, "check", kept, "--max-peak", 132 * MiB)
status(1, "check", kept, "--max-peak", 132 * MiB - 1)
for name, pools in (("trimmed", [(50, 32), (500, 0)]), ("trimmed_at_once", [(50, 32), (1050, 0)])):
    given_back = pool_trace(f"pool_{name}.tmk", pools)
    status(0, "check", given_back, "--max-peak", 100 * MiB)
# Steps that a program without PyTorch marks.
trace = TraceFile()
trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                              "start_ns": 10**9}])
trace.table(1, "DriverEvents", [{"time_ns": 10**9 + i * 10**7, "operation": 1, "kind": 1,
                                 "address": (1 << 40) + i * 4 * MiB, "size_bytes": MiB}
                                for i in range(20)])
trace.table(1, "Marks", [{"time_ns": 10**9 + i * 10**7 + 10**6, "correlation": i + 1, "kind": 4}
                         for i in range(20)])
marked = trace.save(tmp / "marked.tmk")
steps = report(marked)["ranks"][0]["devices"][0]["steps"]
check_equal((steps["count"], steps["source"], steps["growth_bytes_per_step"]), (20, "marks", MiB),
            "steps of a program without PyTorch")
status(0, "export", marked, "--format", "csv", "-o", tmp / "marked")
rows = list(csv.DictReader((tmp / "marked" / "steps.csv").open()))
check_equal([(row["step"], row["high_bytes"], row["begin_event"]) for row in rows[:2]],
            [("0", str(MiB), ""), ("1", str(2 * MiB), "")], "and their table")
check_equal(len(rows), 20, "one row for each")
# A ring that cannot be read, with the row of the process in it.
trace = TraceFile()
trace.table(1, "DriverEvents", [{"time_ns": 10**9, "operation": 1, "kind": 1, "address": 1 << 40,
                                 "size_bytes": 4 * MiB}])
unknown = trace.save(tmp / "unknown.tmk", finished=False)
(tmp / "unknown.tmk.ring").write_bytes(b"no ring" * 1000)
check_equal(report(unknown)["ranks"][0]["rank"], -1, "a process of which nothing is known has no rank")
check(any("last records could not be added" in line for line in report(unknown)["losses"]),
      report(unknown)["losses"])
# One rank of several, alone, in a directory or merged.
alone = tmp / "alone"
alone.mkdir()
shutil.copy(next((RECORDED / "ranks" / "ddp4").glob("rank1-*")), alone)
status(0, "merge", alone, "-o", tmp / "alone.tmk")
for path in (alone, next(alone.iterdir()), tmp / "alone.tmk"):
    check("3 of 4 ranks missing: 0, 2-3" in report(path)["losses"], f"{path}: {report(path)['losses']}")
    status(2, "check", path, "--max-peak", "1TiB")
# A rank that is missing is missing in the merged trace, whichever rank is asked for.
lacking = tmp / "lacking"
shutil.copytree(RECORDED / "ranks" / "ddp4", lacking)
next(lacking.glob("rank2-*")).unlink()
status(0, "merge", lacking, "-o", tmp / "lacking.tmk")
for path in (lacking, tmp / "lacking.tmk"):
    for more in ((), ("--rank", 3)):
        check_equal([text for text in report(path, *more)["losses"] if "ranks missing" in text],
                    ["1 of 4 ranks missing: 2"], f"{path.name} {more}")
    info = run("info", path).stdout
    check("incomplete: ranks or files of the job are missing" in info
          and "nothing" not in info, info)
    result = run("export", path, "--format", "csv", "-o", tmp / "tables")
    check_equal(result.stderr.count("ranks missing"), 1, f"{path.name}: {result.stderr}")
# If the row with a rank is damaged, its events are those of no rank.
status(0, "merge", RECORDED / "ranks" / "ddp4", "-o", tmp / "nameless.tmk")
data, at = bytearray((tmp / "nameless.tmk").read_bytes()), 16
while data[at:at + 4] == b"TMKF":
    kind, _, stored, _, _, process = struct.unpack_from("<HHIIII", data, at + 4)
    at += 56 + stored
    if kind == 1 and process == 3:
        data[at - 1] ^= 1
(tmp / "nameless.tmk").write_bytes(data)
nameless = report(tmp / "nameless.tmk")
check_equal([r["rank"] for r in nameless["ranks"]], [0, 1, -1, 3, -1],
            "the last is the launcher")
check_equal([text for text in nameless["losses"] if "ranks missing" in text],
            ["1 of 4 ranks missing: 2; the rank of 1 process is lost with its damaged name, it is "
             "probably the missing one"], "nameless")
# Sub-directories are not read, which is said unless they are copies that were sealed.
mixed = tmp / "mixed"
(mixed / "more").mkdir(parents=True)
shutil.copy(SNAPSHOTS / "default.pickle.gz", mixed / "a.pickle.gz")
shutil.copy(SNAPSHOTS / "oom_fraction.pickle.gz", mixed / "more" / "b.pickle.gz")
check("traces in sub-directories are not read: more\n" in run("check", mixed).stderr, "a warning")
shutil.copytree(RECORDED / "ranks" / "ddp2", tmp / "sealed")
shutil.copytree(RECORDED / "ranks" / "ddp2", tmp / "sealed" / "oom-20260131-235959")
check("sub-directories" not in run("check", tmp / "sealed").stderr, "no warning")
# A rank that was restarted: its processes are told apart.
def restarted(path, processes):
    trace = TraceFile()
    for number, (rank, pid, mib, killed) in enumerate(processes, 1):
        start = 10**9 * number
        trace.table(number, "Processes", [{"rank": rank, "local_rank": rank, "pid": pid,
                                           "world_size": 2, "source": 1, "start_ns": start}])
        trace.table(number, "FrameworkEvents", [
            {"time_ns": start + i, "action": action, "address": 1 << 40, "size_bytes": mib * MiB,
             "block_bytes": mib * MiB} for i, action in enumerate((4, 1))])
        if killed:
            ended = trace.string(number, "the process ended without finishing its trace")
            trace.table(number, "Health", [{"time_ns": start + 2, "kind": 8, "value": 2,
                                            "detail": ended}])
    return trace.save(path)


elastic = restarted(tmp / "elastic.tmk", [(0, 70, 4, False), (1, 71, 6, True), (0, 80, 8, False),
                                          (1, 81, 10, False)])
once = restarted(tmp / "once.tmk", [(0, 60, 4, False), (1, 61, 6, False)])
text = run("report", elastic).stdout
check("rank 1 (pid 71) was killed" in text, text)
check(all(f"\nrank {rank} (pid {pid})  cuda:0" in text
          for rank, pid in ((0, 70), (1, 71), (0, 80), (1, 81))), text)
check("(pid" not in run("report", once).stdout, "ranks of their own need no pid")
text = status(0, "diff", once, elastic).stdout
check(f"rank 0 (pid 80) cuda:0 is only in {elastic}" in text
      and "rank 0 cuda:0 vs. rank 0 (pid 70) cuda:0" in text, text)
text = status(0, "diff", elastic, elastic, "--rank", "0", "--other-rank", "1").stdout
check("rank 0 (pid 80) cuda:0 vs. rank 1 (pid 81) cuda:0" in text, text)

result = status(2, "check", ran_out, "--fail-on", "fragmentatoin")
check("rank_imbalance" in result.stderr, "an unknown id: the known ones are listed")
status(1, "report", ran_out, "--fail-on", "capacity")
status(0, "report", default, "--fail-on", "any")
status(2, "report", default, "--fail-on", "nothing")

# diff: a run with itself, and two runs.
result = json.loads(status(0, "diff", default, default, "--json").stdout)
device = result["devices"][0]
check(all(line["change_bytes"] == 0 for line in device["peaks"]), "a run does not differ from itself")
check_equal(device["by_stack"], [], "nor do its stacks")
result = json.loads(status(0, "diff", expandable, default, "--json").stdout)
device = result["devices"][0]
reserved = [line for line in device["peaks"] if line["name"] == "reserved peak"][0]
check_equal(reserved["change_bytes"], peak - other, "the change of the reserved peak")
before, after = (report(p, "--stacks", "100000")["ranks"][0]["devices"][0]
                 for p in (expandable, default))
total = sum(s["bytes"] for s in after["by_stack"]) - sum(s["bytes"] for s in before["by_stack"])
check_equal(sum(line["change_bytes"] for line in device["by_stack"]), total,
            "the stacks' changes add up")
result = json.loads(status(0, "diff", default, ran_out, "--json").stdout)
check("capacity" in result["findings_appeared"], "new findings are named")
text = status(0, "diff", default, ran_out).stdout
check("new findings" in text and "by stack" in text, "diff for people")
status(2, "diff", default, tmp / "none.tmk")
# Two ranks of one job: snapshots have their rank in their file names.
job = tmp / "job"
job.mkdir()
shutil.copy(default, job / "snapshot_rank0.pickle.gz")
shutil.copy(ran_out, job / "snapshot_rank1.pickle.gz")
check_equal([r["rank"] for r in report(job)["ranks"]], [0, 1], "ranks from names")
result = json.loads(status(0, "diff", job, job, "--rank", 0, "--other-rank", 1, "--json").stdout)
check_equal([d["after_rank"] for d in result["devices"]], [1], "one rank against the other")
status(2, "diff", job, default)
check("--rank" in status(2, "diff", job, job, "--other-rank", 1).stderr, "--other-rank alone")
# The findings are the same however many ranks are read in detail.
appeared = [json.loads(status(0, "diff", RECORDED / "ranks" / "ddp4", RECORDED / "ranks" / "guilty4",
                              "--json", "--detail", detail).stdout)["findings_appeared"]
            for detail in (64, 1)]
check("rank_imbalance" in appeared[0], appeared[0])
check_equal(appeared[1], appeared[0], "findings that appeared, by ranks in detail")


# diff: blocks that are older than the recording are a row of their own.
late = SNAPSHOTS / "late.pickle.gz"
device = json.loads(status(0, "diff", default, late, "--json").stdout)["devices"][0]
older = [line for line in device["by_stack"] if line.get("before_history")]
before = [s["bytes"] for s in report(late)["ranks"][0]["devices"][0]["by_stack"]
          if s.get("before_history")]
check_equal([(line["before_bytes"], line["after_bytes"], line["frames"]) for line in older],
            [(0, sum(before), [])], "blocks older than the recording")
check("(allocated before the recording began)" in run("diff", default, late).stdout, "and as text")

# diff: devices are paired by rank and device, stacks by function and file.


def snapshot(path, sizes, line=10):
    """One device of each of `sizes`, which holds that many bytes; 0: no events."""
    traces = []
    for device, size in enumerate(sizes):
        stacks = [[{"name": name, "filename": "train.py", "line": line + at}]
                  for name, at in (("make", 0), ("make", 20), ("use", 40))]
        base = (0x7F << 40) + (device << 36)
        event = {"stream": 0, "time_us": 10, "frames": stacks[0]}
        traces.append([] if size == 0 else [
            {**event, "action": "segment_alloc", "addr": base, "size": 4 * size},
            *({**event, "action": "alloc", "addr": base + i * size, "size": size,
               "time_us": 11 + i, "frames": stack} for i, stack in enumerate(stacks))])
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": traces}))
    return path


def allocated(diff):
    return {(d["before_device"], d["after_device"]): d["peaks"][0]["change_bytes"]
            for d in diff["devices"]}


first = snapshot(tmp / "first.pickle", [2 * MiB, 4 * MiB, 8 * MiB])
second = snapshot(tmp / "second.pickle", [0, 4 * MiB, 6 * MiB])
result = json.loads(status(0, "diff", first, second, "--json").stdout)
check_equal(allocated(result), {(1, 1): 0, (2, 2): -6 * MiB}, "devices are paired by number")
check_equal(result["unpaired"], [f"cuda:0 is only in {first}"], "the device without a partner")
check("cuda:0 is only in" in status(0, "diff", first, second).stdout, "also for people")
alone = snapshot(tmp / "alone.pickle", [0, 0, 8 * MiB])
other = snapshot(tmp / "other.pickle", [8 * MiB])
result = json.loads(status(0, "diff", alone, other, "--json").stdout)
check_equal(allocated(result), {(2, 0): 0}, "one device each")
status(2, "diff", snapshot(tmp / "two.pickle", [2 * MiB, 2 * MiB]), alone)

for line in (11, 9, 310):  # an edit above moved every line
    moved = snapshot(tmp / "moved.pickle", [2 * MiB], line)
    device = json.loads(status(0, "diff", snapshot(tmp / "at10.pickle", [2 * MiB]), moved,
                               "--json").stdout)["devices"][0]
    check_equal(device["by_stack"], [], f"lines moved to {line}")
grown = snapshot(tmp / "grown.pickle", [3 * MiB], 12)
device = json.loads(status(0, "diff", tmp / "at10.pickle", grown, "--json").stdout)["devices"][0]
check_equal(sorted((s["frames"][0], s["change_bytes"]) for s in device["by_stack"]),
            [("make train.py:12", MiB), ("make train.py:32", MiB), ("use train.py:52", MiB)],
            "moved and grown")
text = status(0, "diff", tmp / "at10.pickle", grown).stdout
check("make train.py:12 (was :10)" in text, f"the line it had is named: {text}")


def called_twice(name, size, first, second):
    """One line of a module, called from two lines of the program."""
    path = tmp / f"{name}.pickle"
    trace = [{"action": "segment_alloc", "addr": 0x7F << 40, "size": 64 * MiB, "stream": 0,
              "time_us": 10, "frames": []}]
    for i, line in enumerate((first, second)):
        trace.append({"action": "alloc", "addr": (0x7F << 40) + 32 * i * MiB, "size": size,
                      "stream": 0, "time_us": 11 + i,
                      "frames": [{"name": "forward", "filename": "net.py", "line": 5},
                                 {"name": "main", "filename": "train.py", "line": line}]})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


text = status(0, "diff", called_twice("called", 2 * MiB, 10, 43),
              called_twice("edited", 3 * MiB, 10, 46)).stdout
check("called by main train.py:46 (was :43)" in text, f"a caller's line, too: {text}")
check("called by main train.py:10\n" in text, f"one that did not move: {text}")


# diff: a copy of a program under another name is compared with it.
def program(name, filename, *functions):
    """Each function, (name, line, MiB), called by main."""
    path, trace = tmp / f"{name}.pickle", []
    for i, (function, line, size) in enumerate(functions):
        frames = [{"name": function, "filename": filename, "line": line},
                  {"name": "main", "filename": filename, "line": 90 + i},
                  {"name": "<module>", "filename": filename, "line": 99}]
        for action in "segment_alloc", "alloc":
            trace.append({"action": action, "addr": (0x7F << 40) + (i << 36), "size": size * MiB,
                          "stream": 0, "time_us": 10 + len(trace), "frames": frames})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


def renamed(before, after):
    """What is said of files, and what changed by line: MiB before and after."""
    result = json.loads(status(0, "diff", before, after, "--json").stdout)
    return ([n for n in result["notes"] if "compared with" in n],
            {s["frames"][0]: (s["before_bytes"] // MiB, s["after_bytes"] // MiB)
             for s in result["devices"][0]["by_stack"]})


PARTS = (("Encoder.forward", 10, 40), ("Decoder.forward", 30, 60), ("loss_of", 50, 20))
LONGER = (("Encoder.forward", 10, 40), ("Decoder.forward", 33, 60), ("loss_of", 53, 90))
copied = program("copied", "/home/me/speech.py", *PARTS)
for filename, said in (
        ("/home/me/speech_chunked.py", "speech_chunked.py is compared with speech.py"),
        ("/home/me/try2.py", "try2.py is compared with speech.py"),
        ("/home/me/second/speech.py", "/home/me/second/speech.py is compared with /home/me/speech.py")):
    check_equal(renamed(copied, program("longer", filename, *LONGER)),
                ([said], {f"loss_of {filename}:53": (20, 90)}), f"renamed to {filename}")
    text = status(0, "diff", copied, tmp / "longer.pickle").stdout
    check(said in text and f"loss_of {filename}:53 (was :50)" in text, f"for people: {text}")
text = status(0, "diff", copied, program("grew", "/home/me/speech2.py", *PARTS[:2],
                                         ("loss_of", 50, 21))).stdout
check("loss_of /home/me/speech2.py:50\n" in text, f"its line is the same: {text}")
one = program("one", "/home/me/long_demo_before.py", ("main", 7, 30))
check_equal(renamed(one, program("two", "/home/me/long_demo_after.py", ("main", 8, 30))),
            (["long_demo_after.py is compared with long_demo_before.py"], {}), "few functions, but like names")
# A function more, and one less.
check_equal(renamed(copied, program("more", "/home/me/v2.py", *PARTS, ("chunk", 70, 5)))[0],
            ["v2.py is compared with speech.py"], "a function more")
# Other programs are not.
for name, filename, functions in (
        ("unlike", "/home/me/vision.py", (("Stem.forward", 10, 40), ("Head.forward", 30, 60),
                                          ("loss_of", 50, 20))),
        ("few", "/home/me/vision.py", (("loss_of", 50, 20),)),
        ("folder", "/home/you/speech.py", (("Stem.forward", 10, 40), ("Head.forward", 30, 60),
                                           ("train", 40, 1), ("step", 50, 20)))):
    notes, lines = renamed(copied, program(name, filename, *functions))
    check_equal(notes, [], f"another program: {name}")
    check_equal(len(lines), 3 + len(functions), f"no line is paired: {name}")
check_equal(renamed(one, program("main", "/home/me/other.py", ("main", 8, 30)))[0], [],
            "every program has a main")
check_equal(renamed(copied, program("same", "/home/me/speech.py", *LONGER))[0], [],
            "the file's name is the same")


# diff: a line that both runs have is paired with itself, also where it holds nothing at the peak.
def timeline(name, *entries):
    """(line, MiB, inner line) allocates, (line,) frees what that line allocated."""
    path, trace, held = tmp / f"{name}.pickle", [], {}

    def add(action, address, size, line, inner=0):
        frames = [{"name": "main", "filename": "vary.py", "line": line}]
        if inner:
            frames.insert(0, {"name": "empty", "filename": "lib/python3/site-packages/t.py",
                              "line": inner})
        trace.append({"action": action, "addr": address, "size": size, "stream": 0,
                      "time_us": 10 + len(trace), "frames": frames})

    for i, (line, *rest) in enumerate(entries):
        if rest:
            held[line] = (0x7F << 40) + (i << 36)
            add("segment_alloc", held[line], rest[0] * MiB, line)
            add("alloc", held[line], rest[0] * MiB, line, *rest[1:])
        else:
            add("free_requested", held[line], 0, line)
            add("free_completed", held[line], 0, line)
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


before = timeline("before", (21, 40), (30, 2))
after = timeline("after", (21, 40), (21,), (27, 44), (30, 2))
device = json.loads(status(0, "diff", before, after, "--json").stdout)["devices"][0]
check_equal(sorted((s["frames"][0], s["before_bytes"] // MiB, s["after_bytes"] // MiB)
                   for s in device["by_stack"]),
            [("main vary.py:21", 40, 0), ("main vary.py:27", 0, 44)], "no line becomes another")
check("(was" not in status(0, "diff", before, after).stdout, "and none has moved")
# Nor does a line move past one that both runs have.
device = json.loads(status(0, "diff", timeline("past", (21, 40), (25, 2)),
                           timeline("passed", (25, 2), (29, 40)), "--json").stdout)["devices"][0]
check_equal(sorted(s["frames"][0] for s in device["by_stack"]),
            ["main vary.py:21", "main vary.py:29"], "lines keep their order")

# Rows that would read the same have their innermost lines, or are one.
text = status(0, "diff", timeline("one", (21, 2, 5), (22, 2)),
              timeline("three", (21, 4, 5), (21, 8, 6), (22, 2))).stdout
rows = [line.strip() for line in text.splitlines() if "vary.py:21" in line]
check_equal(len(rows), 2, f"two rows: {rows}")
check(all("t.py:5" in row or "t.py:6" in row for row in rows), f"each with its inner line: {rows}")


class Balance(html.parser.HTMLParser):
    """Counts elements that are not closed, and collects what a browser would fetch."""
    VOID = {"meta", "line", "path"}

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.wrong = [], [], 0

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [v for k, v in attributes if k in ("src", "href")]
        self.wrong += tag == "script"

    def handle_startendtag(self, tag, attributes):
        """An element that closes itself: <line/>."""

    def handle_endtag(self, tag):
        self.wrong += not self.open or self.open.pop() != tag


for path in (default, ran_out, job):
    page = tmp / "page.html"
    status(0, "report", path, "--html", page)
    markup = page.read_text()
    balance = Balance()
    balance.feed(markup)
    check(not balance.open and balance.wrong == 0, f"{path.name}: elements are closed in order")
    check_equal(balance.fetched, [], f"{path.name}: nothing comes from elsewhere")
    check("http" not in markup and "url(" not in markup, f"{path.name}: no addresses in it")
    check("prefers-color-scheme: dark" in markup, f"{path.name}: dark and light")
    for finding in report(path)["findings"]:
        check(finding["id"] in markup, f"{path.name}: {finding['id']} is on the page")
check(len(re.findall(r'class="allocated" d="M', markup)) == 2, "a curve for each rank")
status(2, "report", default, "--html", tmp / "no" / "page.html")

# Processes without ranks are told apart.
scenarios = pathlib.Path(__file__).resolve().parents[1] / "data" / "scenarios"
text = status(0, "diff", scenarios / "stray_contexts.bad", scenarios / "stray_contexts.fixed").stdout
alone = [line for line in text.splitlines() if " is only in " in line]
check(len(alone) >= 2 and len(set(alone)) == len(alone), f"processes without a partner: {alone}")
check(all(re.match(r"pid \d+ cuda:\d is only in", line) for line in alone), f"by their pids: {alone}")

finish()
