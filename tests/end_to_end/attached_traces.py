"""Checks captures started in a running PyTorch job on a real GPU (samples/torch/attach.py).

    python3 attached_traces.py TIDEMARK

Their totals at the start and at the end equal torch's own, to the byte, and their ledger adds up.
"""
import csv
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402

TRACES = pathlib.Path(__file__).resolve().parent.parent.parent / "samples" / "traces" / "attach"
TRUTH = json.loads((TRACES / "truth.json").read_text())


def events(trace):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "csv"
        result = run("export", trace, "--format", "csv", "--events", "-o", out)
        check_equal(result.returncode, 0, f"{trace.name}: exported")
        with open(out / "events.csv", encoding="utf-8") as file:
            return list(csv.DictReader(file))


for name, truth in TRUTH.items():
    rows = events(TRACES / f"{name}.tmk")
    first = [row for row in rows if row["time_ns"] == rows[0]["time_ns"]][-1]
    for when, row in (("begin", first), ("end", rows[-1])):
        for what, wanted in truth[when].items():
            check_equal(int(row[f"{what}_bytes"]), wanted, f"{name}, {when}: {what}")
    device = report(TRACES / f"{name}.tmk")["ranks"][0]["devices"][0]
    ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
    check_equal(sum(ledger.values()), device["ledger_device_used_bytes"], f"{name}: the ledger's sum")
    check(ledger.get("pre_attach", 0) > 0, f"{name}: memory from before the capture has a line")
    check_equal(ledger["unexplained"], 0, f"{name}: unexplained")
    check_equal(device["contradicting_events"], 0, f"{name}: events that contradict the state")
    check_equal([p["phase"] for p in device["phases"] if p["phase"] == "first_step"], [],
                f"{name}: the first step was long ago")
    at_once = device["fragmentation"]["cached_free_bytes"]
    check(at_once < device["reserved_peak"]["bytes"],
          f"{name}: what was reserved before was not all free")

finish()
