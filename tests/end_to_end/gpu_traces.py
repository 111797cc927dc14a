"""Checks traces recorded on a real GPU against what the recorded programs printed, to the byte.

    python3 gpu_traces.py TIDEMARK

The programs are in samples/cuda and samples/gpu, the traces in samples/traces.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402

TRACES = pathlib.Path(__file__).resolve().parent.parent.parent / "samples" / "traces"
KINDS = ("device", "pitched", "managed", "pinned", "array", "stream_ordered", "virtual", "graph")


def expected(sample):
    return json.loads((TRACES / f"{sample}.expected.json").read_text())


def only_device(sample):
    ranks = report(TRACES / sample)["ranks"]
    owners = [r for r in ranks if r["devices"] and r["devices"][0]["driver_peak"]["bytes"]]
    check_equal(len(owners), 1, f"{sample}: processes that hold memory")
    return owners[0]["devices"][0]


def adds_up(sample, device):
    used = device["ledger_device_used_bytes"]
    check(used > 0, f"{sample}: NVML was sampled")
    check_equal(sum(line["bytes"] for line in device["ledger_at_peak"]), used,
                f"{sample}: the ledger adds up to what NVML says")


device = only_device("all_kinds")
wanted = expected("all_kinds")["devices"][0]["expected_peak"]
for kind in KINDS:
    check_equal(device["driver_peak_by_kind"].get(kind, 0), wanted[kind], f"all_kinds: {kind}")
adds_up("all_kinds", device)

device = only_device("leak")
at_end = report(TRACES / "leak", "--at", "end")["ranks"][0]["devices"][0]
program = [line["bytes"] for line in at_end["ledger_at_peak"] if line["owner"] == "program"]
check_equal(program, [expected("leak")["leaked_bytes"]], "leak: what is left at the end")

creep = [f for f in report(TRACES / "leak")["findings"] if f["id"] == "creep"]
check_equal([f["evidence"]["growth_bytes_per_step"] for f in creep],
            [expected("leak")["bytes_per_iteration"]], "leak: what is kept after every iteration")

device = only_device("pool_holes")
check_equal(device["driver_peak"]["bytes"], expected("pool_holes")["reserved_bytes"],
            "pool_holes: bytes taken from the driver")

device = only_device("run_out")
check_equal([oom["requested_bytes"] for oom in device["oom"]], expected("run_out")["failed_bytes"],
            "run_out: every failed request with its size, in order")
check_equal(device["driver_peak"]["bytes"], expected("run_out")["taken_bytes"], "run_out: taken")
check("OUT OF MEMORY" in run("report", TRACES / "run_out").stdout, "run_out: the report says so")

device = only_device("train")
truth = json.loads((TRACES / "train.truth.json").read_text())["stats"]
ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
check_equal(ledger["torch"], truth["reserved_bytes.all.peak"], "train: torch's segments")
adds_up("train", device)
check(ledger["unexplained"] < 64 << 20, f"train: unexplained is {ledger['unexplained']} bytes")

finish()
