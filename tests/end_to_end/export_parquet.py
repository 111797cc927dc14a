"""Checks the Parquet data set with DuckDB and hyparquet: every row against the SQLite export, and the
questions of docs/export.md over two hundred jobs against their reports.

    python3 export_parquet.py TIDEMARK SOURCES NODE_MODULES      exit 77 without the two readers
"""
import collections
import json
import pathlib
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCES / "tests" / "support"))
from growing_inputs import BASE, START, MiB, event, process_row, snapshot  # noqa: E402
from tool import Tool  # noqa: E402
from trace_file import TraceFile  # noqa: E402

TOOL = Tool(sys.argv[1])
MODULES = pathlib.Path(sys.argv[3]).resolve()
TRACES = ["samples/traces/ranks/guilty4", "samples/traces/run_out", "samples/traces/all_kinds",
          "tests/data/snapshots/oom_fraction.pickle.gz"]


class Readers:
    """DuckDB and hyparquet. node looks for them beside the script."""

    def __init__(self, folder):
        script = pathlib.Path(folder) / "parquet_reader.mjs"
        shutil.copy(SOURCES / "tests" / "end_to_end" / script.name, script)
        (script.parent / "node_modules").symlink_to(MODULES)
        self.node = subprocess.Popen(["node", script], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.node.stdin.write(json.dumps(question) + "\n")
        self.node.stdin.flush()
        answer = json.loads(self.node.stdout.readline())
        assert "rows" in answer, f"{question}: {answer}"
        return answer["rows"]

    def close(self):
        self.node.stdin.close()
        self.node.wait()
        self.node.stdout.close()


def plain(value):
    """Both readers' integers as integers."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


class Fleet(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.fleet = self.root / "fleet"
        self.readers = Readers(self.root)
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.readers.close)

    def duck(self, sql):
        return self.readers.ask(sql=sql)

    def files(self, table, job="*"):
        return f"read_parquet('{self.fleet}/{job}/*/{table}.parquet', hive_partitioning = true)"


class Rows(Fleet):
    def assert_equal_tables(self, base, job):
        """Every table, read by DuckDB over all ranks and by hyparquet file by file."""
        tables = [name for name, in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'"
                                                 " AND name NOT LIKE 'sqlite%'")]
        self.assertGreater(len(tables), 20)
        rows_seen = 0
        for table in tables:
            columns = [c[1] for c in base.execute(f"PRAGMA table_info({table})")]
            # The partition says rank and job, as the row itself does where it has them.
            kept = [c for c in columns if c not in ("job", "rank")]
            wanted = collections.Counter()
            for row in base.execute(f"SELECT {', '.join(kept)} FROM {table}"):
                wanted[tuple(map(plain, row))] += 1
            for name, rows in (
                    ("duckdb", self.duck(f"SELECT {', '.join(kept)} FROM {self.files(table, job)}")),
                    ("hyparquet", [row for path in self.fleet.glob(f"{job}/*/{table}.parquet")
                                   for row in self.readers.ask(file=str(path))])):
                got = collections.Counter(tuple(plain(row.get(c)) for c in kept) for row in rows)
                self.assertEqual(got, wanted, f"{table} by {name}")
            rows_seen += sum(wanted.values())
        return rows_seen

    def test_every_row_of_recorded_traces(self):
        for path in TRACES:
            with self.subTest(path):
                job = f"job={pathlib.Path(path).name.split('.')[0]}"
                name = job.partition("=")[2]
                TOOL.export(SOURCES / path, "parquet", self.fleet, "--append", "--job", name, "--events")
                TOOL.export(SOURCES / path, "sqlite", self.root / "all.db", "--events")
                with sqlite3.connect(self.root / "all.db") as base:
                    self.assertGreater(self.assert_equal_tables(base, job), 100)
        (count,) = self.duck(f"SELECT count(DISTINCT job) AS n FROM {self.files('trace')}")
        self.assertEqual(count, {"n": str(len(TRACES))})

    def test_values_at_their_limits(self):
        """Several row groups, nulls in any pattern, extreme integers, text of any kind."""
        chance = random.Random(4)
        texts = ["", "ü – 漢字", "x" * 5000, "a\nb\"c,d", "\x01"] + [f"name {i}" for i in range(999)]
        extremes = [0, 1, (1 << 62) + 5, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
        trace = TraceFile()
        trace.table(1, "Processes", [process_row(trace, 1, 3, 4)])
        rows = []
        for i in range(300_000):
            rows.append({"time_ns": START + i * chance.choice([1, 1, 1000]), "kind": 1,
                         "device": chance.randrange(2), "subject": chance.choice([0, 7, i]),
                         "value": chance.choice(extremes + [i, i * i])})
        rows.sort(key=lambda row: row["time_ns"])
        trace.table(1, "Counters", rows)
        marks = [{"time_ns": START + i, "kind": 1, "phase": 3, "thread": i // 1000,
                  "name": trace.string(1, chance.choice(texts)),
                  "domain": trace.string(1, chance.choice(texts)) if i % 3 else 0}
                 for i in range(3000)]
        trace.table(1, "Marks", marks)
        path = trace.save(self.root / "limits.tmk")
        TOOL.export(path, "parquet", self.fleet)
        TOOL.export(path, "sqlite", self.root / "all.db")
        with sqlite3.connect(self.root / "all.db") as base:
            self.assertGreater(self.assert_equal_tables(base, "job=j"), 300_000)
            groups = self.duck("SELECT count(DISTINCT row_group_id) AS n, min(stats_min_value::BIGINT) AS"
                               f" least FROM parquet_metadata('{self.fleet}/job=j/rank=3/"
                               "samples.parquet') WHERE path_in_schema = 'value'")
            (least,) = base.execute("SELECT min(value) FROM samples").fetchone(),
            self.assertEqual(groups, [{"n": "3", "least": str(least[0])}])

    def test_a_job_appears_whole_or_not_at_all(self):
        trace = SOURCES / TRACES[1]
        done = TOOL.run("export", trace, "--format", "parquet", "-o", self.fleet, "--max-size", "1KiB")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertEqual(sorted(p.name for p in self.root.iterdir()),
                         ["node_modules", "parquet_reader.mjs"])
        TOOL.export(trace, "parquet", self.fleet, "--job", "a/../b=1 %")
        self.assertEqual([p.name for p in self.fleet.iterdir()], ["job=a%2F..%2Fb%3D1%20%25"])
        self.assertEqual(self.duck(f"SELECT DISTINCT job FROM {self.files('ranks')}"),
                         [{"job": "a/../b=1 %"}])
        before = {p: p.stat().st_mtime_ns for p in self.fleet.rglob("*")}
        for more, said in ((["--job", "c"], "is not empty; --append adds a job"),
                           (["--append", "--job", "a/../b=1 %"], "has this job already")):
            done = TOOL.run("export", trace, "--format", "parquet", "-o", self.fleet, *more)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        self.assertEqual({p: p.stat().st_mtime_ns for p in self.fleet.rglob("*")}, before)
        done = TOOL.run("export", trace, "--format", "sqlite", "-o", self.root / "x.db", "--append")
        self.assertIn("--append and --job are for --format parquet", done.stderr)


def training(folder, i):
    """A job of one process: steps of which some keep memory, some waste it, some run out of it."""
    chance = random.Random(i)
    line = f"work{i % 7}.py"
    frames = [{"name": "step", "filename": line, "line": 10 + i % 3}]
    grows, runs_out, wastes = i % 5 == 1, i % 5 == 2, i % 5 == 3
    weight = chance.randrange(64, 512) * MiB
    batch = chance.randrange(16, 128) * MiB
    entries, at, now = [], BASE, 10**6 * (1000 + i)

    def add(action, address, size, line=0, **more):
        nonlocal now
        now += 50 + i
        stack = [{**frames[0], "line": frames[0]["line"] + line}]
        entries.append({**event(action, address, size, now, frames=stack), **more})

    def reserve(size):
        nonlocal at
        at += 1 << 34
        add("segment_alloc", at, size)
        return at

    add("alloc", reserve(weight), weight)
    if wastes:
        reserve(weight * 3)
    room = reserve(batch)
    for _ in range(40):
        for layer in range(8):
            add("alloc", room + layer * batch // 8, batch // 8, line=layer)
        for layer in range(8):
            add("free_requested", room + layer * batch // 8, batch // 8)
            add("free_completed", room + layer * batch // 8, batch // 8)
        if grows:
            add("alloc", reserve(20 * MiB), 20 * MiB, line=20)
    if runs_out:
        add("oom", 0, 1 << 40, device_free=3 * MiB)
    return snapshot(folder, f"train{i}", [entries])


def ranks(folder, i):
    """A job of four ranks on one node without PyTorch, one of them larger. Two share a card, and in
    every other job the samples of the card miss its peak."""
    job = folder / f"ranks{i}"
    job.mkdir()
    for rank in range(4):
        trace = TraceFile()
        row = {**process_row(trace, 1, rank, 4), "job": trace.string(1, f"ranks{i}")}
        trace.table(1, "Processes", [row])
        trace.table(1, "Devices", [{"ordinal": 0, "total_bytes": 16384 * MiB,
                                    "uuid": trace.string(1, f"GPU-{rank % 3}")}])
        size = (100 + i + (50 * i if rank == i % 4 else 0)) * MiB
        trace.table(1, "DriverEvents", [
            {"time_ns": START + 10**9 * (1 + rank), "operation": 1, "kind": 1, "address": 1 << 36,
             "size_bytes": size, "owner": trace.string(1, "program")}])
        trace.table(1, "Counters", [{"time_ns": START + 10**9 * s, "kind": 1,
                                     "value": size // (1 + 3 * (i % 2))}
                                    for s in (1, 60 + i)])
        trace.save(job / f"rank{rank}.tmk")
    return job


class Questions(Fleet):
    JOBS = 200

    def setUp(self):
        super().setUp()
        self.reports = {}
        inputs = self.root / "inputs"
        inputs.mkdir()
        for i in range(self.JOBS):
            path = ranks(inputs, i) if i % 5 == 4 else training(inputs, i)
            name = path.stem
            TOOL.export(path, "parquet", self.fleet, "--append", "--job", name)
            self.reports[name] = TOOL.report(path)

    def devices(self):
        for job, report in self.reports.items():
            for rank in report["ranks"]:
                for device in rank["devices"]:
                    yield job, rank, device

    def test_ten_questions(self):
        text = (SOURCES / "docs" / "export.md").read_text()
        section = text.partition("### Ten questions about a fleet")[2].partition("\n## ")[0]
        views, *questions = re.findall(r"```sql\n(.*?)```", section, re.S)
        self.assertEqual(len(questions), 10)
        for statement in views.split(";"):
            if statement.strip():
                self.duck(statement.replace("'fleet/", f"'{self.fleet}/"))
        answers = [[tuple(map(plain, row.values())) for row in self.duck(q)] for q in questions]

        wasted, peaks, growing = {}, collections.defaultdict(list), {}
        failed, causes, savings = collections.Counter(), collections.defaultdict(set), {}
        for job, rank, device in self.devices():
            peak = max(device["reserved_peak"]["bytes"], device["driver_peak"]["bytes"])
            peaks[job].append(peak)
            gap = device["reserved_peak"]["bytes"] - device["allocated_peak"]["bytes"]
            wasted[job] = max(wasted.get(job, 0), gap)
            growth = device["steps"]["growth_bytes_per_step"] if device.get("steps") else 0
            if growth:
                growing[job] = round(growth)
            for oom in device["oom"]:
                failed[oom["frames"][0]] += 1
        for job, report in self.reports.items():
            for finding in report["findings"]:
                if finding["severity"] != "info":
                    causes[finding["id"]].add(job)
                for advice in finding["advice"]:
                    savings[job] = max(savings.get(job, 0), advice["saves_bytes"])
        hours = {job: (report["source"]["end_ns"] - report["source"]["start_ns"]) / 3.6e12
                 for job, report in self.reports.items()}
        unused = collections.Counter()
        for (job, _), (total, peak, _) in self.cards().items():
            if total:
                unused[job] += (total - peak) * hours[job]

        self.assertEqual(answers[0], sorted(((j, w) for j, w in wasted.items() if w > 0),
                                            key=lambda a: (-a[1], a[0]))[:20])
        self.assertEqual(answers[1], sorted(failed.items(), key=lambda a: (-a[1], a[0])))
        self.assertEqual([j for j, *_ in answers[2]],
                         [j for j, _ in sorted(unused.items(), key=lambda a: (-a[1], a[0]))][:20])
        for job, gib_hours in answers[2]:
            self.assertAlmostEqual(gib_hours, unused[job] / 2**30, places=6)
        self.assertEqual(answers[3], sorted(growing.items(), key=lambda a: (-a[1], a[0])))
        spread = {j: max(p) - min(p) for j, p in peaks.items() if len(p) > 1}
        self.assertEqual(answers[4], sorted(spread.items(), key=lambda a: (-a[1], a[0])))
        self.assertEqual(answers[6], sorted(((c, len(j)) for c, j in causes.items()),
                                            key=lambda a: (-a[1], a[0])))
        self.assertEqual(answers[7], sorted(((j, s) for j, s in savings.items() if s > 0),
                                            key=lambda a: (-a[1], a[0]))[:20])
        self.check_the_rest(answers)

    def cards(self):
        """Of each job: total, highest use by any account, and whether the card was sampled."""
        cards = {}
        for job, rank, device in self.devices():
            key = (job, device["uuid"] or device["device"])
            total, peak, sampled = cards.get(key, (0, 0, False))
            peaks = [device[name]["bytes"] for name in ("device_used_peak", "reserved_peak",
                                                        "driver_peak")]
            cards[key] = (max(total, device["total_bytes"]), max(peak, *peaks), sampled or peaks[0] > 0)
        return cards

    def check_the_rest(self, answers):
        half_empty = collections.Counter()
        live = collections.Counter()
        for job, _, device in self.devices():
            if device["allocated_peak"]["bytes"]:
                for category in device["by_category"]:
                    live[category["category"]] += category["bytes"]
        for (job, _), (total, peak, sampled) in self.cards().items():
            if sampled and peak < total / 2:
                half_empty[job] += 1
        self.assertEqual(answers[5], sorted(half_empty.items()))
        self.assertGreater(len(answers[5]), 30)
        self.assertEqual(answers[8], [("n0", 3)])
        self.assertEqual(dict(answers[9]), dict(live))
        for number, answer in enumerate(answers):
            self.assertTrue(answer, f"question {number + 1}")


if __name__ == "__main__":
    if shutil.which("node") is None or not (MODULES / "@duckdb" / "node-api").is_dir():
        print("node with DuckDB and hyparquet is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
