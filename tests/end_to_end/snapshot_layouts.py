"""Checks that every layout of torch 2.0 to 2.13 and every pickle protocol gives the same answers.

    python3 snapshot_layouts.py TIDEMARK
"""
import copy
import gzip
import json
import pathlib
import pickle
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())
counter = 0


def saved(snapshot, protocol=4, compress=False):
    global counter
    counter += 1
    path = tmp / f"s{counter}.pickle{'.gz' if compress else ''}"
    data = pickle.dumps(snapshot, protocol=protocol)
    path.write_bytes(gzip.compress(data) if compress else data)
    return path


def answers(path, ignore=()):
    """What must not depend on the layout."""
    device = report(path)["ranks"][0]["devices"][0]
    keep = {k: v for k, v in device.items() if k not in ignore}
    return json.dumps(keep, sort_keys=True)


def load(case):
    return pickle.loads(gzip.open(SNAPSHOTS / f"{case}.pickle.gz").read())


for case in ("default", "expandable", "late", "oom_fraction", "graphs"):
    original = load(case)
    wanted = answers(SNAPSHOTS / f"{case}.pickle.gz")
    for protocol in (2, 3, 4, 5):
        check_equal(answers(saved(original, protocol)), wanted, f"{case}: protocol {protocol}")
    check_equal(answers(saved(original, 4, compress=True)), wanted, f"{case}: gzip")

    # No shared objects: as if every frame list had been written out.
    unshared = json.loads(json.dumps(original))
    check_equal(answers(saved(unshared)), wanted, f"{case}: unshared frames")

    # 2.12: entries name their pool; 2.11: forward frames; 2.10: metadata.
    newer = copy.deepcopy(original)
    for trace in newer["device_traces"]:
        for entry in trace:
            entry["pool_id"] = (0, 0)
            entry["forward_frames"] = ["  File 'train.py', line 3, in forward\n"]
    check_equal(answers(saved(newer)), wanted, f"{case}: torch 2.12 layout")

    # 2.2 to 2.7: no compile context, no metadata; before 2.5 no annotations, before 2.3 no settings.
    older = copy.deepcopy(original)
    older.pop("external_annotations")
    for trace in older["device_traces"]:
        for entry in trace:
            entry.pop("compile_context")
            entry.pop("user_metadata")
    # Without annotations there are no marks, so steps and all that depends on them are found
    # differently.
    by_marks = ("steps", "by_category", "by_age", "phases", "peak_phase")
    wanted = answers(SNAPSHOTS / f"{case}.pickle.gz", by_marks)
    check_equal(answers(saved(older), by_marks), wanted, f"{case}: torch 2.4 layout")
    if case in ("default", "late", "oom_fraction"):
        older.pop("allocator_settings")  # these settings do not change block sizes
        check_equal(answers(saved(older), by_marks), wanted, f"{case}: torch 2.2 layout")

        # 2.1: no times. Instants differ, byte counts do not.
        for trace in older["device_traces"]:
            for entry in trace:
                entry.pop("time_us")
        path = saved(older)
        device = report(path)["ranks"][0]["devices"][0]
        whole = report(SNAPSHOTS / f"{case}.pickle.gz")["ranks"][0]["devices"][0]
        for peak in ("allocated_peak", "requested_peak", "reserved_peak"):
            check_equal(device[peak]["bytes"], whole[peak]["bytes"], f"{case}: 2.1 layout, {peak}")
        check("no times" in run("report", path).stdout, f"{case}: the missing times are mentioned")

        # 2.0: blocks have no address, requested size or frames, but a history.
        for segment in older["segments"]:
            for key in ("segment_pool_id", "is_expandable", "frames"):
                segment.pop(key)
            for block in segment["blocks"]:
                frames = block.pop("frames")
                block.pop("address")
                requested = block.pop("requested_size")
                if block["state"] != "inactive":
                    block["history"] = [{"addr": 0, "real_size": requested, "frames": frames}]
        device = report(saved(older))["ranks"][0]["devices"][0]
        for peak in ("allocated_peak", "requested_peak", "reserved_peak"):
            check_equal(device[peak]["bytes"], whole[peak]["bytes"], f"{case}: 2.0 layout, {peak}")
        check_equal(device["contradicting_events"], 0, f"{case}: 2.0 layout, contradictions")

# context="state": the entries have no stacks, but the blocks that are alive at the end do.
whole = load("default")
state = copy.deepcopy(whole)
for trace in state["device_traces"]:
    for entry in trace:
        entry["frames"] = []
path = saved(state)


def stacks(path, *args):
    device = report(path, *args)["ranks"][0]["devices"][0]
    return {tuple(s["frames"]): s["bytes"] for s in device["by_stack"]}


check_equal(stacks(path, "--at", "end"), stacks(saved(whole), "--at", "end"),
            "context=state: stacks at the end")
device = report(path)["ranks"][0]["devices"][0]
check_equal(device["stacks_only_at_end"], True, "context=state: stacks_only_at_end")
categories = {c["category"] for c in device["by_category"]}
check("unknown" in categories and not categories & {"temporary", "gradient"},
      f"context=state: blocks without stacks are of unknown category, not {categories}")
text = run("report", path).stdout
check("stacks are known only of blocks that were alive at the end" in text, "context=state: told")
check("backward pass" not in text, "context=state: blocks without stacks are not the backward pass")
check_equal(report(saved(whole))["ranks"][0]["devices"][0]["stacks_only_at_end"], False,
            "context=all: stacks_only_at_end")

# Without any history, only the state when the snapshot was taken is known.
state = {"segments": whole["segments"], "device_traces": [[]]}
path = saved(state)
answer = report(path)
check_equal(answer["findings"], [], "no history: findings")
check_equal(answer["ranks"][0]["devices"][0]["state_only"], True, "no history: state_only")
text = run("report", path).stdout
check("only its state when the snapshot was taken is known" in text, "no history: told")
check("Only the state at one moment is known" in text, f"no history: no verdict: {text}")
for claim in ("peak", "began late", "before the recording"):
    check(claim not in text, f"no history: no word of {claim!r}: {text}")
check_equal(run("check", path, "--max-peak", "1TiB").returncode, 2, "no history: check")
check_equal(run("check", path, "--max-peak", "1TiB", "--allow-losses").returncode, 0,
            "no history: check of the state")
result = run("whatif", path, "--all")
check_equal((result.returncode, result.stdout), (2, ""), "no history: whatif")
check("no history" in result.stderr, f"no history: whatif says so: {result.stderr!r}")
check("reserved peak" in run("diff", path, saved(whole)).stdout, "no history: diff with a peak")
check("reserved peak" not in run("diff", path, path).stdout, "no history: diff of states")

# Nor does the entry make a history that PyTorch adds for the dump itself, or a single one.
# What such a free has freed is not pending in the state.
free = next((block["address"], block["size"], segment["stream"]) for segment in whole["segments"]
            for block in segment["blocks"] if block["state"] == "inactive")
for entry in ({"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": [], "time_us": 70},
              {"action": "free_completed", "addr": free[0], "size": free[1], "stream": free[2],
               "frames": [], "time_us": 70}):
    path = saved({"segments": whole["segments"], "device_traces": [[entry]]})
    text = run("report", path).stdout
    check("Only the state at one moment is known" in text and "peak" not in text
          and "pending" not in text, f"a history of one {entry['action']}: {text}")
    check_equal(run("check", path, "--max-peak", "1TiB").returncode, 2, "a single entry: check")

# A state has no time: beside a history it changes nothing about when that was.
both = tmp / "both"
both.mkdir()
for name, snapshot in (("state", {**whole, "device_traces": [[]]}), ("history", whole)):
    (both / f"{name}.pickle").write_bytes(pickle.dumps(snapshot))
check_equal(json.loads(run("report", both, "--json").stdout)["source"]["start_ns"],
            json.loads(run("report", saved(whole), "--json").stdout)["source"]["start_ns"],
            "a state beside a history: start")

# 2.14: notes on tensors, and pinned host memory with its own history and state. 2.13: resize_ at an
# address adds a text to the metadata.
main = load("default")
trace = main["device_traces"][0]
block = next(entry for entry in trace if entry["action"] == "alloc")
for i in (len(trace), len(trace) // 2, 1):
    trace.insert(i, {**block, "action": "annotate", "time_us": trace[i - 1]["time_us"],
                     "user_metadata": "key cache", "pool_id": (0, 0)})
trace[5]["user_metadata"] = "mallocWithAddress"
start, frames = trace[0]["time_us"], block["frames"]


def host_entry(action, addr, size, after_us, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": start + after_us,
            "compile_context": "", "user_metadata": "", "pool_id": (0, 0), **more}


def host_segment(addr, size, in_use):
    return {"device": -1, "address": addr, "total_size": size, "allocated_size": size * in_use,
            "active_size": size * in_use, "requested_size": size, "stream": 0,
            "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": frames, "blocks": [{"address": addr, "size": size, "requested_size": size,
                                          "state": "active_allocated" if in_use else "inactive",
                                          "frames": frames}]}


MIB = 1 << 20
main["host_traces"] = [
    host_entry("free_requested", 0x1000, MIB, 10), host_entry("free_completed", 0x1000, MIB, 11),
    host_entry("segment_alloc", 0x900000, 4 * MIB, 20, frames=frames),
    host_entry("alloc", 0x900000, 4 * MIB, 21, frames=frames),
    host_entry("segment_alloc", 0x2000000, 2 * MIB, 30, frames=frames),
    host_entry("alloc", 0x2000000, 2 * MIB, 31, frames=frames),
    host_entry("free_requested", 0x2000000, 2 * MIB, 40),
    host_entry("free_completed", 0x2000000, 2 * MIB, 45),
    host_entry("segment_free", 0x2000000, 2 * MIB, 50)]
main["host_segments"] = [host_segment(0x1000, MIB, False), host_segment(0x900000, 4 * MIB, True)]
path = saved(main)
check_equal(answers(path), answers(SNAPSHOTS / "default.pickle.gz"), "torch 2.14 layout")
rank = report(path)["ranks"][0]
check_equal((rank["loss"]["entries_skipped"], rank["loss"]["notes"]), (0, []),
            "2.14: everything is understood")
check_equal(rank["pinned"]["driver_peak"]["bytes"], 7 * MIB, "2.14: pinned at the peak")
check_equal({k: rank["pinned"]["torch"][k] for k in ("held_bytes", "in_use_bytes", "cached_bytes")},
            {"held_bytes": 7 * MIB, "in_use_bytes": 4 * MIB, "cached_bytes": 3 * MIB},
            "2.14: pinned, held and in use")
check(rank["pinned"]["by_stack"][0]["frames"], "2.14: pinned memory has its stack")
empty = load("default")
empty["host_traces"], empty["host_segments"] = [], []
check_equal(answers(saved(empty)), answers(SNAPSHOTS / "default.pickle.gz"), "2.14, no host memory")

# A snapshot without traces: the segments alone.
light = load("default")
light["device_traces"] = [[] for _ in light["device_traces"]]
light["external_annotations"] = []
check_equal(report(saved(light))["ranks"][0]["loss"]["notes"], [], "light snapshot: understood")

# torch.cuda.memory_snapshot(): the segments alone, as a list.
original = load("default")
only = report(saved(original["segments"]))["ranks"][0]["devices"][0]
active = sum(b["size"] for s in original["segments"] for b in s["blocks"] if b["state"] != "inactive")
check_equal(only["allocated_peak"]["bytes"], active, "segments alone: allocated")
check_equal(only["reserved_peak"]["bytes"], sum(s["total_size"] for s in original["segments"]),
            "segments alone: reserved")

# Snapshots of torch.profiler carry categories.
profiled = load("default")
for i, entry in enumerate(profiled["device_traces"][0]):
    if entry["action"] == "alloc":
        entry["category"] = ("parameter", "activation")[i % 2]
shares = report(saved(profiled))["ranks"][0]["devices"][0]["by_category"]
check_equal({s["category"] for s in shares}, {"parameter", "activation"}, "categories are kept")

# Unknown content is counted and named, and never fatal.
strange = load("default")
strange["device_traces"][0].insert(0, {"action": "teleport", "addr": 1, "size": 2, "stream": 0,
                                       "time_us": 1, "frames": []})
strange["device_traces"][0].insert(0, "not a dict")
strange["device_traces"][0].insert(0, {"action": "alloc", "addr": 1, "size": -5, "time_us": 1})
strange["weather"] = "fine"
result = report(saved(strange))
check_equal(result["ranks"][0]["loss"]["entries_skipped"], 3, "strange entries are counted")
check(any("weather" in note for note in result["ranks"][0]["loss"]["notes"]),
      "an unknown key is named")

# Not snapshots at all.
for thing in ({}, {"a": 1}, [], [1, 2], "text", 5, None, {"segments": 3, "device_traces": "x"},
              {"segments": [None, {"address": "x"}], "device_traces": [[None], 5, {}]}):
    code = run("report", saved(thing)).returncode
    check(code in (0, 2), f"{thing!r}: exit status {code}")

# Hostile numbers: nothing crashes, hangs or exhausts memory.
huge = 2 ** 63
hostile = {"segments": [{"device": 0, "address": huge, "total_size": 2 ** 64 - 1, "stream": -1,
                         "blocks": [{"size": 2 ** 64 - 1, "state": "active_allocated"}] * 50}],
           "device_traces": [[{"action": a, "addr": addr, "size": size, "stream": huge,
                               "time_us": t, "frames": []}
                              for a in ("alloc", "free_completed", "segment_map", "segment_unmap")
                              for addr in (0, 1, huge, 2 ** 64 - 1)
                              for size in (0, 1, huge, 2 ** 64 - 1)
                              for t in (0, 2 ** 40, 9 * 10 ** 15)]]}
check_equal(run("report", saved(hostile)).returncode, 0, "hostile numbers: exit status")

finish()
