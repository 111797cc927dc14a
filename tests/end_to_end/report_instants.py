"""Checks reports on an instant other than the peak: `--at oom` and `--at TIME`.

    python3 report_instants.py TIDEMARK

A job is described if one of its devices has the instant; the others say that they have none.
"""
import pathlib
import pickle
import shutil
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
    check(status == 0 or "the recording is 2.000 s long" in result.stderr, result.stderr)

shutil.rmtree(tmp)
finish()
