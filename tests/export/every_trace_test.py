"""Every recorded trace, exported to Perfetto and SQLite and compared with its report.

    every_trace_test.py TIDEMARK SOURCE_DIRECTORY

The Perfetto files are read by `protoc --decode_raw` where it is installed, and by a decoder of the
wire format alone (perfetto_file.py): neither knows the code that wrote them.
"""
import collections
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from perfetto_file import COUNTER, INSTANT, PerfettoFile
from recordings import recordings
from tool import Tool

TOOL = Tool(sys.argv[1])
ROOT = sys.argv[2]
PATHS = recordings(ROOT)

ALIVE = "birth_event <= :e AND (death_event IS NULL OR death_event > :e)"


def label(rank):
    """What Perfetto calls the process."""
    name = f"rank {rank['rank']}" if rank["rank"] >= 0 else "process"
    if rank["host"]:
        name += f" on {rank['host']}"
    return name + (f", pid {rank['pid']}" if rank["pid"] else "")


def devices(report):
    for rank in report["ranks"]:
        for device in rank["devices"]:
            yield rank, device


def raw_packets(path):
    """Number of packets by protoc's account."""
    with open(path, "rb") as file:
        text = subprocess.run(["protoc", "--decode_raw"], stdin=file, capture_output=True,
                              check=True).stdout
    return sum(line == b"1 {" for line in text.split(b"\n"))


class EveryTrace(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.chance = random.Random(11)

    def output(self, name):
        return os.path.join(self.directory.name, name)

    def test_every_trace(self):
        self.assertGreater(len(PATHS), 50)
        seen = collections.Counter()
        for path in PATHS:
            with self.subTest(os.path.relpath(path, ROOT)):
                report = TOOL.report(path)
                self.check_perfetto(path, report, seen)
                self.check_tables(path, report, seen)
        # What no recording has would be checked by nothing.
        for what in ("kernel", "nccl", "flow", "oom", "finding", "evidence", "nvtx", "iteration",
                     "heap", "device used", "driver", "hole", "ranks", "growth", "step", "instant"):
            self.assertGreater(seen[what], 0, what)

    def check_perfetto(self, path, report, seen):
        output = self.output("out.pftrace")
        TOOL.export(path, "perfetto", output)
        if shutil.which("protoc"):
            packets = raw_packets(output)
        file = PerfettoFile(output)  # asserts interning, clocks, parents
        if shutil.which("protoc"):
            self.assertEqual(packets, file.packets)
        self.check_processes(file, report)
        self.check_slices(file, seen)
        self.check_counters(path, file, report, seen)
        self.check_instants(file, report, seen)

    def check_processes(self, file, report):
        roots = [t for t in file.tracks.values() if t.parent == 0]
        self.assertEqual(len({t.pid for t in roots}), len(roots))
        self.assertEqual(len(roots), len(report["ranks"]))
        self.assertEqual(sorted(t.process for t in roots), sorted(map(label, report["ranks"])))

    def check_slices(self, file, seen):
        flows = collections.defaultdict(list)
        for begin, end, track, event in file.slices():  # asserts that ends have beginnings
            seen[event.category] += 1
            if end is not None:
                self.assertLessEqual(begin, end)
            for flow in event.flows:
                flows[flow].append((event.name, event.args["sequence"],
                                    event.args["communicator"], file.process_of(track).pid))
        for members in flows.values():
            # One operation, once per rank.
            self.assertEqual(len({m[:3] for m in members}), 1)
            self.assertEqual(len({m[3] for m in members}), len(members))
            seen["flow"] += len(members) > 1
        by_track = collections.defaultdict(list)
        for begin, end, track, _ in file.slices():
            by_track[track].append((begin, float("inf") if end is None else end))
        for spans in by_track.values():
            open_ends = []
            for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                self.assertTrue(not open_ends or end <= open_ends[-1], "slices nest")
                open_ends.append(end)

    def check_counters(self, path, file, report, seen):
        curves = collections.defaultdict(list)
        for e in file.events:
            if e.type == COUNTER:
                self.assertTrue(not curves[e.track] or curves[e.track][-1][0] <= e.time)
                curves[e.track].append((e.time, e.value))
        tracks = {}
        for uuid in curves:
            track = file.tracks[uuid]
            self.assertEqual(track.counter, 3)  # bytes
            tracks[file.process_of(uuid).process, file.tracks[track.parent].name,
                   track.name] = curves[uuid]
        start, end = report["source"]["start_ns"], report["source"]["end_ns"]
        for rank, device in devices(report):
            for name in ("allocated", "reserved", "device used"):
                curve = tracks.get((label(rank), f"cuda:{device['device']}", name))
                peak = device.get(name.replace(" ", "_") + "_peak")
                if curve is not None and peak:
                    seen[name] += 1
                    self.assertEqual(max(v for _, v in curve), peak["bytes"], name)
        # The ledger at random instants, as the report computes it, against the curves. It is of the
        # nearest instant at which the card's own use is known.
        begins = [curve[0][0] for key, curve in tracks.items() if key[2] == "allocated"]
        for _ in range(2 if begins else 0):
            time = self.chance.randrange(max(begins), end + 1)
            at = TOOL.report(path, "--at", f"{time - start}ns")
            for rank, device in devices(at):
                curve = tracks.get((label(rank), f"cuda:{device['device']}", "allocated"), [])
                values = [v for t, v in curve if t <= device["ledger_time_ns"]]
                ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
                if curve:
                    seen["instant"] += 1
                    self.assertEqual(values[-1] if values else 0, ledger.get("torch.allocated", 0))

    def check_instants(self, file, report, seen):
        findings = [e for e in file.events if e.category == "finding"]
        self.assertEqual(sorted(e.name for e in findings),
                         sorted(f["id"] for f in report["findings"]))
        for finding in report["findings"]:
            seen["finding"] += 1
            same = [e for e in findings if e.args["summary"] == finding["summary"]
                    and e.name == finding["id"] and e.args["device"] == finding["device"]]
            self.assertTrue(same, finding["summary"])
            event = same[0]
            self.assertEqual(event.type, INSTANT)
            self.assertEqual(event.args["severity"], finding["severity"])
            for key, value in finding["evidence"].items():
                seen["evidence"] += 1
                key = "stack" if isinstance(value, list) else key
                self.assertIn(value, [e.args.get(key) for e in same])
            self.assertEqual(len(event.args.get("advice", [])), len(finding["advice"]))
        ooms = [e for e in file.events if e.name == "out of memory"]
        # A call of the driver may fail for other reasons than memory.
        failed = [e.time for e in file.events if e.args.get("failed_with") == 2]
        told = [o for _, d in devices(report) for o in d["oom"]
                if o["layer"] == "torch" or o["time_ns"] in failed]
        seen["oom"] += len(told)
        self.assertGreaterEqual(len(ooms), len(told))
        for oom in told:
            self.assertIn((oom["time_ns"], oom["requested_bytes"]),
                          [(e.time, e.args["requested_bytes"]) for e in ooms])
        peaks = [h for h in file.heaps if h.name.endswith("at the peak")]
        self.assertEqual(len({h.sequence for h in file.heaps}), len(file.heaps))
        sums = [sum(size for _, size, _ in h.samples) for h in peaks]
        for _, device in devices(report):
            shares = sum(s["bytes"] for s in device["by_stack"])
            if device["allocated_peak"] and device["allocated_peak"]["bytes"] and shares:
                seen["heap"] += 1
                self.assertIn(shares, sums)

    def check_tables(self, path, report, seen):
        output = self.output("out.db")
        if os.path.exists(output):
            os.remove(output)
        TOOL.export(path, "sqlite", output)
        base = sqlite3.connect(f"file:{output}?mode=ro", uri=True)
        self.addCleanup(base.close)
        one = lambda sql, **values: base.execute(sql, values).fetchone()
        self.assertEqual(one("PRAGMA integrity_check"), ("ok",))
        self.assertEqual(one("SELECT count(*) FROM ranks"), (len(report["ranks"]),))
        seen["ranks"] += len(report["ranks"]) > 1
        ids = {row[1:]: row[0]
               for row in base.execute("SELECT rank_id, rank, host, pid FROM ranks")}
        for rank, device in devices(report):
            rank_id = ids[rank["rank"], rank["host"] or None, rank["pid"] or None]
            self.check_device(base, one, rank_id, device, seen)
        found = sorted(base.execute("SELECT id, severity, rank, device, summary FROM findings"))
        self.assertEqual(found, sorted((f["id"], f["severity"], f["rank"], f["device"],
                                        f["summary"]) for f in report["findings"]))
        evidence = base.execute("SELECT count(*) FROM finding_evidence").fetchone()[0]
        self.assertEqual(evidence, sum(isinstance(value, int) for f in report["findings"]
                                       for value in f["evidence"].values()))
        for (owner,) in base.execute("SELECT owner FROM driver_events WHERE owner IS NOT NULL"):
            seen["driver"] += owner != ""

    def check_device(self, base, one, rank_id, device, seen):
        at = {"r": rank_id, "d": device["device"]}
        row = one("SELECT allocated_peak_bytes, reserved_peak_bytes, allocated_peak_event"
                  " FROM devices WHERE rank_id = :r AND device = :d", **at)
        if row is None or row[2] is None:
            return
        self.assertEqual(row[:2], (device["allocated_peak"]["bytes"],
                                   device["reserved_peak"]["bytes"]))
        at["e"] = row[2]
        # The live set at the peak, by category.
        rows = base.execute("SELECT category, sum(block_bytes), count(*) FROM allocations WHERE"
                            f" rank_id = :r AND device = :d AND {ALIVE} GROUP BY 1", at)
        self.assertEqual({r[0]: r[1:] for r in rows},
                         {c["category"]: (c["bytes"], c["count"]) for c in device["by_category"]})
        # Steps, and their growth where the report found one.
        steps = base.execute("SELECT low_bytes FROM steps WHERE rank_id = :r AND device = :d"
                             " ORDER BY step", at).fetchall()
        self.assertEqual(len(steps), device["steps"]["count"])
        seen["step"] += len(steps)
        if device["steps"]["growth_bytes_per_step"] > 0:
            seen["growth"] += 1
            low = [s[0] for s in steps[max(1, len(steps) * 2 // 5):]]
            half = len(low) // 2
            slopes = sorted((b - a) / half for a, b in zip(low, low[half:]))
            self.assertAlmostEqual(slopes[len(slopes) // 2],
                                   device["steps"]["growth_bytes_per_step"], 3)
        self.check_holes(base, at, device, seen)

    def check_holes(self, base, at, device, seen):
        """Free ranges inside the segments, as in docs/export.md."""
        if device["fragmentation"]["time_ns"] != device["allocated_peak"]["time_ns"]:
            return
        reserved = base.execute(f"SELECT coalesce(sum(size_bytes), 0) FROM segments WHERE"
                                f" rank_id = :r AND device = :d AND {ALIVE}", at).fetchone()[0]
        used = base.execute(f"SELECT coalesce(sum(block_bytes), 0) FROM allocations WHERE"
                            f" rank_id = :r AND device = :d AND {ALIVE}", at).fetchone()[0]
        self.assertEqual(reserved - used, device["fragmentation"]["cached_free_bytes"])
        seen["hole"] += reserved > used


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
