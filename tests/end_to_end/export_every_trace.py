"""Exports every recorded trace to Perfetto and compares it with its report and its tables.

    python3 export_every_trace.py TIDEMARK SOURCE_DIRECTORY

The Perfetto files are read with `protoc --decode_raw` if it is installed, and with a decoder of the
wire format alone (perfetto_file.py): neither uses the code that wrote them.
"""
import collections
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from curve_model import curves  # noqa: E402
from perfetto_file import INSTANT, PerfettoFile  # noqa: E402
from recordings import recordings  # noqa: E402
from tool import Tool  # noqa: E402

TOOL = Tool(sys.argv[1])
ROOT = sys.argv[2]
PATHS = recordings(ROOT)

def label(rank):
    """The name of the process in Perfetto."""
    name = f"rank {rank['rank']}" if rank["rank"] >= 0 else "process"
    if rank["host"]:
        name += f" on {rank['host']}"
    return name + (f", pid {rank['pid']}" if rank["pid"] else "")


def devices(report):
    for rank in report["ranks"]:
        for device in rank["devices"]:
            yield rank, device


def named_counters(file):
    """(process, device, name) -> track."""
    names = {}
    for uuid in file.counters():
        track = file.tracks[uuid]
        parent = file.tracks[track.parent].name
        if parent.startswith("cuda:"):
            names[file.process_of(uuid).process, int(parent[5:]), track.name] = uuid
    return names


def raw_packets(path):
    """Number of packets according to protoc."""
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
        # Every kind must occur in some recording, or nothing would check it.
        for what in ("kernel", "nccl", "flow", "oom", "finding", "evidence", "nvtx", "iteration",
                     "heap", "driver heap", "instant of allocated", "instant of requested",
                     "instant of reserved", "instant of device used", "instant of owner",
                     "part of ranks", "thinned"):
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
        self.check_peaks(file, report, seen)
        self.check_instants(file, report, seen)
        model = self.model(path, report)
        self.check_counters(file, model, report["source"]["start_ns"],
                            report["source"]["end_ns"], seen)
        self.check_part(path, report, model, seen)
        self.check_thinned(path, file, seen)

    def model(self, path, report):
        """The curves by process name, device and curve name."""
        output = self.output("out.db")
        TOOL.export(path, "sqlite", output)
        base = sqlite3.connect(f"file:{output}?mode=ro", uri=True)
        names = dict(zip((r for r, in base.execute("SELECT rank_id FROM ranks ORDER BY rank_id")),
                         map(label, report["ranks"])))
        model = {(names[rank], *key): curve for (rank, *key), curve in curves(base).items()}
        base.close()
        return model

    def check_processes(self, file, report):
        roots = [t for t in file.tracks.values() if t.parent == 0]
        self.assertEqual(len({t.pid for t in roots}), len(roots))
        self.assertEqual(len(roots), len(report["ranks"]))
        self.assertEqual(sorted(t.process for t in roots), sorted(map(label, report["ranks"])))

    def check_slices(self, file, seen):
        flows = collections.defaultdict(list)
        slices = file.slices()  # asserts that every end has a begin
        for begin, end, track, event in slices:
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
        for begin, end, track, _ in slices:
            by_track[track].append((begin, float("inf") if end is None else end))
        for spans in by_track.values():
            open_ends = []
            for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                self.assertTrue(not open_ends or end <= open_ends[-1], "slices nest")
                open_ends.append(end)

    def check_peaks(self, file, report, seen):
        tracks = named_counters(file)
        for rank, device in devices(report):
            for name in ("allocated", "reserved", "device used"):
                track = tracks.get((label(rank), device["device"], name))
                peak = device.get(name.replace(" ", "_") + "_peak")
                if track is None or not peak:
                    continue
                self.assertEqual(file.tracks[track].counter, 3)  # bytes
                highest = max(file.counters()[track][1])
                told = peak["bytes"]
                if name == "device used":  # one number for a card: of all processes that read it
                    highest = max(max(file.counters()[t][1])
                                  for (_, _, n), t in tracks.items() if n == name)
                    told = device["highest_card_reading_bytes"]
                self.assertEqual(highest, told, name)

    def check_counters(self, file, model, begin, end, seen):
        """Every counter of the model, at random instants of a range."""
        tracks = named_counters(file)
        for (process, device, name), curve in model.items():
            track = tracks.get((process, device, name))
            first = max(begin, curve.times[0])
            if first > end:
                continue
            if track is None:  # the requested size is unknown: the curve never changes
                self.assertFalse(any(curve.values), (process, device, name))
                continue
            kind = "owner" if name.startswith("driver: ") else name
            for _ in range(20):
                time = self.chance.choice((self.chance.randrange(first, end + 1),
                                           self.chance.choice(curve.times)))
                if not first <= time <= end:
                    continue
                seen["instant of " + kind] += 1
                # A counter whose first change is zero has no sample.
                self.assertEqual(file.counter_at(track, time) or 0, curve.at(time),
                                 (process, device, name, time))

    def check_part(self, path, report, model, seen):
        """A random part of the time, of one rank if there are several."""
        start, end = report["source"]["start_ns"], report["source"]["end_ns"]
        low, high = sorted(self.chance.randrange(end - start + 1) for _ in range(2))
        options = ["--time", f"{low}ns..{high}ns"]
        ranks = [rank["rank"] for rank in report["ranks"]]
        wanted = report["ranks"]
        if len(ranks) > 1 and -1 not in ranks:
            chosen = self.chance.choice(ranks)
            options += ["--ranks", chosen]
            wanted = [rank for rank in wanted if rank["rank"] == chosen]
            seen["part of ranks"] += 1
        output = self.output("part.pftrace")
        TOOL.export(path, "perfetto", output, *options)
        file = PerfettoFile(output)
        self.check_processes(file, {"ranks": wanted})
        names = {label(rank) for rank in wanted}
        for times, _ in file.counters().values():
            self.assertLessEqual(start + low, times[0])
            self.assertLessEqual(times[-1], start + high)
        part = {key: curve for key, curve in model.items() if key[0] in names}
        self.check_counters(file, part, start + low, start + high, seen)

    def check_thinned(self, path, whole, seen):
        """If a size limit removes samples, each curve keeps its least, greatest and last."""
        samples = whole.counters()
        count = sum(len(times) for times, _ in samples.values())
        if not 1500 < count < 60000:
            return
        limit = whole.bytes - count * 6
        output = self.output("thin.pftrace")
        done = TOOL.run("export", path, "--format", "perfetto", "-o", output, "--max-size", limit)
        if done.returncode == 2:  # kernels and calls are never thinned
            self.assertIn("even without the curves", done.stderr)
            return
        thin = PerfettoFile(output)
        self.assertLessEqual(thin.bytes, limit)
        seen["thinned"] += 1
        # Those of the categories are made for as many stretches of time as fit, not thinned.
        def curves(file):
            def path(track):
                t = file.tracks[track]
                return (path(t.parent) if t.parent else ()) + (t.name, t.pid)
            return {path(track): curve for track, curve in file.counters().items()
                    if not file.tracks[track].name.startswith("category: ")}
        samples = curves(whole)
        self.assertEqual(set(curves(thin)), set(samples))
        for track, (times, values) in curves(thin).items():
            self.assertLessEqual(set(zip(times, values)), set(zip(*samples[track])))
            self.assertEqual(min(values), min(samples[track][1]))
            self.assertEqual(max(values), max(samples[track][1]))
            self.assertEqual(values[-1], samples[track][1][-1])

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
        # A driver call may fail for reasons other than memory.
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
        given_out = sorted((h.time, sum(size for _, size, _ in h.samples)) for h in file.heaps
                           if h.name.endswith("at the driver's peak"))
        seen["driver heap"] += len(given_out)
        self.assertEqual(given_out, sorted((d["driver_peak"]["time_ns"], d["driver_peak"]["bytes"])
                                           for _, d in devices(report)
                                           if d["driver_peak"] and d["driver_peak"]["bytes"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
