"""Checks that an export of a part (`--time`) has the peaks of that part.

    python3 export_parts.py TIDEMARK SOURCE_DIRECTORY

The peaks are compared with those of the events of the whole export.
"""
import os
import sqlite3
import sys
import tempfile
import unittest
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from tool import Tool  # noqa: E402

TOOL = Tool(sys.argv[1])
SOURCE = pathlib.Path(sys.argv[2])
SNAPSHOTS = SOURCE / "tests" / "data" / "snapshots"
RECORDED = SOURCE / "samples" / "traces"


class Parts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def base(self, path, name, *options):
        file = os.path.join(self.directory, name)
        TOOL.export(path, "sqlite", file, *options)
        connection = sqlite3.connect(file)
        self.addCleanup(connection.close)
        return connection

    def parts_of(self, path):
        """The whole export, and parts with their borders in nanoseconds."""
        whole = self.base(path, "whole.db", "--events")
        start, end = whole.execute("SELECT start_ns, end_ns FROM trace").fetchone()
        for i, (a, b) in enumerate(((0, 0.3), (0.3, 0.5), (0.5, 1), (0.9, 0.95))):
            begin = int((end - start) * a)
            stop = int((end - start) * b)
            part = self.base(path, f"{i}.db", "--time", f"{begin}ns..{stop}ns")
            yield whole, part, start + begin, start + stop

    def test_peaks_are_those_of_the_part(self):
        for name in ("default", "late", "oom_fraction", "streams"):
            path = SNAPSHOTS / f"{name}.pickle.gz"
            for whole, part, begin, end in self.parts_of(path):
                for column in ("allocated", "requested", "reserved"):
                    before = whole.execute(
                        f"SELECT {column}_bytes FROM events WHERE time_ns < ? AND device = 0"
                        " ORDER BY event DESC LIMIT 1", (begin,)).fetchone() or (0,)
                    inside = whole.execute(
                        f"SELECT coalesce(max({column}_bytes), 0) FROM events"
                        " WHERE time_ns BETWEEN ? AND ? AND device = 0", (begin, end)).fetchone()
                    told, when = part.execute(
                        f"SELECT {column}_peak_bytes, {column}_peak_ns FROM devices"
                        " WHERE device = 0").fetchone()
                    self.assertEqual(told, max(before[0], inside[0]), (name, column, begin, end))
                    if told:
                        self.assertTrue(begin <= when <= end, (name, column, when))

    def test_events_are_counted_alike(self):
        for path in (SNAPSHOTS / "default.pickle.gz", SNAPSHOTS / "oom_fraction.pickle.gz",
                     RECORDED / "torch" / "training.tier1.tmk",
                     RECORDED / "torch" / "training.tier2.tmk"):
            whole = self.base(path, "counted.db")
            start, end = whole.execute("SELECT start_ns, end_ns FROM trace").fetchone()
            part = self.base(path, "all.db", "--time", f"0ns..{end - start}ns")
            self.assertEqual(part.execute("SELECT events FROM devices").fetchall(),
                             whole.execute("SELECT events FROM devices").fetchall(), path)

    def test_what_is_alive_at_the_peak_adds_up(self):
        for _, part, _, _ in self.parts_of(SNAPSHOTS / "default.pickle.gz"):
            peak, alive = part.execute(
                "SELECT d.allocated_peak_bytes, sum(a.block_bytes) FROM devices d"
                " LEFT JOIN allocations a ON a.device = d.device"
                " AND a.birth_event <= d.allocated_peak_event"
                " AND coalesce(a.release_event, 1 << 40) > d.allocated_peak_event").fetchone()
            self.assertEqual(peak, alive or 0)

    def test_steps_are_cut_off(self):
        steps = 0
        for whole, part, begin, end in self.parts_of(SNAPSHOTS / "streams.pickle.gz"):
            highest, = part.execute("SELECT allocated_peak_bytes FROM devices").fetchone()
            for number, first, last, low, high in part.execute(
                    "SELECT step, begin_ns, end_ns, low_bytes, high_bytes FROM steps"):
                self.assertTrue(begin <= first <= last <= end, (number, first, last))
                self.assertLessEqual(high, highest)
                inside = whole.execute(
                    "SELECT min(allocated_bytes), max(allocated_bytes) FROM events"
                    " WHERE time_ns BETWEEN ? AND ?", (first, last)).fetchone()
                if inside[0] is not None:
                    self.assertLessEqual(low, inside[1])
                steps += 1
            self.assertLessEqual(
                part.execute("SELECT count(*) FROM steps").fetchone()[0],
                whole.execute("SELECT count(*) FROM steps WHERE begin_ns <= ? AND end_ns >= ?",
                              (end, begin)).fetchone()[0])
        self.assertGreater(steps, 3)

    def test_peaks_of_the_driver(self):
        path = RECORDED / "leak"
        for whole, part, begin, end in self.parts_of(path):
            births = [row[0] for row in whole.execute(
                "SELECT birth_ns FROM driver_allocations WHERE on_card = 1"
                " AND birth_ns BETWEEN ? AND ?", (begin, end))]
            highest = max(whole.execute(
                "SELECT coalesce(sum(size_bytes), 0) FROM driver_allocations WHERE on_card = 1"
                " AND device = 0 AND birth_ns <= ? AND coalesce(death_ns, 1 << 62) > ?",
                (time, time)).fetchone()[0] for time in [begin, *births])
            told = part.execute("SELECT driver_peak_bytes FROM devices WHERE device = 0").fetchone()
            self.assertEqual(told[0], highest)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
