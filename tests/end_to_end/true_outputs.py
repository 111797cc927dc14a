"""What outputs say about recordings of programs without PyTorch, of several processes and of states.

    python3 true_outputs.py TIDEMARK
"""
import json
import os
import pathlib
import pickle
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402
from perfetto_file import INSTANT, PerfettoFile  # noqa: E402
from trace_file import TraceFile  # noqa: E402

MiB = 1 << 20
START = 10**9
CAPTURE, DEVICE_MEMORY, OUT_OF_MEMORY = 1, 1, 2
ALLOCATE, FREE = 1, 2
POOL_RESERVED, POOL_USED = 5, 6
POOL_RESERVED_HIGH, POOL_USED_HIGH, SOURCE_DISABLED = 16, 17, 6
tmp = pathlib.Path(tempfile.mkdtemp())


def begin(trace, process=1, pid=7, rank=-1):
    trace.table(process, "Processes", [{"rank": rank, "local_rank": rank, "pid": pid,
                                        "world_size": 2 if rank >= 0 else 0, "source": CAPTURE,
                                        "host": trace.string(process, "node"), "start_ns": START}])
    trace.table(process, "Devices", [{"ordinal": 0, "total_bytes": 16384 * MiB,
                                      "uuid": trace.string(process, "GPU-1")}])


def driver(trace, *calls, process=1, owner="program"):
    """Each call: milliseconds, operation, number of the block, MiB and perhaps the owner and result."""
    rows = []
    for at, operation, block, size, *more in calls:
        rows.append({"time_ns": START + at * 10**6, "operation": operation, "kind": DEVICE_MEMORY,
                     "address": block << 36, "size_bytes": size * MiB,
                     "owner": trace.string(process, more[0] if more else owner),
                     "result": more[1] if len(more) > 1 else 0})
    trace.table(process, "DriverEvents", rows)


def trace_of(name, *calls):
    trace = TraceFile()
    begin(trace)
    driver(trace, *calls)
    return trace.save(tmp / name)


def status(wanted, *args):
    result = run(*args)
    check_equal(result.returncode, wanted, f"{' '.join(map(str, args))}: {result.stderr}")
    return result


def device_of(path, *args):
    return report(path, *args)["ranks"][0]["devices"][0]


def live_bytes(device):
    return sum(stack["bytes"] for stack in device["by_stack"])


def write_job(folder):
    """Of two ranks, the one that needs less has the higher reading of the card."""
    for rank, size, reading in ((0, 100, 900), (1, 400, 600)):
        trace = TraceFile()
        begin(trace, pid=7 + rank, rank=rank)
        driver(trace, (1 + rank, ALLOCATE, 1, size))
        trace.table(1, "Counters", [{"time_ns": START + 5, "kind": 1, "value": reading * MiB}])
        trace.table(1, "Settings", [{"key": trace.string(1, "TIDEMARK_RUN"), "scope": 1,
                                     "value": trace.string(1, os.environ["TIDEMARK_RUN"])}])
        trace.save(folder / f"rank{rank}.tmk")


if len(sys.argv) > 2:  # started by this test, below
    write_job(pathlib.Path(sys.argv[2]))
    sys.exit()

# A program that was refused memory ran out of it, also if it got as much later.
refused = (2, ALLOCATE, 2, 512, "program", OUT_OF_MEMORY)
later = trace_of("later.tmk", (1, ALLOCATE, 1, 64), refused, (3, ALLOCATE, 2, 512))
result = status(1, "check", later)
check("FAILED out of memory on cuda:0" in result.stdout, result.stdout)
status(0, "check", later, "--allow-oom")
# A library that was refused and made do with less did not end the program.
refused = (2, ALLOCATE, 2, 512, "cudnn", OUT_OF_MEMORY)
fell_back = trace_of("fell_back.tmk", (1, ALLOCATE, 1, 64), refused, (3, ALLOCATE, 3, 16, "cudnn"))
status(0, "check", fell_back)
device = device_of(fell_back)
check_equal((device["oom_count"], device["oom"]), (0, []), "no error of the program")
check_equal([(r["library"], r["count"], r["largest_bytes"]) for r in device["library_refusals"]],
            [("cudnn", 1, 512 * MiB)], "what the library was refused")
nothing = TraceFile()
begin(nothing)
text = run("report", nothing.save(tmp / "nothing.tmk")).stdout
check("Nothing was recorded" in text and "No problems" not in text, text)
text = run("report", fell_back).stdout
check("cudnn asked the driver in vain for 512.0 MiB, and the program went on" in text
      and "No problems found" in text, text)
# If nothing was allocated after it, it may have ended the program.
status(1, "check", trace_of("ended.tmk", (1, ALLOCATE, 1, 64), refused))

# Shares are of what is live at the instant, not of the peak.
falls = trace_of("falls.tmk", (0, ALLOCATE, 1, 64), (10, ALLOCATE, 2, 192), (20, FREE, 2, 0),
                 (30, ALLOCATE, 3, 1))
text = run("report", falls, "--at", "25ms").stdout
check("live at +25 ms: 64.0 MiB" in text and "64.0 MiB  100.0 %" in text, text)
status(0, "report", falls, "--at", "25ms", "--html", tmp / "falls.html")
check("live at +25 ms: 64.0 MiB" in (tmp / "falls.html").read_text(), "on the page")

# Processes without a rank are told apart by their pids.
trace = TraceFile()
for process, pid in ((1, 7), (2, 8)):
    begin(trace, process, pid)
    driver(trace, (1, ALLOCATE, 1, 64 * process), process=process)
    driver(trace, (2, ALLOCATE, 2, 99999, "program", OUT_OF_MEMORY), process=process)
two = trace.save(tmp / "two.tmk")
text = run("report", two).stdout
for pid in (7, 8):
    check(f"pid {pid}  cuda:0" in text and f"pid {pid}: the driver could not" in text, text)
result = status(1, "check", two)
check("out of memory on pid 7 cuda:0, pid 8 cuda:0" in result.stdout, result.stdout)
check_equal({f["pid"] for f in report(two)["findings"]}, {7, 8}, "findings name the process")

# A finding is of its process, and at the error or the peak, wherever it is shown.
trace = TraceFile()
begin(trace, 1, 7)
driver(trace, (1, ALLOCATE, 1, 64), (90, FREE, 1, 64))
begin(trace, 2, 8)
driver(trace, (1, ALLOCATE, 1, 128), (2, ALLOCATE, 2, 99999, "program", OUT_OF_MEMORY),
       (40, FREE, 1, 128), process=2)
one_of_two = trace.save(tmp / "one_of_two.tmk")
check_equal({f["pid"] for f in report(one_of_two)["findings"]}, {8}, "the process with the error")
status(0, "export", one_of_two, "--format", "sqlite", "-o", tmp / "findings.db")
with sqlite3.connect(tmp / "findings.db") as tables:
    check_equal(set(tables.execute("SELECT rank_id, pid FROM findings f JOIN ranks r USING (rank_id)")),
                {(2, 8)}, "rank_id of a finding")
status(0, "export", one_of_two, "--format", "perfetto", "-o", tmp / "findings.pftrace")
perfetto = PerfettoFile(tmp / "findings.pftrace")
found = [e for e in perfetto.events
         if e.type == INSTANT and perfetto.tracks[e.track].name == "findings"]
check_equal({(perfetto.process_of(e.track).pid, e.time) for e in found}, {(2, START + 2 * 10**6)},
            "process and time of the finding")
status(0, "export", one_of_two, "--format", "sqlite", "-o", tmp / "first.db", "--processes", "1")
with sqlite3.connect(tmp / "first.db") as tables:
    check_equal(list(tables.execute("SELECT * FROM findings")), [], "none of the other process")

# Memory that was never freed: the recording of one process ends before that of the job.
trace = TraceFile()
for process, pid, end in ((1, 7, 500), (2, 8, 100)):
    begin(trace, process, pid)
    driver(trace, (1, ALLOCATE, 1, 64), process=process)
    trace.table(process, "Counters", [{"time_ns": START + ms * 10**6, "kind": 1, "value": 900 * MiB}
                                      for ms in (5, end)])
ended_early = trace.save(tmp / "ended_early.tmk")
stays, ends = (rank["devices"][0] for rank in report(ended_early, "--at", "end")["ranks"])
check_equal(live_bytes(stays), 64 * MiB, "of the one that stays")
check_equal((ends["by_stack"], ends["ledger_at_peak"]), ([], []), "nothing is known of the other one")
text = run("report", ended_early, "--at", "end").stdout
check_equal(text.count("this process was recorded from"), 1, text)

# A context takes its memory with it.
trace = TraceFile()
begin(trace)
CONTEXT_CREATE, CONTEXT_DESTROY, CONTEXT = 17, 18, 13
trace.table(1, "DriverEvents", [
    {"time_ns": START + at * 10**6, "operation": operation, "kind": kind, "handle": handle,
     "address": address, "size_bytes": size * MiB, "context": context,
     "owner": trace.string(1, "program")}
    for at, operation, kind, handle, address, size, context in (
        (0, CONTEXT_CREATE, CONTEXT, 10, 0, 0, 1), (1, ALLOCATE, DEVICE_MEMORY, 0, 1 << 36, 300, 1),
        (20, CONTEXT_DESTROY, CONTEXT, 10, 0, 0, 1), (30, CONTEXT_CREATE, CONTEXT, 11, 0, 0, 2),
        (31, ALLOCATE, DEVICE_MEMORY, 0, 2 << 36, 200, 2),
        (40, CONTEXT_DESTROY, CONTEXT, 11, 0, 0, 2))])
reset = trace.save(tmp / "reset.tmk")
device = device_of(reset)
check_equal(device["driver_peak"]["bytes"], 300 * MiB, "peak of two contexts, one after the other")
check_equal(live_bytes(device_of(reset, "--at", "35ms")), 200 * MiB, "the second")
check_equal(live_bytes(device_of(reset, "--at", "end")), 0, "none is left")
status(0, "check", reset, "--max-peak", "300MiB")

# Growth without PyTorch: the same number everywhere, and no steps that the program does not have.
grown = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces" / "leak"
(creep,) = [f for f in report(grown)["findings"] if f["id"] == "creep"]
check("step" not in creep["summary"] and "repetition" in creep["summary"], creep["summary"])
check_equal(creep["evidence"]["growth_bytes_per_step"], MiB, "growth")
check_equal(device_of(grown)["steps"]["growth_bytes_per_step"], MiB, "growth in the report")
status(0, "export", grown, "--format", "sqlite", "-o", tmp / "grown.db")
with sqlite3.connect(tmp / "grown.db") as tables:
    check_equal(list(tables.execute("SELECT growth_bytes_per_step FROM devices")), [(MiB,)],
                "growth in a table")

# The summary of a run names the rank that needs most, not the one that read the card last.
result = run("run", "-o", tmp / "job", "--", sys.executable, "-B", __file__, sys.argv[1], tmp / "job")
check("rank 1, cuda:0: peak of 400.0 MiB" in result.stderr, result.stderr)

# Clocks are aligned by collectives where there are any.
RANKS = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces" / "ranks"
for name, aligned in (("guilty4", False), ("ddp2", True)):
    result = status(0, "merge", RANKS / name, "-o", tmp / f"{name}.tmk")
    check_equal("aligned by collectives" in result.stdout, aligned, f"{name}: {result.stdout}")

# What --json leaves out is counted.
many = {"segments": [], "allocator_settings": {}, "external_annotations": [], "device_traces": [[
    {"action": action, "addr": (1 << 40) + line * 32 * MiB, "size": 2 * MiB, "stream": 0,
     "time_us": 1000 + line, "frames": [{"name": "f", "filename": "x.py", "line": line}]}
    for line in range(1, 131) for action in ("segment_alloc", "alloc")]]}
snapshot = tmp / "many.pickle"
snapshot.write_bytes(pickle.dumps(many, protocol=4))
device = device_of(snapshot)
check_equal((len(device["by_stack"]), device["by_stack_left_out"]), (100, 30), "stacks left out")
device = device_of(snapshot, "--stacks", "500")
check_equal((len(device["by_stack"]), device["by_stack_left_out"]), (130, 0), "none left out")

# A snapshot has no driver peak: only what both runs have is compared.
result = status(2, "check", later, "--baseline", snapshot, "--allow-oom")
check("cannot be compared" in result.stderr, result.stderr)
result = status(2, "check", snapshot, "--baseline", falls)
check("cannot be compared" in result.stderr, result.stderr)
trace = TraceFile()
begin(trace)
trace.table(1, "FrameworkEvents", [
    {"time_ns": START + i, "action": action, "address": 1 << 40, "size_bytes": 20 * MiB,
     "block_bytes": 20 * MiB} for i, action in enumerate((4, 1))])
driver(trace, (0, ALLOCATE, 16, 20, "torch"), (1, ALLOCATE, 9, 900, "nccl"))
both = trace.save(tmp / "both.tmk")
result = status(0, "check", both, "--baseline", snapshot)
check("reserved peak of cuda:0 20.0 MiB, baseline reserved peak of cuda:0 260.0 MiB"
      in result.stdout, result.stdout)
check("driver peak of cuda:0 920.0 MiB, baseline driver peak"
      in status(0, "check", both, "--baseline", both).stdout, "driver peaks are compared")
peaks = {p["name"]: p for p in json.loads(run("diff", snapshot, both, "--json").stdout)["devices"][0]
         ["peaks"]}
check_equal([peaks["driver peak"][key] for key in ("before_bytes", "after_bytes", "change_bytes")],
            [None, 920 * MiB, None], "a peak that one side has not recorded")
check_equal(peaks["reserved peak"]["change_bytes"], (20 - 260) * MiB, "one that both have")
text = run("diff", snapshot, both).stdout
check("not recorded ->  920.0 MiB  driver peak" in text, text)

# `tidemark snapshot` records a state, also without PyTorch: it has no peak, and lacks nothing that
# it was not asked for.
trace = TraceFile()
begin(trace)
trace.table(1, "Settings", [{"key": trace.string(1, "history"), "value": trace.string(1, "none"),
                             "scope": 3}])
trace.table(1, "Counters", [{"time_ns": START + 1, "kind": 1, "value": 968 * MiB}])
trace.table(1, "Health", [{"time_ns": START, "kind": SOURCE_DISABLED, "detail": trace.string(1, text)}
                          for text in ("cupti: TIDEMARK_CUPTI=0", "nccl: TIDEMARK_NCCL=0")])
state = trace.save(tmp / "state.tmk")
check_equal(device_of(state)["state_only"], True, "a state")
text = run("report", state).stdout
check("peak" not in text and "TIDEMARK_" not in text and "968.0 MiB" in text, text)

# With the backend cudaMallocAsync, what the driver's pool keeps is needed, too.
trace = TraceFile()
begin(trace)
pool = {"kind": 6, "operation": ALLOCATE, "pool": 3, "owner": trace.string(1, "torch")}
trace.table(1, "DriverEvents", [
    dict(pool, time_ns=START + 1, address=1 << 36, size_bytes=64 * MiB),
    {"time_ns": START + 2, "address": 2 << 36, "size_bytes": 100 * MiB, "kind": DEVICE_MEMORY,
     "operation": ALLOCATE, "owner": trace.string(1, "cublas")}])
trace.table(1, "Counters", [{"time_ns": START + at, "kind": kind, "value": size * MiB, "subject": 3}
                            for at, kind, size in ((1, POOL_RESERVED, 96), (1, POOL_USED, 64),
                                                   (3, POOL_RESERVED_HIGH, 96),
                                                   (3, POOL_USED_HIGH, 64))])
pools = trace.save(tmp / "pools.tmk")
text = run("report", pools).stdout
check("164.0 MiB" in text and "without 32.0 MiB that the pool keeps" in text, text)
check("64.0 MiB allocated, 96.0 MiB reserved" in text, text)
status(0, "check", pools, "--max-peak", "196MiB")
status(1, "check", pools, "--max-peak", "195MiB")
for target in ("perfetto", "sqlite", "snapshot"):
    result = status(0, "export", pools, "--format", target, "-o", tmp / f"pools.{target}")
    check("only the reserved peak includes that" in result.stderr, f"{target}: {result.stderr}")

# Two devices with a loop each, annotated on its own device.
def frames(line):
    return [{"filename": "/home/u/train.py", "line": line, "name": "step"}]


loops = {"segments": [], "device_traces": [[], []], "allocator_settings": {}, "external_annotations": []}
for device, count in ((0, 10), (1, 7)):
    for k in range(count):
        time_us = 1000 * k + 600 * device
        for action in ("alloc", "free_requested", "free_completed"):
            loops["device_traces"][device].append({"action": action, "addr": 1 << 30, "size": 4 * MiB, "stream": 0,
                                                   "time_us": time_us, "frames": frames(7)})
        loops["external_annotations"] += [{"device": device, "name": "Optimizer.step#SGD.step", "stage": stage,
                                           "time_us": time_us + 10} for stage in ("START", "END")]
(tmp / "loops.pickle").write_bytes(pickle.dumps(loops))
check_equal([d["steps"]["count"] for d in report(tmp / "loops.pickle")["ranks"][0]["devices"]], [10, 7],
            "each device has the steps of its own loop")

finish()
