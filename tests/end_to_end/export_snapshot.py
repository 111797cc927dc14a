"""Imports snapshots, exports them again, and compares both as CPython reads them.

    python3 export_snapshot.py TIDEMARK MAKE_TRACE SNAPSHOT_DIRECTORY

Also checks exported captures: torch's viewer must be able to replay them backwards.
"""
import collections
import glob
import gzip
import os
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from recordings import recordings  # noqa: E402
from tool import Tool  # noqa: E402
from trace_file import TraceFile  # noqa: E402

TOOL = Tool(sys.argv[1])
MAKE_TRACE = sys.argv[2]
SNAPSHOTS = sorted(glob.glob(os.path.join(sys.argv[3], "*.pickle.gz")))
ROOT = os.path.join(sys.argv[3], "../../..")

# Opcodes that torch's own viewer reads; CPython uses all of them for such data.
KNOWN_OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "SETITEMS", "APPENDS", "TUPLE2",
    "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "SHORT_BINUNICODE", "BINUNICODE", "MEMOIZE", "BINGET", "LONG_BINGET"}


def small_snapshot(**entry):
    """One block that is allocated in a segment of 2 MiB."""
    address = 1 << 40
    segment = {"device": 0, "address": address, "total_size": 2 << 20, "allocated_size": 512,
               "active_size": 512, "requested_size": 500, "stream": 0, "segment_type": "small",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
               "blocks": [{"address": address, "size": 512, "requested_size": 500,
                           "state": "active_allocated", "frames": []},
                          {"address": address + 512, "size": (2 << 20) - 512, "requested_size": 0,
                           "state": "inactive", "frames": []}]}
    entry = {"addr": address, "stream": 0, "compile_context": "N/A", "user_metadata": "",
             "frames": [], **entry}
    return {"segments": [segment],
            "device_traces": [[{"action": "segment_alloc", **entry, "size": 2 << 20},
                               {"action": "alloc", **entry, "size": 500}]],
            "allocator_settings": {}, "external_annotations": []}


def load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


class RoundTrip(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.output = os.path.join(self.directory.name, "out.pickle")

    def tearDown(self):
        self.directory.cleanup()

    def test_equal_to_the_original(self):
        paths = [p for p in recordings(ROOT) if p.endswith(".pickle.gz")]
        self.assertGreater(len(paths), len(SNAPSHOTS))
        for path in paths:
            with self.subTest(os.path.relpath(path, ROOT)):
                with gzip.open(path) as file:
                    original = pickle.load(file)
                TOOL.export(path, "snapshot", self.output)
                again = load(self.output)
                self.assertEqual(list(again), list(original))
                for key in original:
                    self.assertTrue(again[key] == original[key], key)
                self.assertEqual({k: type(v) for k, v in again["allocator_settings"].items()},
                                 {k: type(v) for k, v in original["allocator_settings"].items()})

    def test_through_a_trace_file(self):
        path = next(p for p in SNAPSHOTS if "expandable" in p)
        trace = os.path.join(self.directory.name, "run.tmk")
        self.assertEqual(TOOL.run("import", path, "-o", trace).returncode, 0)
        TOOL.export(trace, "snapshot", self.output)
        with gzip.open(path) as file:
            self.assertEqual(load(self.output), pickle.load(file))

    def test_only_opcodes_that_viewers_know(self):
        path = min(SNAPSHOTS, key=os.path.getsize)
        TOOL.export(path, "snapshot", self.output)
        with open(self.output, "rb") as file:
            used = {opcode.name for opcode, _, _ in pickletools.genops(file)}
        self.assertLessEqual(used, KNOWN_OPCODES)

    def test_odd_values(self):
        strange = {
            "segments": [{
                "device": 1, "address": 2**63 + 512, "total_size": 2**21, "allocated_size": 512,
                "active_size": 512, "requested_size": 500, "stream": 0, "segment_type": "small",
                "segment_pool_id": (0, 2**40), "is_expandable": False, "frames": [],
                "blocks": [{"address": 2**63 + 512, "size": 512, "requested_size": 500,
                            "state": "active_pending_free", "frames": []},
                           {"address": 2**63 + 1024, "size": 2**21 - 512, "requested_size": 0,
                            "state": "inactive", "frames": []}]}],
            "device_traces": [[], [
                {"action": "alloc", "addr": 2**63 + 512, "size": 500, "stream": 0,
                 "time_us": 2**50 + i, "compile_context": "région" if i else "N/A",
                 "user_metadata": "x" * 300, "forward_frames": ["a", "b"], "category": "input",
                 "pool_id": (0, 2**40),
                 "frames": [{"name": "f" * 40, "filename": "a.py", "line": i,
                             "fx_node_op": "call", "fx_original_trace": "one\ntwo=2\nthree"}]}
                for i in range(1500)]],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "12", "max_split_size": -1,
                                   "garbage_collection_threshold": 0.25,
                                   "roundup_power2_divisions": {"1": 4, "2": 0}},
            "external_annotations": [{"stage": "START", "name": "s", "device": 1,
                                      "time_us": 2**50}]}
        path = os.path.join(self.directory.name, "odd.pickle")
        with open(path, "wb") as file:
            pickle.dump(strange, file, protocol=4)
        TOOL.export(path, "snapshot", self.output)
        again = load(self.output)
        for key in strange:
            self.assertEqual(again[key], strange[key], key)


    def test_entries_without_times(self):  # torch before 2.2
        path = os.path.join(self.directory.name, "old.pickle")
        with open(path, "wb") as file:
            pickle.dump(small_snapshot(), file, protocol=4)
        TOOL.export(path, "snapshot", self.output)
        for entry in load(self.output)["device_traces"][0]:
            self.assertNotIn("time_us", entry)
        self.assertIn("this snapshot has no times", TOOL.run("report", self.output).stdout)
        trace = os.path.join(self.directory.name, "old.tmk")
        self.assertEqual(TOOL.run("import", path, "-o", trace).returncode, 0)
        TOOL.export(trace, "snapshot", self.output)
        self.assertNotIn("time_us", load(self.output)["device_traces"][0][0])

    def test_names_of_windows_files(self):
        path = os.path.join(self.directory.name, "windows.pickle")
        frames = [{"name": "step", "filename": "C:\\job\\train.py", "line": 3},
                  {"name": "main", "filename": "D:/job\\run.py", "line": 4}]
        with open(path, "wb") as file:
            pickle.dump(small_snapshot(frames=frames), file, protocol=4)
        TOOL.export(path, "snapshot", self.output)
        again = load(self.output)
        self.assertEqual(again["device_traces"][0][0]["frames"], frames)
        self.assertIn("C:/job/train.py:3", TOOL.run("report", path).stdout)

    def test_what_tidemark_does_not_know_is_left_out_and_named(self):
        segment = {"device": 2, "address": 1 << 40, "total_size": 2 << 20, "allocated_size": 512,
                   "active_size": 512, "requested_size": 500, "stream": 7, "segment_type": "small",
                   "segment_pool_id": (0, 0), "is_expandable": False, "frames": []}
        block = {"address": 1 << 40, "size": 512, "requested_size": 500,
                 "state": "active_allocated", "frames": []}
        entry = {"action": "alloc", "addr": 1 << 40, "size": 500, "stream": 7, "time_us": 1000,
                 "compile_context": "N/A", "user_metadata": "step 3",
                 "frames": [{"name": "f", "filename": "a.py", "line": 1}]}
        other = dict(entry, addr=1 << 41)

        def snapshot(extra):
            return {"segments": [{**segment, **extra, "blocks": [{**block, **extra}]}],
                    "device_traces": [[{**other, **extra}], [], [{**entry, **extra}]],
                    "allocator_settings": {"max_split_size": -1}, "external_annotations": [],
                    **extra}
        path = os.path.join(self.directory.name, "new.pickle")
        with open(path, "wb") as file:
            pickle.dump(snapshot({"from_the_future": [1, {"a": None}]}), file, protocol=4)
        TOOL.export(path, "snapshot", self.output)
        self.assertEqual(load(self.output), snapshot({}))
        self.assertIn("from_the_future", TOOL.run("info", path).stdout)


class Captured(unittest.TestCase):
    """Traces of a running process: torch's viewer replays them backwards from their last state."""

    def test_every_capture_plays_backwards(self):
        seen = collections.Counter()
        with tempfile.TemporaryDirectory() as directory:
            output = os.path.join(directory, "out.pickle")
            for path in recordings(ROOT):
                if path.endswith(".pickle.gz"):
                    continue
                for rank in TOOL.report(path)["ranks"]:
                    more = ("--ranks", rank["rank"]) if rank["rank"] >= 0 else ()
                    done = TOOL.run("export", path, "--format", "snapshot", "-o", output, *more)
                    if done.returncode != 0:
                        self.assertRegex(done.stderr, "holds one process"  # several without a rank
                                         "|nothing of PyTorch's allocator")
                        continue
                    with self.subTest(os.path.relpath(path, ROOT), rank=rank["rank"]):
                        self.play_backwards(load(output), seen)
                        if ".tier1." in path:  # there, the requested sizes are not known
                            self.same_peaks(TOOL.report(output)["ranks"][0], rank, seen)
                        else:
                            self.same_report(TOOL.report(output)["ranks"][0], rank, seen)
        for name in ("alloc", "free_completed", "segment_alloc", "segment_map", "gradient",
                     "parameter", "optimizer_state"):
            self.assertGreater(seen[name], 0, name)

    def same_peaks(self, again, rank, seen):
        again = {d["device"]: d for d in again["devices"]}
        for device in rank["devices"]:
            if device["allocated_peak"]["bytes"] == 0:
                continue
            copy = again[device["device"]]
            for peak in ("allocated_peak", "reserved_peak"):
                self.assertEqual(copy[peak]["bytes"], device[peak]["bytes"], peak)
            self.same_categories(copy, device, seen)

    def same_categories(self, copy, device, seen):
        categories = {c["category"]: c["bytes"] for c in device["by_category"]}
        self.assertEqual({c["category"]: c["bytes"] for c in copy["by_category"]}, categories)
        seen.update(categories)

    def same_report(self, again, rank, seen):
        again = {d["device"]: d for d in again["devices"]}
        for device in rank["devices"]:
            if device["allocated_peak"]["bytes"] == 0:
                continue
            copy = again[device["device"]]
            for peak in ("allocated_peak", "requested_peak", "reserved_peak"):
                self.assertEqual(copy[peak]["bytes"], device[peak]["bytes"], peak)
            self.same_categories(copy, device, seen)

    def play_backwards(self, snapshot, seen):
        for device, trace in enumerate(snapshot["device_traces"]):
            reserved, blocks = set(), set()  # pages of 2 MiB, the unit of segments
            for segment in snapshot["segments"]:
                if segment["device"] == device:
                    reserved |= pages(segment["address"], segment["total_size"])
                    blocks |= {b["address"] for b in segment["blocks"]
                               if b["state"].startswith("active")}
            last = None
            for e in reversed(trace):
                seen[e["action"]] += 1
                self.assertTrue(last is None or e["time_us"] <= last)
                last = e["time_us"]
                if e["action"] in ("segment_free", "segment_unmap"):
                    reserved |= pages(e["addr"], e["size"])
                elif e["action"] in ("segment_alloc", "segment_map"):
                    gone = pages(e["addr"], e["size"])
                    self.assertLessEqual(gone, reserved)
                    reserved -= gone
                    self.assertFalse({b for b in blocks if b >> 21 in gone})
                elif e["action"] == "free_completed":
                    self.assertGreater(e["size"], 0)
                    self.assertIn(e["addr"] >> 21, reserved)
                    blocks.add(e["addr"])
                elif e["action"] == "alloc":
                    self.assertGreater(e["size"], 0)
                    self.assertIn(e["addr"], blocks)
                    blocks.discard(e["addr"])


def pages(address, size):
    return set(range(address >> 21, (address + size - 1 >> 21) + 1))


class WithoutAnAllocator(unittest.TestCase):
    """PyTorch's backend cudaMallocAsync leaves all to the driver; other programs have no PyTorch."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.output = os.path.join(self.directory.name, "out.pickle")

    def tearDown(self):
        self.directory.cleanup()

    def record(self, owner, mark=0):
        trace = TraceFile()
        trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "start_ns": 10**9,
                                      "source": 1, "framework": trace.string(1, owner)}])
        trace.table(1, "Frames", [
            {"id": 1, "function": trace.string(1, "train"), "file": trace.string(1, "train.py"),
             "line": 9, "kind": 1},
            {"id": 2, "function": trace.string(1, "AddmmBackward0"), "kind": 4}])
        trace.table(1, "Stacks", [{"id": 1, "frame": 1}, {"id": 2, "frame": 2}])
        call = {"kind": 6, "pool": 1, "owner": trace.string(1, owner)}
        trace.table(1, "DriverEvents", [
            dict(call, time_ns=10**9 + 1000, operation=1, address=0x10000000, size_bytes=5000,
                 stack=1),
            dict(call, time_ns=10**9 + 2000, operation=1, address=0x20000000, size_bytes=8 << 20,
                 stack=2),
            dict(call, time_ns=10**9 + 3000, operation=2, address=0x10000000)])
        trace.table(1, "Counters", [{"time_ns": 10**9 + 3000, "kind": 17, "subject": 1,
                                     "value": mark}])
        return trace.save(os.path.join(self.directory.name, owner + ".tmk"))

    def test_the_backend_without_segments(self):
        for rounded in (5000, 5120):  # by the driver, as its mark shows
            with self.subTest(rounded):
                self.check_backend(rounded)

    def check_backend(self, rounded):
        done = TOOL.export(self.record("torch", rounded + (8 << 20)), "snapshot", self.output)
        line, = done.stderr.splitlines()
        self.assertIn("cudaMallocAsync has no segments", line)
        snapshot = load(self.output)
        self.assertEqual([(e["action"], e["size"]) for e in snapshot["device_traces"][0]], [
            ("segment_alloc", rounded), ("alloc", 5000), ("segment_alloc", 8 << 20),
            ("alloc", 8 << 20), ("free_completed", 5000), ("segment_free", rounded)])
        self.assertEqual([f["filename"] for e in snapshot["device_traces"][0]
                          if e["action"] == "alloc" for f in e["frames"]],
                         ["train.py", "<autograd>"])
        self.assertEqual([b["size"] for s in snapshot["segments"] for b in s["blocks"]], [8 << 20])
        report = TOOL.report(self.output)
        self.assertEqual(report["losses"], [])  # no event contradicts the others
        device, = report["ranks"][0]["devices"]
        self.assertEqual(device["allocated_peak"]["bytes"], (8 << 20) + rounded)
        self.assertEqual(device["requested_peak"]["bytes"], (8 << 20) + 5000)
        self.assertIn(["AddmmBackward0"], [s["frames"] for s in device["by_stack"]])
        done = TOOL.run("whatif", self.output, "--all")  # its segments are not an allocator's
        self.assertIn("cudaMallocAsync has no allocator of its own", done.stderr)

    def test_nothing_of_pytorch(self):
        path = self.record("program")
        done = TOOL.run("export", path, "--format", "snapshot", "-o", self.output)
        self.assertEqual(done.returncode, 2)
        line, = done.stderr.splitlines()
        self.assertIn("nothing of PyTorch's allocator was recorded", line)
        self.assertFalse(os.path.exists(self.output))


class FromTheReplay(unittest.TestCase):
    """States that the file does not contain: the middle of a history, and a capture."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.output = os.path.join(self.directory.name, "out.pickle")

    def tearDown(self):
        self.directory.cleanup()

    def check(self, snapshot, device, reserved, allocated):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        self.assertEqual(sum(s["total_size"] for s in segments), reserved)
        self.assertEqual(sum(s["allocated_size"] for s in segments), allocated)
        for s in segments:
            at = s["address"]
            for b in s["blocks"]:
                self.assertEqual(b["address"], at)
                at += b["size"]
            self.assertEqual(at, s["address"] + s["total_size"])
            self.assertEqual(s["allocated_size"], sum(
                b["size"] for b in s["blocks"] if b["state"] == "active_allocated"))

    def test_middle_of_each_history(self):
        for path in SNAPSHOTS:
            with self.subTest(os.path.basename(path)):
                with gzip.open(path) as file:
                    first = pickle.load(file)["device_traces"][0][0]["time_us"] * 1000
                source = TOOL.report(path)["source"]
                middle = (first + source["end_ns"]) // 2 - source["start_ns"]
                TOOL.export(path, "snapshot", self.output, "--time", f"..{middle}ns")
                snapshot = load(self.output)
                at = TOOL.report(path, "--at", f"{middle}ns")["ranks"][0]["devices"][0]
                ledger = {line["owner"]: line["bytes"] for line in at["ledger_at_peak"]}
                allocated = ledger.get("torch.allocated", 0)
                reserved = allocated + ledger.get("torch.pending", 0) + ledger.get("torch.cached", 0)
                self.check(snapshot, 0, reserved, allocated)
                limit = (source["start_ns"] + middle) // 1000
                self.assertTrue(all(e["time_us"] <= limit for e in snapshot["device_traces"][0]))

    def test_end_state_of_the_replay_equals_the_recorded_one(self):
        for path in SNAPSHOTS:
            with self.subTest(os.path.basename(path)):
                with gzip.open(path) as file:
                    original = pickle.load(file)
                source = TOOL.report(path)["source"]
                span = source["end_ns"] - source["start_ns"]
                TOOL.export(path, "snapshot", self.output, "--time", f"..{span}ns")
                again = load(self.output)

                def blocks(snapshot):
                    return sorted((b["address"], b["size"], b["state"])
                                  for s in snapshot["segments"] for b in s["blocks"]
                                  if b["state"] != "inactive")
                self.assertEqual(blocks(again), blocks(original))
                self.assertEqual(sum(s["total_size"] for s in again["segments"]),
                                 sum(s["total_size"] for s in original["segments"]))

    def test_capture(self):
        subprocess.run([MAKE_TRACE, self.directory.name], check=True)
        TOOL.export(self.directory.name, "snapshot", self.output, "--ranks", "0")
        snapshot = load(self.output)
        self.check(snapshot, 0, 512 << 20, 64 << 20)
        self.assertEqual(snapshot["device_traces"][0][-1]["action"], "oom")
        self.assertIn("device_free", snapshot["device_traces"][0][-1])

    def test_one_process_at_a_time(self):
        subprocess.run([MAKE_TRACE, self.directory.name], check=True)
        done = TOOL.run("export", self.directory.name, "--format", "snapshot", "-o", self.output)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
