"""Checks the CSV export, and twelve questions the SQLite export must answer as the report does.

    python3 export_tables.py TIDEMARK MAKE_TRACE SNAPSHOT_DIRECTORY
"""
import csv
import glob
import os
import pathlib
import pickle
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from tool import Tool  # noqa: E402
from trace_file import TraceFile  # noqa: E402

TOOL = Tool(sys.argv[1])
MAKE_TRACE = sys.argv[2]
SNAPSHOTS = sorted(glob.glob(os.path.join(sys.argv[3], "*.pickle.gz")))

ALLOCATED_AT_PEAK = """
  FROM allocations a JOIN devices d USING (rank_id, device)
  WHERE a.birth_event <= d.allocated_peak_event
    AND (a.release_event IS NULL OR a.release_event > d.allocated_peak_event)"""


class Database:
    def __init__(self, path):
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def all(self, sql, *values):
        return self.connection.execute(sql, values).fetchall()

    def one(self, sql, *values):
        return self.all(sql, *values)[0][0]

    def close(self):
        self.connection.close()


class Questions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.bases = {}
        for path in SNAPSHOTS:
            output = os.path.join(cls.directory.name, os.path.basename(path) + ".db")
            TOOL.export(path, "sqlite", output, "--events")
            cls.bases[path] = (Database(output), TOOL.report(path))
        assert cls.bases

    @classmethod
    def tearDownClass(cls):
        for base, _ in cls.bases.values():
            base.close()
        cls.directory.cleanup()

    def each(self):
        for path, (base, report) in self.bases.items():
            with self.subTest(os.path.basename(path)):
                yield path, base, report, report["ranks"][0]["devices"][0]

    def test_database_is_sound(self):
        for _, base, _, _ in self.each():
            self.assertEqual(base.one("PRAGMA integrity_check"), "ok")
            self.assertEqual(base.one("PRAGMA user_version"), 8)

    def test_01_allocated_peak(self):
        for _, base, _, device in self.each():
            self.assertEqual(
                base.all("SELECT allocated_peak_bytes, allocated_peak_ns FROM devices")[0],
                (device["allocated_peak"]["bytes"], device["allocated_peak"]["time_ns"]))

    def test_02_reserved_and_requested_peaks(self):
        for _, base, _, device in self.each():
            self.assertEqual(
                base.all("SELECT reserved_peak_bytes, requested_peak_bytes FROM devices")[0],
                (device["reserved_peak"]["bytes"], device["requested_peak"]["bytes"]))

    def test_03_peaks_from_the_events(self):
        for _, base, _, device in self.each():
            self.assertEqual(
                base.all("SELECT max(allocated_bytes), max(requested_bytes), max(reserved_bytes)"
                         " FROM events")[0],
                tuple(device[k]["bytes"]
                      for k in ("allocated_peak", "requested_peak", "reserved_peak")))

    def test_04_alive_at_the_peak(self):
        for _, base, _, device in self.each():
            self.assertEqual(
                base.one("SELECT sum(a.block_bytes)" + ALLOCATED_AT_PEAK +
                         " AND (a.release_event IS NULL"
                         " OR a.release_event > d.allocated_peak_event)"),
                device["allocated_peak"]["bytes"])

    def test_05_by_stack_at_the_peak(self):
        for _, base, _, device in self.each():
            rows = base.all("SELECT coalesce(s.text, ''), sum(a.block_bytes), count(*)" +
                            ALLOCATED_AT_PEAK.replace("WHERE",
                                                  "LEFT JOIN stacks s USING (stack_id) WHERE") +
                            " GROUP BY a.stack_id")
            told = {}
            for share in device["by_stack"]:
                text = "\n".join(share["frames"])
                size, count = told.get(text, (0, 0))
                told[text] = (size + share["bytes"], count + share["count"])
            found = {}
            for text, size, count in rows:
                old = found.get(text, (0, 0))
                found[text] = (old[0] + size, old[1] + count)
            self.assertEqual(found, told)

    def test_06_by_category_at_the_peak(self):
        for _, base, _, device in self.each():
            rows = base.all("SELECT a.category, sum(a.block_bytes), count(*)" + ALLOCATED_AT_PEAK +
                            " GROUP BY 1")
            self.assertEqual({r[0]: r[1:] for r in rows},
                             {c["category"]: (c["bytes"], c["count"])
                              for c in device["by_category"]})

    def test_07_reserved_at_its_peak_from_the_segments(self):
        for _, base, _, device in self.each():
            peak = base.one("SELECT min(event) FROM events WHERE reserved_bytes ="
                            " (SELECT max(reserved_bytes) FROM events)")
            self.assertEqual(
                base.one("SELECT sum(size_bytes) FROM segments WHERE birth_event <= ?1"
                         " AND (death_event IS NULL OR death_event > ?1)", peak),
                device["reserved_peak"]["bytes"])

    def test_08_out_of_memory(self):
        seen = 0
        for _, base, _, device in self.each():
            rows = base.all("SELECT o.time_ns, o.requested_bytes, o.allocated_bytes,"
                            " o.reserved_bytes, o.device_free_bytes, s.text FROM out_of_memory o"
                            " LEFT JOIN stacks s USING (stack_id) ORDER BY o.time_ns")
            self.assertEqual(rows, [
                (o["time_ns"], o["requested_bytes"], o["allocated_bytes"], o["reserved_bytes"],
                 o["device_free_bytes"], "\n".join(o["frames"])) for o in device["oom"]])
            seen += len(rows)
        self.assertGreater(seen, 0)

    def test_09_events_and_losses(self):
        for _, base, _, device in self.each():
            self.assertEqual(
                base.all("SELECT events, blocks_before_history, bytes_before_history,"
                         " contradicting_events FROM devices")[0],
                (device["events"], device["blocks_before_history"],
                 device["bytes_before_history"], device["contradicting_events"]))

    def test_10_time_range(self):
        for _, base, report, _ in self.each():
            self.assertEqual(base.all("SELECT start_ns, end_ns, kind FROM trace")[0],
                             (report["source"]["start_ns"], report["source"]["end_ns"],
                              report["source"]["kind"]))

    def test_11_totals_at_any_event_from_the_rows(self):
        for _, base, _, _ in self.each():
            last = base.one("SELECT max(event) FROM events")
            for event in {0, last // 3, last // 2, last}:
                totals = base.all("SELECT allocated_bytes, active_bytes, reserved_bytes"
                                  " FROM events WHERE event = ?", event)[0]
                alive = "WHERE birth_event <= ?1 AND ({0} IS NULL OR {0} > ?1)"
                sums = tuple(base.one(f"SELECT coalesce(sum({column}), 0) FROM {table} " +
                                      alive.format(end), event)
                             for column, table, end in (
                                 ("block_bytes", "allocations", "release_event"),
                                 ("block_bytes", "allocations", "death_event"),
                                 ("size_bytes", "segments", "death_event")))
                self.assertEqual(sums, totals)

    def test_12_frames_of_every_stack(self):
        for _, base, _, _ in self.each():
            self.assertEqual(base.one(
                "SELECT count(*) FROM stacks s WHERE text IS NOT (SELECT group_concat(text, char(10))"
                " FROM (SELECT f.text FROM stack_frames JOIN frames f USING (frame_id)"
                " WHERE stack_id = s.stack_id ORDER BY position))"), 0)
            self.assertEqual(base.one(
                "SELECT count(*) FROM allocations a WHERE stack_id IS NOT NULL"
                " AND stack_id NOT IN (SELECT stack_id FROM stacks)"), 0)

    def test_allocations_lie_in_their_segments(self):
        for _, base, _, _ in self.each():
            self.assertEqual(base.one(
                "SELECT count(*) FROM allocations a LEFT JOIN segments s USING (segment_id)"
                " WHERE s.segment_id IS NULL OR s.birth_event > a.birth_event"), 0)


class Job(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        subprocess.run([MAKE_TRACE, cls.directory.name], check=True)
        cls.output = os.path.join(cls.directory.name, "job.db")
        TOOL.export(cls.directory.name, "sqlite", cls.output, "--events")
        cls.base = Database(cls.output)

    @classmethod
    def tearDownClass(cls):
        cls.base.close()
        cls.directory.cleanup()

    def test_ranks(self):
        self.assertEqual(self.base.all("SELECT rank, host, pid, clock_offset_ns FROM ranks"),
                         [(0, "node-a", 4711, 0), (1, "node-b", 4711, 500_000)])

    def test_activity(self):
        for table, rows in (("kernels", 400), ("copies", 2), ("collectives", 10),
                            ("communicators", 2), ("samples", 20), ("driver_events", 2),
                            ("marks", 2 * 9), ("out_of_memory", 2)):
            self.assertEqual(self.base.one(f"SELECT count(*) FROM {table}"), rows, table)
        self.assertEqual(
            self.base.all("SELECT name, count(*), sum(duration_ns) FROM kernels WHERE rank_id = 1"
                          " GROUP BY name ORDER BY name"),
            [("gemm", 100, 800_000), ("relu<float>", 100, 1_500_000)])
        self.assertEqual(self.base.one("SELECT count(*) FROM marks WHERE end_ns IS NULL"), 2)

    def test_ranks_do_not_share_stacks(self):
        self.assertEqual(self.base.one(
            "SELECT count(*) FROM allocations a JOIN stacks s USING (stack_id)"
            " WHERE a.rank_id <> s.rank_id"), 0)

    def test_a_part(self):
        output = os.path.join(self.directory.name, "part.db")
        TOOL.export(self.directory.name, "sqlite", output, "--ranks", "1", "--time", "100us..200us")
        part = Database(output)
        start = self.base.one("SELECT start_ns FROM trace")
        self.assertEqual(part.all("SELECT rank FROM ranks"), [(1,)])
        self.assertEqual(
            part.one("SELECT count(*) FROM kernels"),
            self.base.one("SELECT count(*) FROM kernels WHERE rank_id = 2 AND start_ns <= ? AND"
                          " start_ns + duration_ns >= ?", start + 200_000, start + 100_000))
        self.assertEqual(part.one("SELECT count(*) FROM sqlite_master WHERE name = 'events'"), 0)
        part.close()

    def test_csv_has_the_same_rows(self):
        output = os.path.join(self.directory.name, "tables")
        TOOL.export(self.directory.name, "csv", output, "--events")
        tables = [r[0] for r in self.base.all("SELECT name FROM sqlite_master WHERE type = 'table'"
                                              " AND name NOT LIKE 'sqlite_%'")]
        self.assertEqual(sorted(os.listdir(output)),
                         sorted([t + ".csv" for t in tables] + ["load.sql"]))
        with open(os.path.join(output, "load.sql"), encoding="utf-8") as file:
            load = file.read()
        empty = sqlite3.connect(":memory:")
        self.addCleanup(empty.close)
        for table in tables:
            create, copy = re.findall(rf"^(?:CREATE TABLE|COPY) {table} .*$", load, re.M)
            empty.execute(create)
            self.assertEqual(copy, f"COPY {table} FROM '{table}.csv' (HEADER);")
            self.assertEqual([r[1] for r in empty.execute(f"PRAGMA table_info({table})")],
                             [r[1] for r in self.base.all(f"PRAGMA table_info({table})")])
        for table in tables:
            with open(os.path.join(output, table + ".csv"), newline="") as file:
                header, *rows = list(csv.reader(file))
            self.assertEqual(header, [r[1] for r in self.base.all(f"PRAGMA table_info({table})")])
            wanted = [["" if v is None else str(v) for v in row]
                      for row in self.base.all(f"SELECT * FROM {table}")]
            self.assertEqual(sorted(rows), sorted(wanted), table)
        # Tables that a later export does not have are removed; another program's file is not.
        TOOL.export(self.directory.name, "csv", output)
        self.assertEqual(sorted(os.listdir(output)),
                         sorted([t + ".csv" for t in tables if t != "events"] + ["load.sql"]))
        with open(os.path.join(output, "events.csv"), "w", encoding="utf-8") as file:
            file.write("day,event\n")
        TOOL.export(self.directory.name, "csv", output)
        self.assertTrue(os.path.exists(os.path.join(output, "events.csv")))

    def test_nothing_half_written(self):
        for form in ("sqlite", "csv", "snapshot"):
            output = os.path.join(self.directory.name, "small." + form)
            done = TOOL.run("export", self.directory.name, "--format", form, "-o", output,
                            "--ranks", "0", "--max-size", "10")
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertFalse(os.path.exists(output))

    def test_an_existing_database_stays_until_it_is_replaced(self):
        output = os.path.join(self.directory.name, "old.db")
        with open(output, "w") as file:
            file.write("old")
        done = TOOL.run("export", self.directory.name, "--format", "sqlite", "-o", output,
                        "--max-size", "10")
        self.assertEqual(done.returncode, 2)
        with open(output) as file:
            self.assertEqual(file.read(), "old")


class Refusals(unittest.TestCase):
    """Requests that the driver refused to PyTorch are part of its own error, as in the report."""

    def test_an_error_is_listed_once(self):
        start = 10**18
        with tempfile.TemporaryDirectory() as directory:
            trace = TraceFile()
            trace.table(1, "Processes", [{"rank": -1, "local_rank": -1, "pid": 7, "source": 1,
                                          "start_ns": start}])
            refused = {"size_bytes": 1 << 40, "operation": 1, "kind": 1, "result": 2,
                       "owner": trace.string(1, "torch")}
            trace.table(1, "DriverEvents", [dict(refused, time_ns=start + t) for t in (20, 30)])
            block = {"address": 1 << 40, "size_bytes": 2 << 20, "block_bytes": 2 << 20}
            trace.table(1, "FrameworkEvents", [
                dict(block, time_ns=start + 10, action=4), dict(block, time_ns=start + 11, action=1),
                {"time_ns": start + 40, "action": 8, "size_bytes": 1 << 40, "address": 5 << 20}])
            trace.table(1, "OutOfMemory", [
                {"time_ns": start + t, "requested_bytes": 1 << 40, "device_free_bytes": 5 << 20,
                 "layer": layer} for t, layer in ((20, 2), (30, 2), (40, 1))])
            path = trace.save(os.path.join(directory, "run.tmk"))
            output = os.path.join(directory, "run.db")
            TOOL.export(path, "sqlite", output)
            database = Database(output)
            self.assertEqual(database.all("SELECT layer, time_ns FROM out_of_memory"),
                             [("torch", start + 40)])
            database.close()
            device, = TOOL.report(path)["ranks"][0]["devices"]
            self.assertEqual((device["oom_count"], device["oom"][0]["driver_refusals"]), (1, 2))


class LongTexts(unittest.TestCase):
    """Rows and keys longer than a page of the database."""

    def test_long_texts_come_back_whole(self):
        base, segment = 1 << 40, 1 << 24
        names = [f"{i:04}" + "é" * (7000 * (i % 5)) for i in range(40)]
        trace = [{"action": "segment_alloc", "addr": base, "size": segment, "stream": 0,
                  "time_us": 1, "frames": []}]
        trace += [{"action": "alloc", "addr": base + 512 * i, "size": 512, "stream": 0,
                   "time_us": 2 + i, "user_metadata": "m" * (1600 * i),
                   "frames": [{"name": "f", "filename": name, "line": i}]}
                  for i, name in enumerate(names)]
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "long.pickle")
            with open(path, "wb") as file:
                pickle.dump({"segments": [], "device_traces": [trace],
                             "allocator_settings": {}, "external_annotations": []}, file, 4)
            output = os.path.join(directory, "long.db")
            TOOL.export(path, "sqlite", output)
            base = Database(output)
            self.assertEqual(base.one("PRAGMA integrity_check"), "ok")
            self.assertEqual([r[0] for r in base.all("SELECT file FROM frames ORDER BY file")],
                             sorted(names, key=str.encode))
            self.assertEqual(base.one("SELECT line FROM frames WHERE file = ?", names[-1]), 39)
            self.assertEqual(
                base.all("SELECT coalesce(length(metadata), 0) FROM allocations"
                         " ORDER BY birth_event"), [(1600 * i,) for i in range(40)])
            base.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
