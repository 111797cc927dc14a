"""Checks jobs of several ranks, recorded on a real GPU with real NCCL: which rank failed, and why.

    python3 rank_traces.py TIDEMARK

The traces are in samples/traces/ranks.
"""
import csv
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402
from trace_file import TraceFile  # noqa: E402

TRACES = pathlib.Path(__file__).resolve().parent.parent.parent / "samples" / "traces" / "ranks"


def nccl_bytes_by_rank(job):
    """The peak of the driver's allocations for NCCL, computed from the rows."""
    with tempfile.TemporaryDirectory() as folder:
        check_equal(run("export", job, "--format", "csv", "-o", folder).returncode, 0, "export")
        rows = list(csv.DictReader((pathlib.Path(folder) / "driver_events.csv").read_text()
                                   .splitlines()))
        ranks = {row["rank_id"]: int(row["rank"]) for row in csv.DictReader(
            (pathlib.Path(folder) / "ranks.csv").read_text().splitlines())}
    live, now, peak = {}, {}, {}
    for row in sorted(rows, key=lambda r: int(r["time_ns"])):
        rank = ranks[row["rank_id"]]
        key = (rank, row["handle"] if row["kind"] == "virtual" else row["address"])
        if row["operation"] in ("create", "allocate") and row["owner"] == "nccl" and \
                row["kind"] in ("virtual", "device") and row["result"] in ("0", ""):
            live[key] = int(row["size_bytes"])
            now[rank] = now.get(rank, 0) + live[key]
            peak[rank] = max(peak.get(rank, 0), now[rank])
        elif row["operation"] in ("release", "free") and key in live:
            now[rank] -= live.pop(key)
    return peak


for name in ("ddp2", "ddp4"):
    truth = json.loads((TRACES / f"{name}.truth.json").read_text())
    answer = report(TRACES / name)
    for rank in answer["ranks"]:
        if rank["rank"] < 0:
            continue
        for peak, wanted in truth[str(rank["rank"])].items():
            check_equal(rank["devices"][0][peak]["bytes"], wanted, f"{name}: rank {rank['rank']}, {peak}")
    alarms = [f["id"] for f in answer["findings"] if f["severity"] != "info"]
    check_equal(alarms, [], f"{name}: nothing is wrong")
    check_equal(answer["rank_comparison"]["waiting"], [], f"{name}: nobody waits")

job = TRACES / "guilty4"
answer = report(job)
imbalance = [f for f in answer["findings"] if f["id"] == "rank_imbalance"]
check_equal([f["rank"] for f in imbalance], [2], "the guilty rank is named")
capacity, = (f for f in answer["findings"] if f["id"] == "capacity")
check_equal([advice["action"] for advice in capacity["advice"]], ["stop_growth"],
            "sharding only delays the error of what grows")
text = run("report", job).stdout
check("\n  rank 2 needs " in text and "\n  rank 2: memory grows " in text, text)
text = run("check", job).stdout
check("FAILED rank_imbalance: rank 2 needs " in text and "FAILED creep on rank 2: " in text, text)
comparison = answer["rank_comparison"]
check_equal(comparison["highest"]["rank"], 2, "it has the highest peak")
check_equal(comparison["diverged"]["rank"], 2, "it left the others")
check(comparison["stacks"][0]["frames"][0].startswith("keep_for_later train_ddp.py:"),
      "the line that holds the memory")
waiting, = comparison["waiting"]
check_equal(waiting["function"], "AllReduce", "the collective that the others wait in")
check_equal((waiting["ranks"], waiting["absent"]), ([0, 1, 3], [2]), "who waits for whom")
check_equal({n["rank"]: n["peak_bytes"] for n in comparison["nccl"]}, nccl_bytes_by_rank(job),
            "NCCL's bytes are the driver's allocations for it")


def write_process(path, rank, host, start):
    """50 collectives in 50 ms of a rank; 64 MiB, a second later 1 GiB."""
    trace = TraceFile()
    trace.table(1, "Processes", [{"rank": rank, "local_rank": 0 if rank >= 0 else -1, "pid": 7 + rank,
                                  "world_size": 2 if rank >= 0 else 0, "source": 1,
                                  "host": trace.string(1, host), "start_ns": start}])
    trace.table(1, "FrameworkEvents", [
        {"time_ns": start + at * 10**9, "action": action, "address": (1 + at) << 40,
         "size_bytes": size << 20, "block_bytes": size << 20}
        for at, size in ((0, 64), (1, 1024)) for action in (4, 1)])
    if rank >= 0:
        function = trace.string(1, "AllReduce")
        trace.table(1, "NcclOperations", [
            {"start_ns": start + i * 10**6, "gpu_start_ns": start + i * 10**6,
             "gpu_duration_ns": 10**5, "communicator": 7, "sequence": i, "count": 1,
             "size_bytes": 4, "function": function, "kind": 1, "group": i + 1} for i in range(50)])
    trace.save(path)


# The clock of host b is an hour ahead; a process on it without a rank has the same clock.
with tempfile.TemporaryDirectory() as folder:
    for number, (rank, host, ahead) in enumerate(((0, "a", 0), (1, "b", 3600), (-1, "b", 3600))):
        write_process(f"{folder}/{number}.tmk", rank, host, (1_700_000_000 + ahead) * 10**9)
    text = run("report", folder).stdout
    check("clocks agree within" in text and "60 min" not in text, text)
    check_equal(len(re.findall(r"allocated peak .* at \+1.000 s", text)), 3, "times on one clock")
finish()
