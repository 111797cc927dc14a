"""Checks what a snapshot's devices held before their histories began.

The state before the history is derived from the state at the end. Each case here once gave a wrong
answer: a mapping that was unmapped in parts, a device that ends empty, devices whose histories
begin at different times.

    python3 snapshot_beginnings.py TIDEMARK
"""
import csv
import json
import pathlib
import pickle
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402

MiB = 1 << 20
A, B, C = 0x7F0000000000, 0x7F1000000000, 0x7F1010000000
FRAMES = [{"name": "f", "filename": "train.py", "line": 1}]
tmp = pathlib.Path(tempfile.mkdtemp())


def event(action, address, size, time_us):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us,
            "frames": FRAMES}


def block(address, size, state):
    return {"address": address, "size": size, "requested_size": size if "active" in state else 0,
            "state": state, "frames": FRAMES}


def segment(device, address, size, blocks, expandable=False):
    return {"device": device, "address": address, "total_size": size, "allocated_size": 0,
            "active_size": 0, "requested_size": 0, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": [],
            "blocks": blocks}


def saved(name, segments, *traces):
    path = tmp / f"{name}.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": list(traces),
                                   "allocator_settings": {}, "external_annotations": []}))
    return path


def devices(path, *args):
    return {d["device"]: d for d in report(path, *args)["ranks"][0]["devices"]}


# Recorded on an H200: torch's own statistics say 104,857,600 for both.
device = devices(SNAPSHOTS / "partly_unmapped.pickle.gz")[0]
check_equal(device["reserved_peak"]["bytes"], 104857600, "partly unmapped: reserved")
check_equal(device["allocated_peak"]["bytes"], 104857600, "partly unmapped: allocated")
check_equal(run("check", SNAPSHOTS / "partly_unmapped.pickle.gz", "--max-peak", "110MiB").returncode,
            0, "partly unmapped: check")
# All of it was in use at the peak: no settings need less.
device, = json.loads(run("whatif", SNAPSHOTS / "partly_unmapped.pickle.gz", "--all", "--json").stdout)[
    "devices"]
check_equal(device["recorded"]["reserved_peak_bytes"], 104857600, "partly unmapped: whatif")
check(device["replay"]["exact"], "partly unmapped: replay")
check(len(device["predictions"]) > 5, "partly unmapped: predictions")
for prediction in device["predictions"]:
    check(prediction["saves_bytes"] <= 0 and prediction["reserved_peak_bytes"] >= 104857600,
          f"partly unmapped: {prediction}")

# One mapping, unmapped in two parts, the later one first.
parts = saved("parts", [segment(0, A, 20 * MiB, [block(A, 20 * MiB, "inactive")], True)], [
    event("segment_map", A, 100 * MiB, 10), event("alloc", A, 100 * MiB, 11),
    event("free_requested", A, 100 * MiB, 12), event("free_completed", A, 100 * MiB, 13),
    event("segment_unmap", A + 60 * MiB, 40 * MiB, 14),
    event("segment_unmap", A + 20 * MiB, 40 * MiB, 15)])
check_equal(devices(parts)[0]["reserved_peak"]["bytes"], 100 * MiB, "two parts: reserved")

# A block from before the history spans what was unmapped later and what is still mapped.
spans = saved("spans", [segment(0, A, 20 * MiB, [block(A, 10 * MiB, "active_allocated"),
                                                 block(A + 10 * MiB, 10 * MiB, "inactive")], True)],
              [event("free_requested", A, 50 * MiB, 10), event("free_completed", A, 50 * MiB, 11),
               event("alloc", A, 10 * MiB, 20), event("segment_unmap", A + 40 * MiB, 20 * MiB, 30),
               event("segment_unmap", A + 20 * MiB, 20 * MiB, 31)])
device = devices(spans)[0]
check_equal(device["allocated_peak"]["bytes"], 50 * MiB, "a block across ranges: allocated")
check_equal(device["reserved_peak"]["bytes"], 60 * MiB, "a block across ranges: reserved")

# What the whole run needed is known of a history from the start only.
for path, known in ((spans, False), (SNAPSHOTS / "default.pickle.gz", True)):
    tables = tmp / f"tables {known}"
    check_equal(run("export", path, "--format", "csv", "-o", tables).returncode, 0, f"export {path}")
    with open(tables / "devices.csv", newline="") as file:
        row = next(csv.DictReader(file))
    for peak in ("allocated", "reserved"):
        check_equal(row[f"run_{peak}_peak_bytes"], row[f"{peak}_peak_bytes"] if known else "",
                    f"{path}: of the whole run")

# Everything was freed at the end: the device had 20 MiB before the first event.
frees = [event("free_requested", A, 10 * MiB, 1000), event("free_completed", A, 10 * MiB, 1001),
         event("segment_free", A, 20 * MiB, 1002)]
device = devices(saved("gone", [], frees))[0]
check_equal(device["reserved_peak"]["bytes"], 20 * MiB, "ends empty: reserved")
check_equal(device["allocated_peak"]["bytes"], 10 * MiB, "ends empty: allocated")
check_equal(device["contradicting_events"], 0, "ends empty: contradicting events")
other = [segment(1, B, 2 * MiB, [block(B, 2 * MiB, "active_allocated")])]
device = devices(saved("gone2", other, frees, [event("alloc", B, 2 * MiB, 2000)]))[0]
check_equal(device["reserved_peak"]["bytes"], 20 * MiB, "ends empty beside another: reserved")

# A history that began late may have missed the peak, also if no block was alive then.
LATE = "the peaks are of the recorded part only: those of the whole run may be higher"
late = [event("alloc", A, 2 * MiB, 10), event("free_requested", A, 2 * MiB, 11),
        event("free_completed", A, 2 * MiB, 12)]
whole = [event("segment_alloc", A, 20 * MiB, 9), *late]
held = block(A + 2 * MiB, 2 * MiB, "active_allocated")
unused = segment(0, A, 20 * MiB, [block(A, 20 * MiB, "inactive")])
for name, end, trace, is_late in (
        ("whole", [unused], whole, False),
        ("empty_segment", [unused], late, True),
        ("used_segment", [segment(0, A, 20 * MiB, [held])], late, True),
        ("ends_empty", [], frees, True)):
    path = saved(f"late_{name}", end, trace)
    text = run("report", path).stdout
    check_equal(text.count(LATE), int(is_late), f"{name}: said once: {text}")
    check_equal("allocated peak" in text and ", in the recorded part" in text, is_late, name)
    check_equal(devices(path)[0]["began_late"], is_late, f"{name}: in JSON")
    check_equal(any(LATE in line for line in report(path)["losses"]), is_late, f"{name}: losses")
state = run("report", saved("state_only", [segment(0, A, 20 * MiB, [held])], [])).stdout
check(LATE not in state and "only its state" in state, f"no history: {state}")

# Device 0's ring overflowed, so that its history begins 99 s after that of device 1.
first = [e for i in range(100) for e in (
    event("alloc", A, 2 * MiB, 100_000_000 + 10 * i),
    event("free_requested", A, 2 * MiB, 100_000_001 + 10 * i),
    event("free_completed", A, 2 * MiB, 100_000_002 + 10 * i))]
second = [event("segment_alloc", C, 20 * MiB, 1_000_000)]
for i in range(1, 21):
    size = (7 if i == 11 else 2) * MiB
    second += [event("alloc", C, size, 1_000_000 * (1 + i)),
               event("free_requested", C, size, 1_000_000 * (1 + i) + 500_000),
               event("free_completed", C, size, 1_000_000 * (1 + i) + 500_000)]
both = saved("both", [segment(0, A, 20 * MiB, [block(A, 20 * MiB, "inactive")]),
                      segment(1, B, 20 * MiB, [block(B, 20 * MiB, "active_allocated")]),
                      segment(1, C, 20 * MiB, [block(C, 20 * MiB, "inactive")])], first, second)
peak = devices(both)[1]["allocated_peak"]
check_equal(peak["bytes"], 27 * MiB, "two devices: allocated")
check_equal(peak["time_ns"], 12_000_000_000, "two devices: time of the peak")
check_equal(devices(both)[1]["reserved_peak"]["bytes"], 40 * MiB, "two devices: reserved")

# A note on holes compares numbers of one instant: 750 of 1400 MiB are in use when the most is
# reserved (for 650 MiB). That 1000 MiB are in use later is said as well.
holes = []
for action, address, size in (
        ("segment_alloc", A, 700), ("alloc", A, 700), ("free_requested", A, 700),
        ("free_completed", A, 700), ("alloc", A, 100), ("segment_alloc", B, 700),
        ("alloc", B, 650), ("alloc", A + 100 * MiB, 250)):
    holes.append(event(action, address, size * MiB, 10 + len(holes)))
end = [segment(0, A, 700 * MiB, [block(A, 100 * MiB, "active_allocated"),
                                 block(A + 100 * MiB, 250 * MiB, "active_allocated"),
                                 block(A + 350 * MiB, 350 * MiB, "inactive")]),
       segment(0, B, 700 * MiB, [block(B, 650 * MiB, "active_allocated"),
                                 block(B + 650 * MiB, 50 * MiB, "inactive")])]
found = [f for f in report(saved("holes", end, holes))["findings"] if f["id"] == "fragmentation"]
check_equal([f["summary"] for f in found],
            ["1.4 GiB reserved at the reserved peak for 750.0 MiB in use (1000.0 MiB at the "
             "allocated peak): 650.0 MiB is in holes"],
            "holes of one instant")

# Sizes of which one is smaller are shown with digits that differ.
hole, request = 4 * MiB - 16384, 4 * MiB
tight, end_tight = [], []
for at in range(A, A + 12 * 32 * MiB, 32 * MiB):
    first, last = 8 * MiB, 20 * MiB - 8 * MiB - hole
    tight += [event("segment_alloc", at, 20 * MiB, 10), event("alloc", at, first, 11),
              event("alloc", at + first, hole, 12), event("alloc", at + first + hole, last, 13),
              event("free_requested", at + first, hole, 14),
              event("free_completed", at + first, hole, 15)]
    end_tight.append(segment(0, at, 20 * MiB, [
        block(at, first, "active_allocated"), block(at + first, hole, "inactive"),
        block(at + first + hole, last, "active_allocated")]))
tight.append({**event("oom", 0, request, 20), "device_free": 0})
found = [f["summary"] for f in report(saved("tight", end_tight, tight))["findings"]
         if f["id"] == "fragmentation"]
check(len(found) == 1 and "the largest, 3.98 MiB, is too small for 4.00 MiB" in found[0],
      f"a hole that is a little too small: {found}")

check("largest usable hole 3.98 MiB" in run("report", tmp / "tight.pickle").stdout, "the same in the text")

# What was not understood is counted in words that fit.
for count, words in ((1, "1 entry of the snapshot was"), (2, "2 entries of the snapshot were")):
    odd = saved(f"odd{count}", end, holes + [event("dance", A, 1, 30 + i) for i in range(count)])
    check(words in run("report", odd).stdout, f"{words}: {run('report', odd).stdout}")

finish()
