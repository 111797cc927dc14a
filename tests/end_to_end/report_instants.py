"""Checks reports on an instant other than the peak: `--at oom` and `--at TIME`.

    python3 report_instants.py TIDEMARK

A job is described if one of its devices has the instant; the others say that they have none.
"""
import pathlib
import pickle
import re
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402

MiB = 1 << 20
RECORDED = pathlib.Path(__file__).resolve().parents[2] / "samples" / "traces"
tmp = pathlib.Path(tempfile.mkdtemp())

# Two ranks, one of which ran out of memory.
job = tmp / "job"
job.mkdir()
shutil.copy(SNAPSHOTS / "default.pickle.gz", job / "snapshot_rank0.pickle.gz")
shutil.copy(SNAPSHOTS / "oom_fraction.pickle.gz", job / "snapshot_rank1.pickle.gz")
healthy, failed = (rank["devices"][0] for rank in report(job, "--at", "oom")["ranks"])
check_equal(failed["at_note"], "", "the failed rank is described at its error")
check_equal(failed["ledger_at_peak"][0]["bytes"], failed["oom"][-1]["allocated_bytes"],
            "with what was allocated then")
check("no out-of-memory error was recorded" in healthy["at_note"], "the other one says that it has none")
check_equal(healthy["at_ns"], healthy["allocated_peak"]["time_ns"], "and is described at its peak")
alone = report(job, "--at", "oom", "--rank", 0)["ranks"][0]["devices"][0]
check_equal((alone["at_note"], alone["at_ns"]), (healthy["at_note"], healthy["at_ns"]), "alone, too")
text = run("report", job, "--at", "oom").stdout
check("no out-of-memory error was recorded on this device; at its peak" in text, "the text says so, too")
page = tmp / "page.html"
run("report", job, "--at", "oom", "--html", page)
check("no out-of-memory error was recorded on this device; at its peak" in page.read_text(), "and the page")

# Nobody ran out of memory: with PyTorch and without.
for path in (SNAPSHOTS / "default.pickle.gz", RECORDED / "leak", RECORDED / "ranks" / "ddp2"):
    result = run("report", path, "--at", "oom")
    check_equal((result.returncode, result.stdout), (2, ""), f"{path.name} --at oom")
    check("no out-of-memory error was recorded" in result.stderr, f"{path.name}: {result.stderr!r}")
check_equal(report(RECORDED / "run_out", "--at", "oom")["ranks"][0]["devices"][0]["at_note"], "",
            "an error of the driver")


def event(action, address, size, time_us):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us,
            "frames": []}


# Two devices of one process, of which the first one ran out: the other is described at that time.
error = {**event("oom", 0, 64 * MiB, 500), "device_free": 0}
both = tmp / "both.pickle"
both.write_bytes(pickle.dumps({
    "segments": [], "allocator_settings": {}, "external_annotations": [],
    "device_traces": [
        [event("segment_alloc", 1 << 40, 20 * MiB, 0), event("alloc", 1 << 40, 2 * MiB, 10), error],
        [event("segment_alloc", 2 << 40, 20 * MiB, 0), event("alloc", 2 << 40, 8 * MiB, 20),
         event("free_requested", 2 << 40, 8 * MiB, 30), event("free_completed", 2 << 40, 8 * MiB, 31),
         event("alloc", 2 << 40, 3 * MiB, 40)]]}))
failed, healthy = report(both, "--at", "oom")["ranks"][0]["devices"]
check("at the time of the job's last one" in healthy["at_note"], f"which is said: {healthy['at_note']}")
check_equal((healthy["at_ns"], healthy["ledger_at_peak"][0]["bytes"]),
            (failed["oom"][0]["time_ns"], 3 * MiB), "with what it held at that time")

# Two devices, of which the second one begins a second later.
A, B = 0x7F0000000000, 0x7F1000000000
two = tmp / "two.pickle"
two.write_bytes(pickle.dumps({
    "segments": [], "allocator_settings": {}, "external_annotations": [],
    "device_traces": [
        [event("segment_alloc", A, 20 * MiB, 0), event("alloc", A, 2 * MiB, 10),
         event("alloc", A + 2 * MiB, 4 * MiB, 2_000_000)],
        [event("segment_alloc", B, 20 * MiB, 1_000_000), event("alloc", B, 8 * MiB, 1_000_010)]]}))
whole = report(two, "--at", "500ms")
first, second = whole["ranks"][0]["devices"]
check_equal((first["at_note"], first["by_stack"][0]["bytes"]), ("", 2 * MiB), "the first device")
check_equal((second["at_note"], second["by_stack"]), ("", []), "the second one has nothing yet")
later = report(two, "--at", "1500ms")["ranks"][0]["devices"][1]
check_equal((later["at_note"], later["by_stack"][0]["bytes"]), ("", 8 * MiB), "later it has")

# Any time is valid, also long after the last event of a device; the answer is of that time.
for device in report(two, "--at", "1900ms")["ranks"][0]["devices"]:
    check_equal(device["at_ns"] - whole["source"]["start_ns"], 1_900_000_000, "the instant")
    check_equal(device["ledger_time_ns"], device["at_ns"], "of the ledger, too")
check("Live at +1.900 s" in run("report", two, "--at", "1900ms").stdout, "and in the heading")
for time, status in (("2s", 0), ("end", 0), ("2001ms", 2), ("1h", 2)):
    result = run("report", two, "--at", time)
    check_equal(result.returncode, status, f"--at {time}")
    check(status == 0 or "the trace ends at 2.000 s" in result.stderr, result.stderr)

# The history of the second device begins with a free, after that of the first one: until then it
# holds what is older than its history, and an export of that part agrees.
segment = {"device": 1, "address": B, "total_size": 20 * MiB, "allocated_size": 0, "active_size": 0,
           "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
           "is_expandable": False, "frames": [],
           "blocks": [{"address": B, "size": 20 * MiB, "requested_size": 0, "state": "inactive",
                       "frames": []}]}
late = tmp / "late.pickle"
late.write_bytes(pickle.dumps({
    "segments": [segment], "allocator_settings": {}, "external_annotations": [],
    "device_traces": [
        [event("segment_alloc", A, 20 * MiB, 0), event("alloc", A, 2 * MiB, 10)],
        [event("free_requested", B, 8 * MiB, 1_000_000),
         event("free_completed", B, 8 * MiB, 1_000_000),
         event("alloc", B, 4 * MiB, 1_000_000)]]}))
for time, allocated in (("0", 8), ("999ms", 8), ("1s", 4)):
    device = report(late, "--at", time)["ranks"][0]["devices"][1]
    check_equal(device["at_totals"]["allocated_bytes"], allocated * MiB, f"the late device at {time}")
    if time == "1s":
        check_equal(device["at_note"], "", "the state is known from the first event on")
    else:
        check("the history of this device begins at +1.000 s" in device["at_note"], device["at_note"])

# Annotations may be older than what the ring kept of the history.
ring = pickle.loads(late.read_bytes())
ring["device_traces"] = [[], ring["device_traces"][1]]
ring["external_annotations"] = [{"stage": "START", "name": "epoch", "device": 0, "time_us": 0}]
annotated = tmp / "annotated.pickle"
annotated.write_bytes(pickle.dumps(ring))
text = run("report", annotated, "--at", "1ms").stdout
check("3 memory events over 0 ns" in text, text)
check("the history of this device begins at +1.000 s" in text, text)

# A device on which nothing happened has no instant of its own.
idle = tmp / "idle.pickle"
idle.write_bytes(pickle.dumps({
    "segments": [], "allocator_settings": {}, "external_annotations": [],
    "device_traces": [[{**event("snapshot", 0, 0, 1_700_000_000_000_000)}],
                      [event("segment_alloc", B, 20 * MiB, 1_700_000_000_000_000),
                       event("alloc", B, 8 * MiB, 1_700_000_001_000_000)]]}))
text = run("report", idle).stdout
check("at -" not in text, text)
part = tmp / "part.db"
run("export", late, "--format", "sqlite", "--time", "..500ms", "--events", "-o", part)
base = sqlite3.connect(part)
check_equal(base.execute("SELECT allocated_peak_bytes FROM devices WHERE device = 1").fetchone(),
            (8 * MiB,), "the export of the part before")
check_equal(base.execute("SELECT sum(block_bytes) FROM allocations WHERE device = 1").fetchone(),
            (8 * MiB,), "and its allocations")
check_equal(base.execute("SELECT count(*) FROM events WHERE device = 1").fetchone(), (0,),
            "has no event of that device")
base.close()

# A process that was not there at the instant says so, and no context is invented for it.
for rank in report(RECORDED / "ranks" / "guilty4", "--at", "1s")["ranks"]:
    for device in rank["devices"]:
        check("was recorded from" in device["at_note"], f"rank {rank['rank']}: {device['at_note']}")
        owners = [line["owner"] for line in device["ledger_at_peak"]]
        check(not {"context", "other_processes"} & set(owners), f"rank {rank['rank']}: {owners}")

# Two equal ranks on one card: what one of them says of the other is what NVML listed, 1,410 MiB.
for rank in report(RECORDED / "ranks" / "ddp2")["ranks"]:
    for device in rank["devices"]:
        held = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        check(abs(held["other_processes"] - 1410 * MiB) < 32 * MiB,
              f"rank {rank['rank']}: {held['other_processes'] / MiB:.0f} MiB of others")

# NCCL may hold most of the card while PyTorch holds little.
many = RECORDED.parents[1] / "tests" / "data" / "scenarios" / "many_communicators.bad"
device, = report(many)["ranks"][0]["devices"]
fuller = device["ledger_at_driver_peak"]
held = {line["owner"]: line["bytes"] for line in fuller["lines"]}
check_equal(fuller["time_ns"], device["driver_peak"]["time_ns"], "the ledger at the driver's peak")
check(held["nccl"] > 2900 * MiB, f"NCCL holds {held['nccl']} at the driver's peak")
check_equal(sum(held.values()), fuller["device_used_bytes"], "the sum of that ledger")
check("nccl" not in {line["owner"] for line in device["ledger_at_peak"]}, "and nothing at PyTorch's")
run("export", many, "--format", "sqlite", "-o", tmp / "many.db")
base = sqlite3.connect(tmp / "many.db")
rows = base.execute("SELECT owner, bytes FROM ledger WHERE moment = 'driver_peak'").fetchall()
check_equal(dict(rows), held, "the exported ledger at the driver's peak")
base.close()
text = run("report", many).stdout
check("  nccl\n" in text.partition(", the driver's peak: ")[2], text)
at_time = report(many, "--at", "353ms")["ranks"][0]["devices"][0]
check_equal(at_time["ledger_at_driver_peak"], None, "not beside an instant that was asked for")

# The card was read before the process filled it; what it held is known all the same.
device, = report(RECORDED / "run_out")["ranks"][0]["devices"]
check(device["highest_card_reading_bytes"] < device["driver_peak"]["bytes"], "readings missed the peak")
check_equal(device["device_used_peak"], device["driver_peak"], "the card used at least that")
text = run("report", RECORDED / "run_out").stdout
check("at least: held by this process; highest reading 526.8 MiB" in text, text)

# Where holes are described at another instant than the lists, it does not read the same.
for path in (*SNAPSHOTS.glob("*.pickle.gz"), *(RECORDED / "torch").glob("*.tmk"),
             RECORDED / "ranks" / "ddp4"):
    text = run("report", path).stdout
    blocks = re.split(r"\n(?=(?:rank \d+  )?cuda:\d)", text)[1:]
    devices = [d for r in report(path)["ranks"] for d in r["devices"]]
    for block, device in zip(blocks, devices):
        holes = re.search(r"cached, free .* at (\S+ \S+) ", block)
        lists = re.search(r"Live at (.*?): ", block)
        if holes and lists and holes.group(1) == lists.group(1):
            check_equal(device["fragmentation"]["time_ns"], device["at_ns"],
                        f"{path.name}: holes and lists at {holes.group(1)}")
            cached = {l["owner"]: l["bytes"] for l in device["ledger_at_peak"]}["torch.cached"]
            check_equal(device["fragmentation"]["cached_free_bytes"], cached, f"{path.name}: cached")

shutil.rmtree(tmp)
finish()
