"""Checks that reports on recorded snapshots equal torch's own statistics, to the byte.

    python3 snapshot_truth.py TIDEMARK
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report  # noqa: E402

PEAKS = {"allocated_peak": "allocated_bytes.all.peak",
         "requested_peak": "requested_bytes.all.peak",
         "reserved_peak": "reserved_bytes.all.peak"}
# Its history lost its beginning, and the peak with it; the rest is still checked.
OVERFLOWED = {"ring"}
LATE = {"late", "ring"}

for truth_file in sorted(SNAPSHOTS.glob("*.truth.json")):
    case = truth_file.name.removesuffix(".truth.json")
    truth = json.loads(truth_file.read_text())
    stats = truth["stats"]
    whole = report(SNAPSHOTS / f"{case}.pickle.gz", "--stacks", "100000")
    device = whole["ranks"][0]["devices"][0]
    end = report(SNAPSHOTS / f"{case}.pickle.gz", "--at", "end")["ranks"][0]["devices"][0]
    ledger = {line["owner"]: line["bytes"] for line in end["ledger_at_peak"]}

    check_equal(whole["source"]["events"], truth["entries"], f"{case}: events")
    check_equal(device["contradicting_events"], 0, f"{case}: contradicting events")
    check_equal(device["blocks_before_history"] > 0, case in LATE, f"{case}: history began late")
    check_equal(device["oom_count"], stats["num_ooms"], f"{case}: out-of-memory errors")
    check_equal(ledger["torch.allocated"], stats["allocated_bytes.all.current"],
                f"{case}: allocated at the end")
    check_equal(sum(ledger.values()), stats["reserved_bytes.all.current"],
                f"{case}: reserved at the end")
    check_equal(ledger["torch.cached"],
                stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"],
                f"{case}: cached at the end")
    check_equal(sum(s["bytes"] for s in device["by_stack"]), device["allocated_peak"]["bytes"],
                f"{case}: the stacks' shares of the peak")
    for ours, theirs in PEAKS.items():
        if case in OVERFLOWED and ours != "reserved_peak":
            check(device[ours]["bytes"] <= stats[theirs], f"{case}: {ours} above torch's")
        else:
            check_equal(device[ours]["bytes"], stats[theirs], f"{case}: {ours}")
    if case not in OVERFLOWED:
        check_equal(device["allocated_peak"]["bytes"], truth["max_memory_allocated"],
                    f"{case}: max_memory_allocated()")

finish()
