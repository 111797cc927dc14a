"""Reads back and compares the Perfetto export of every recorded snapshot and of a synthetic job.

    python3 export_perfetto.py TIDEMARK MAKE_TRACE SNAPSHOT_DIRECTORY
"""
import contextlib
import glob
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from perfetto_file import BEGIN, COUNTER, INSTANT, PerfettoFile  # noqa: E402
from tool import Tool  # noqa: E402
from trace_file import TraceFile  # noqa: E402

TOOL = Tool(sys.argv[1])
MAKE_TRACE = sys.argv[2]
START = 1_700_000_000_000_000_000
SNAPSHOTS = sorted(glob.glob(os.path.join(sys.argv[3], "*.pickle.gz")))


def counters(file, name, pid=None):
    return [t for t in file.tracks.values() if t.counter is not None and t.name == name
            and (pid is None or file.process_of(t.uuid).pid == pid)]


class Recorded(unittest.TestCase):
    """Snapshots recorded on a real GPU."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.files = {}
        for path in SNAPSHOTS:
            output = os.path.join(cls.directory.name, "out.pftrace")
            TOOL.export(path, "perfetto", output)
            cls.files[path] = (PerfettoFile(output), TOOL.report(path))
        assert cls.files

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def each(self):
        for path, (file, report) in self.files.items():
            with self.subTest(os.path.basename(path)):
                yield path, file, report

    def test_clocks_and_times(self):
        for _, file, report in self.each():
            self.assertEqual(file.primary_clock, 1)
            self.assertEqual(set(file.clocks), {1, 3, 4, 6})
            for e in file.events:
                self.assertLessEqual(report["source"]["start_ns"], e.time)
                self.assertLessEqual(e.time, report["source"]["end_ns"])

    def test_counters_of_one_track_go_forward(self):
        for _, file, _ in self.each():
            last = {}
            for e in file.events:
                if e.type == COUNTER:
                    self.assertGreaterEqual(e.time, last.get(e.track, 0))
                    last[e.track] = e.time

    def test_tracks(self):
        for _, file, report in self.each():
            roots = [t for t in file.tracks.values() if t.parent == 0]
            self.assertEqual(len(roots), len(report["ranks"]))
            self.assertEqual(len({t.pid for t in roots}), len(roots))
            for name in ("allocated", "requested", "reserved"):
                (track,) = counters(file, name)
                self.assertEqual(track.counter, 3)  # bytes
                self.assertEqual(file.tracks[track.parent].name, "cuda:0")
            self.assertEqual(len({t.axis for t in file.tracks.values() if t.axis}), 1)

    def test_greatest_values_are_the_peaks(self):
        for _, file, report in self.each():
            device = report["ranks"][0]["devices"][0]
            for name in ("allocated", "requested", "reserved"):
                (track,) = counters(file, name)
                values = [(e.value, -e.time) for e in file.events if e.track == track.uuid]
                value, time = max(values)
                self.assertEqual(value, device[name + "_peak"]["bytes"])
                self.assertEqual(-time, device[name + "_peak"]["time_ns"])

    def test_categories_sum_to_the_peak(self):
        seen = 0
        for _, file, report in self.each():
            device = report["ranks"][0]["devices"][0]
            tracks = [t for t in file.tracks.values()
                      if t.counter is not None and t.name.startswith("category: ")]
            known = any(c["category"] != "unknown" for c in device["by_category"])
            self.assertTrue(tracks or not known)
            if not tracks:
                continue
            seen += 1
            time = device["allocated_peak"]["time_ns"]
            self.assertEqual(sum(file.counter_at(t.uuid, time) or 0 for t in tracks),
                             device["allocated_peak"]["bytes"])
            end = report["source"]["end_ns"]
            (allocated,) = counters(file, "allocated")
            self.assertEqual(sum(file.counter_at(t.uuid, end) or 0 for t in tracks),
                             file.counter_at(allocated.uuid, end))
        self.assertGreater(seen, 0)

    def test_curves_at_random_instants(self):
        chance = random.Random(7)
        for path, file, report in self.each():
            start, end = report["source"]["start_ns"], report["source"]["end_ns"]
            (allocated,) = counters(file, "allocated")
            (reserved,) = counters(file, "reserved")
            first = min(e.time for e in file.events if e.type == COUNTER)
            for _ in range(4):
                time = chance.randrange(first, end + 1)
                at = TOOL.report(path, "--at", f"{time - start}ns")["ranks"][0]["devices"][0]
                ledger = {line["owner"]: line["bytes"] for line in at["ledger_at_peak"]}
                self.assertEqual(file.counter_at(allocated.uuid, time) or 0,
                                 ledger.get("torch.allocated", 0))
                self.assertEqual(file.counter_at(reserved.uuid, time) or 0,
                                 sum(ledger.get(f"torch.{part}", 0)
                                     for part in ("allocated", "pending", "cached")))

    def test_flame_graph_at_the_peak(self):
        for _, file, report in self.each():
            device = report["ranks"][0]["devices"][0]
            (heap,) = [h for h in file.heaps if h.name.endswith("at the peak")]
            self.assertEqual(heap.time, device["allocated_peak"]["time_ns"])
            self.assertEqual(heap.pid, next(t.pid for t in file.tracks.values() if not t.parent))
            shares = {tuple(s["frames"]): (s["bytes"], s["count"])
                      for s in device["by_stack"] if s["frames"]}
            drawn = {tuple(reversed(frames)): (size, count)
                     for frames, size, count in heap.samples if not frames[0].startswith("[")}
            self.assertEqual(drawn, shares)
            self.assertEqual(sum(s["bytes"] for s in device["by_stack"]),
                             sum(size for _, size, _ in heap.samples))
            self.assertEqual(len({h.sequence for h in file.heaps}), len(file.heaps))

    def test_out_of_memory(self):
        seen = 0
        for _, file, report in self.each():
            ooms = report["ranks"][0]["devices"][0]["oom"]
            events = [e for e in file.events if e.name == "out of memory"]
            self.assertEqual(len(events), len(ooms))
            for oom, e in zip(ooms, events):
                seen += 1
                self.assertEqual(e.type, INSTANT)
                self.assertEqual(e.time, oom["time_ns"])
                for key in ("requested_bytes", "allocated_bytes", "reserved_bytes",
                            "device_free_bytes", "largest_hole_bytes"):
                    self.assertEqual(e.args[key], oom[key])
                self.assertEqual(e.args["stack"], oom["frames"])
                dumps = [h for h in file.heaps if h.time == e.time and "out of memory" in h.name]
                self.assertEqual(sum(s for _, s, _ in dumps[0].samples), oom["allocated_bytes"])
        self.assertGreater(seen, 0)

    def test_annotations_are_slices(self):
        for path, file, _ in self.each():
            slices = [s for s in file.slices() if s[3].category == "annotation"]
            for begin, end, _, event in slices:
                self.assertIsNotNone(end)
                self.assertLessEqual(begin, end)
            if "annotated" in path:
                self.assertIn("step 0", {s[3].name for s in slices})

    def test_thinned_curves_keep_every_peak(self):
        path = next(p for p in SNAPSHOTS if os.path.basename(p).startswith("long"))
        whole, report = self.files[path]
        limit = 200_000
        output = os.path.join(self.directory.name, "thin.pftrace")
        done = TOOL.export(path, "perfetto", output, "--max-size", limit)
        self.assertIn("thinned", done.stderr)
        thin = PerfettoFile(output)
        self.assertLessEqual(thin.bytes, limit)
        self.assertGreater(thin.bytes, limit // 3)
        for name in ("allocated", "requested", "reserved"):
            (track,) = counters(thin, name)
            (full,) = counters(whole, name)
            kept = {(e.time, e.value) for e in thin.events if e.track == track.uuid}
            all_values = [(e.time, e.value) for e in whole.events if e.track == full.uuid]
            self.assertLess(len(kept), len(all_values))
            self.assertLessEqual(kept, set(all_values))
            self.assertEqual(max(v for _, v in kept), max(v for _, v in all_values))
            self.assertEqual(min(v for _, v in kept), min(v for _, v in all_values))
            self.assertEqual(thin.counter_at(track.uuid, 1 << 62), all_values[-1][1])

    def test_a_part_of_the_time(self):
        path = next(p for p in SNAPSHOTS if os.path.basename(p).startswith("default"))
        whole, report = self.files[path]
        start, end = report["source"]["start_ns"], report["source"]["end_ns"]
        begin, stop = (end - start) // 3, (end - start) // 2
        output = os.path.join(self.directory.name, "part.pftrace")
        TOOL.export(path, "perfetto", output, "--time", f"{begin}ns..{stop}ns")
        part = PerfettoFile(output)
        (track,) = counters(part, "allocated")
        (full,) = counters(whole, "allocated")
        self.assertTrue(all(start + begin <= e.time <= start + stop for e in part.events))
        for time in (start + begin, start + (begin + stop) // 2, start + stop):
            self.assertEqual(part.counter_at(track.uuid, time), whole.counter_at(full.uuid, time))


class Sampled(unittest.TestCase):
    """Counters that were read now and then."""

    def export(self, rows, form, output):
        with tempfile.TemporaryDirectory() as directory:
            trace = TraceFile()
            trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                                          "start_ns": START}])
            trace.table(1, "Counters", [
                {"time_ns": START + time, "kind": kind, "value": value, "subject": subject}
                for time, kind, subject, value in rows])
            output = os.path.join(directory, output)
            TOOL.export(trace.save(os.path.join(directory, "run.tmk")), form, output)
            if form == "perfetto":
                return PerfettoFile(output)
            with contextlib.closing(sqlite3.connect(output)) as base:
                return base.execute("SELECT kind, value FROM samples").fetchall()

    def values(self, file, name):
        track, = counters(file, name)
        return [(e.time - START, e.value) for e in file.events if e.track == track.uuid]

    def test_a_process_that_is_gone_uses_nothing(self):
        file = self.export([(10, 4, 7, 100), (10, 4, 8, 50), (15, 1, 0, 150), (20, 4, 7, 100),
                            (30, 4, 7, 90), (40, 4, 7, 90), (40, 4, 8, 60)], "perfetto", "p")
        self.assertEqual(self.values(file, "used by process 7"),
                         [(10, 100), (20, 100), (30, 90), (40, 90)])
        self.assertEqual(self.values(file, "used by process 8"), [(10, 50), (20, 0), (40, 60)])

    def test_what_pytorch_counted_wrong_is_left_out(self):
        """Pinned bytes given out, before torch 2.13: more than there are. The report has null."""
        in_use = "torch pinned host memory in use"
        for wrong in (False, True):
            rows = [(10, 21, 0, 64), (10, 20, 0, 100), (20, 21, 0, 128 if wrong else 32),
                    (20, 20, 0, 100)]
            file = self.export(rows, "perfetto", "p")
            self.assertEqual(len(counters(file, in_use)), 0 if wrong else 1)
            self.assertEqual(len(counters(file, "torch pinned host memory")), 1)
            kinds = {kind for kind, _ in self.export(rows, "sqlite", "p.db")}
            self.assertEqual("torch_pinned_in_use" in kinds, not wrong, kinds)
            self.assertIn("torch_pinned", kinds)


class Job(unittest.TestCase):
    """Two ranks with every kind of row."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        subprocess.run([MAKE_TRACE, cls.directory.name], check=True)
        cls.output = os.path.join(cls.directory.name, "job.pftrace")
        TOOL.export(cls.directory.name, "perfetto", cls.output)
        cls.file = PerfettoFile(cls.output)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_ranks_with_one_pid_are_two_processes(self):
        roots = [t for t in self.file.tracks.values() if t.parent == 0]
        self.assertEqual({t.process for t in roots},
                         {"rank 0 on node-a, pid 4711", "rank 1 on node-b, pid 4711"})
        self.assertEqual(len({t.pid for t in roots}), 2)

    def test_kernels_keep_their_times_and_nest(self):
        kernels = [s for s in self.file.slices() if s[3].category == "kernel"]
        self.assertEqual(len(kernels), 2 * 200)
        expected = {"gemm": 8_000, "relu<float>": 15_000}
        for begin, end, _, event in kernels:
            self.assertEqual(end - begin, expected[event.name])
        begins = sorted(s[0] for s in kernels
                        if s[3].name == "gemm" and self.file.process_of(s[2]).pid == 1)
        self.assertEqual([b - begins[0] for b in begins], [i * 10_000 for i in range(100)])
        lanes = {self.file.tracks[s[2]].name for s in kernels}
        self.assertEqual(lanes, {"stream 7", "stream 13", "stream 13 (2)"})

    def test_collectives_are_linked_across_ranks(self):
        flows = {}
        for begin, end, track, event in self.file.slices():
            if event.category != "nccl":
                continue
            self.assertEqual(end - begin, 40_000)
            self.assertEqual(event.name, "AllReduce")
            self.assertEqual(event.args["bytes"], 4096)
            self.assertEqual(event.args["algorithm"], "RING")
            (flow,) = event.flows
            key = (event.args["communicator"], event.args["sequence"])
            flows.setdefault(flow, set()).add((key, self.file.process_of(track).pid))
        self.assertEqual(len(flows), 5)
        for members in flows.values():
            self.assertEqual({pid for _, pid in members}, {1, 2})
            self.assertEqual(len({key for key, _ in members}), 1)

    def test_marks(self):
        slices = {(s[3].name, self.file.process_of(s[2]).pid): s for s in self.file.slices()}
        begin, end, track, _ = slices[("forward", 1)]
        inner = slices[("layer", 1)]
        self.assertEqual(inner[2], track)
        self.assertTrue(begin <= inner[0] <= inner[1] <= end)
        self.assertNotEqual(slices[("crossing a", 1)][2], slices[("crossing b", 1)][2])
        self.assertEqual(slices[("crossing b", 1)][1] - slices[("crossing b", 1)][0], 20_000)
        self.assertIsNone(slices[("killed inside", 1)][1])
        self.assertEqual(self.file.tracks[slices[("step 1", 1)][2]].name, "steps")
        self.assertEqual(len([e for e in self.file.events if e.name == "here"]), 2)

    def test_ranks_are_aligned(self):
        first = {}
        for begin, _, track, event in self.file.slices():
            if event.name == "step 0":
                first[self.file.process_of(track).pid] = begin
        self.assertEqual(first[2] - first[1], 0)

    def test_device_and_owner_counters(self):
        used = counters(self.file, "device used", 1)
        self.assertEqual(len(used), 1)
        values = [e.value for e in self.file.events if e.track == used[0].uuid]
        self.assertEqual(values, [(1 << 30) + i for i in range(10)])
        (nccl,) = counters(self.file, "driver: nccl", 1)
        self.assertEqual([e.value for e in self.file.events if e.track == nccl.uuid], [32 << 20])
        (allocated,) = counters(self.file, "allocated", 1)
        self.assertEqual({allocated.axis}, {used[0].axis, nccl.axis})

    def test_one_rank(self):
        output = os.path.join(self.directory.name, "one.pftrace")
        TOOL.export(self.directory.name, "perfetto", output, "--ranks", "1")
        roots = [t for t in PerfettoFile(output).tracks.values() if t.parent == 0]
        self.assertEqual([t.process for t in roots], ["rank 1 on node-b, pid 4711"])

    def test_errors_are_one_line(self):
        output = os.path.join(self.directory.name, "none.pftrace")
        for arguments in (["--ranks", "9"], ["--time", "5"], ["--max-size", "x"],
                          ["--max-size", "100"]):
            done = TOOL.run("export", self.directory.name, "--format", "perfetto", "-o", output,
                            *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertFalse(os.path.exists(output))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
