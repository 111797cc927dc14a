"""Asks the database of every recorded trace twelve questions; its report must answer the same.

    python3 export_questions.py TIDEMARK SOURCE_DIRECTORY

The traces are snapshots, jobs of several ranks, and traces of the driver alone. Every query of
docs/export.md runs on all of them too.
"""
import collections
import os
import pathlib
import re
import sqlite3
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from perfetto_file import PerfettoFile  # noqa: E402
from recordings import recordings  # noqa: E402
from tool import Tool  # noqa: E402

TOOL = Tool(sys.argv[1])
ROOT = sys.argv[2]

ALLOCATED = ("rank_id = :r AND device = :d AND birth_event <= :e"
         " AND (release_event IS NULL OR release_event > :e)")
GIVEN_OUT = ("rank_id = :r AND device = :d AND on_card AND birth_ns <= :t"
             " AND (death_ns IS NULL OR death_ns > :t)")


def documented_queries():
    with open(os.path.join(ROOT, "docs/export.md"), encoding="utf-8") as file:
        text = file.read()
    section = text[text.index("\n## SQLite"):text.index("\n## CSV")]
    block = re.search(r"```sql\n(.*?)```", section, re.S).group(1)
    return [q for q in block.split(";") if q.strip()]


def summed(rows):
    """key -> (bytes, count), summed over rows with the same key."""
    sums = collections.defaultdict(lambda: (0, 0))
    for key, size, count in rows:
        sums[key] = (sums[key][0] + size, sums[key][1] + count)
    return dict(sums)


class Trace:
    """The database of one trace, and its report."""

    def __init__(self, path, directory):
        self.path = path
        self.report = TOOL.report(path)
        output = os.path.join(directory, "out.db")
        TOOL.export(path, "sqlite", output)
        self.base = sqlite3.connect(f"file:{output}?mode=ro", uri=True)
        ids = [r for r, in self.base.execute("SELECT rank_id FROM ranks ORDER BY rank_id")]
        # Processes have the same order in both.
        self.devices = [(rank, dict(r=rank_id, d=device["device"]), device)
                        for rank_id, rank in zip(ids, self.report["ranks"])
                        for device in rank["devices"]]

    def all(self, sql, values=()):
        return self.base.execute(sql, values).fetchall()


class Questions(unittest.TestCase):
    def test_every_trace(self):
        self.seen = collections.Counter()
        self.queries = documented_queries()
        self.assertEqual(len(self.queries), 15)
        for path in recordings(ROOT):
            with self.subTest(os.path.relpath(path, ROOT)), \
                    tempfile.TemporaryDirectory() as directory:
                trace = Trace(path, directory)
                self.ask(trace, directory)
                trace.base.close()
        # Every kind must occur in some recording, or nothing would check it.
        for what in ("torch", "driver only", "category", "stack", "ledger", "holes", "growth",
                     "ranks", "oom", "driver oom", "used", "kernels", "waits", "findings",
                     "evidence", "advice", "unknown requests", "missed by readings"):
            self.assertGreater(self.seen[what], 0, what)

    def ask(self, trace, directory):
        self.assertEqual(trace.all("PRAGMA integrity_check"), [("ok",)])
        for query in self.queries:
            trace.all(query)
        self.assertEqual(len(trace.all("SELECT * FROM ranks")), len(trace.report["ranks"]))
        for _, at, device in trace.devices:
            self.peaks(trace, at, device)
            self.ledger(trace, at, device)
            self.steps(trace, at, device)
            self.errors(trace, at, device)
            if device["allocated_peak"]["bytes"]:
                self.live_at_the_peak(trace, at, device)
                self.holes(trace, at, device)
            else:
                self.given_out_at_the_peak(trace, at, device)
        self.ranks(trace)
        self.kernels(trace)
        self.waits(trace, directory)
        self.findings(trace)

    def peaks(self, trace, at, device):
        """1. How high were the peaks? 2. And the whole card, by its samples?"""
        names = ("allocated", "reserved", "driver", "device_used")
        columns = ", ".join(f"{n}_peak_bytes, {n}_peak_ns" for n in names)
        (row,) = trace.all(f"SELECT {columns} FROM devices WHERE rank_id = :r AND device = :d", at)
        for i, name in enumerate(names):
            peak = device[name + "_peak"]
            if name == "driver" and trace.report["source"]["kind"] == "torch-snapshot":
                self.assertIsNone(row[2 * i], "a snapshot knows nothing of the driver")
                continue
            self.assertEqual(row[2 * i], peak["bytes"], name)
            if peak["bytes"]:
                self.assertEqual(row[2 * i + 1], peak["time_ns"], name)
        self.seen["torch" if row[0] else "driver only"] += row[0] > 0 or (row[4] or 0) > 0
        ((requested, of_blocks),) = trace.all(
            "SELECT requested_peak_bytes, (SELECT count(*) FROM allocations a WHERE requested_bytes ="
            " 0 AND a.rank_id = :r AND a.device = :d) FROM devices WHERE rank_id = :r AND device = :d",
            at)
        told = device["requested_peak"]
        self.assertEqual(requested, told and told["bytes"], "requested")
        self.assertEqual(of_blocks, 0, "a size that is not known is NULL")
        self.seen["unknown requests"] += requested is None
        # One number for a card: of all processes that read it.
        ((used,),) = trace.all("SELECT max(value) FROM samples JOIN devices USING (rank_id, device)"
                               " WHERE kind = 'device_used' AND uuid IS (SELECT uuid FROM devices"
                               " WHERE rank_id = :r AND device = :d)", at)
        # Readings may miss the peak of the process itself.
        self.assertEqual(max(used, row[4] or 0) if used else 0, row[6])
        self.seen["missed by readings"] += used is not None and used < (row[4] or 0)
        self.seen["used"] += used is not None

    def live_at_the_peak(self, trace, at, device):
        """3. What was live at the peak, by category? 4. By stack?"""
        at = dict(at)
        ((at["e"],),) = trace.all("SELECT allocated_peak_event FROM devices WHERE rank_id = :r AND"
                                  " device = :d", at)
        rows = trace.all("SELECT category, sum(block_bytes), count(*) FROM allocations WHERE"
                         f" {ALLOCATED} GROUP BY 1", at)
        self.assertEqual(summed(rows), {c["category"]: (c["bytes"], c["count"])
                                        for c in device["by_category"]})
        self.seen["category"] += len(rows)
        rows = trace.all("SELECT coalesce(text, ''), sum(block_bytes), count(*) FROM"
                         " (SELECT stack_id, block_bytes FROM allocations WHERE"
                         f" {ALLOCATED}) LEFT JOIN stacks USING (stack_id) GROUP BY stack_id", at)
        self.same_stacks(rows, device)

    def given_out_at_the_peak(self, trace, at, device):
        """The same if only driver calls were recorded."""
        rows = trace.all("SELECT coalesce(text, ''), sum(size_bytes), count(*) FROM"
                         " (SELECT stack_id, size_bytes FROM driver_allocations WHERE"
                         f" {GIVEN_OUT}) LEFT JOIN stacks USING (stack_id) GROUP BY stack_id",
                         dict(at, t=device["at_ns"]))
        self.same_stacks(rows, device)

    def same_stacks(self, rows, device):
        told = [("\n".join(s["frames"]), s["bytes"], s["count"]) for s in device["by_stack"]]
        self.assertEqual(summed(rows), summed(told))
        self.seen["stack"] += len(rows)

    def ledger(self, trace, at, device):
        """5. Who held the card?"""
        def lines(moment):
            return trace.all("SELECT owner, bytes FROM ledger WHERE rank_id = :r AND device = :d"
                             " AND moment = :m ORDER BY rowid", dict(at, m=moment))
        rows = lines("report")
        self.assertEqual(rows, [(line["owner"], line["bytes"])
                                for line in device["ledger_at_peak"]])
        fuller = device["ledger_at_driver_peak"] or {"lines": []}
        self.assertEqual(lines("driver_peak"), [(line["owner"], line["bytes"])
                                                for line in fuller["lines"]])
        owners = trace.all(f"SELECT owner, sum(size_bytes) FROM driver_allocations WHERE {GIVEN_OUT}"
                           " GROUP BY 1", dict(at, t=device["ledger_time_ns"]))
        told = dict(rows)
        for owner, size in owners:
            # The report splits torch's memory into what it uses and what it caches.
            if owner in told:
                self.assertEqual(size, told[owner], owner)
                self.seen["ledger"] += 1

    def holes(self, trace, at, device):
        """6. How many holes were there, how large, and how much was free in them?"""
        moment = {"out-of-memory error": "last_out_of_memory", "reserved peak": "reserved_peak",
                  "allocated peak": "allocated_peak",
                  "": "allocated_peak"}[device["fragmentation"]["moment"]]  # only a state
        (row,) = trace.all("SELECT count(*), coalesce(max(size_bytes), 0),"
                           " coalesce(sum(size_bytes), 0) FROM holes WHERE rank_id = :r AND"
                           " device = :d AND moment = :m", dict(at, m=moment))
        told = device["fragmentation"]
        self.assertEqual(row[:2], (told["holes"], told["largest_hole_bytes"]))
        if told["holes"]:
            self.assertEqual(row[2], told["cached_free_bytes"])
        self.seen["holes"] += row[0]

    def steps(self, trace, at, device):
        """7. Does it grow from step to step?"""
        told = device["steps"]
        low = [r for r, in trace.all("SELECT low_bytes FROM steps WHERE rank_id = :r AND"
                                     " device = :d ORDER BY step", at)]
        self.assertEqual(len(low), told["count"])
        ((growth,),) = trace.all("SELECT growth_bytes_per_step FROM devices WHERE rank_id = :r AND"
                                 " device = :d", at)
        self.assertAlmostEqual(growth, told["growth_bytes_per_step"], delta=0.5)
        if growth and low:  # a program without PyTorch repeats itself without steps
            self.seen["growth"] += 1
            window = low[max(1, len(low) * 2 // 5):]
            half = len(window) // 2
            slopes = sorted((b - a) / half for a, b in zip(window, window[half:]))
            # The report looks at the steps in which memory grew.
            self.assertLess(abs(slopes[len(slopes) // 2] - growth), growth / 10)

    def errors(self, trace, at, device):
        """8. What did not fit, and what was allocated then?"""
        rows = trace.all("SELECT time_ns, layer, requested_bytes, text FROM out_of_memory"
                         " LEFT JOIN stacks USING (stack_id) WHERE out_of_memory.rank_id = :r AND"
                         " device = :d", at)
        # A driver call may fail for reasons other than memory.
        short = {t for t, in trace.all("SELECT time_ns FROM driver_events WHERE result = 2")}
        for oom in device["oom"]:
            if oom["layer"] == "driver" and oom["time_ns"] not in short:
                continue
            self.seen["oom" if oom["layer"] == "torch" else "driver oom"] += 1
            self.assertIn((oom["time_ns"], oom["layer"], oom["requested_bytes"],
                           "\n".join(oom["frames"]) or None), rows)

    def ranks(self, trace):
        """9. Which rank needs the most, and which is typical?"""
        told = trace.report["rank_comparison"]
        if not told["compared"]:
            return
        self.seen["ranks"] += 1
        column = "allocated" if told["layer"] == "torch" else "driver"
        heights = trace.all(f"SELECT rank, max({column}_peak_bytes) AS bytes FROM devices JOIN ranks"
                            " USING (rank_id) GROUP BY rank_id HAVING bytes > 0 ORDER BY rank")
        self.assertEqual(heights, sorted((h["rank"], h["bytes"]) for h in told["heights"]))
        ordered = sorted(bytes for _, bytes in heights)
        self.assertEqual(ordered[-1], told["highest"]["bytes"])
        self.assertEqual(ordered[(len(ordered) - 1) // 2], told["typical"]["bytes"])
        if told["layer"] == "torch":
            rows = trace.all(self.queries[13])
            self.assertEqual(rows[0][1:], (told["highest"]["bytes"],
                                           told["highest"]["bytes"] - told["typical"]["bytes"]))

    def kernels(self, trace):
        """10. How many kernels ran?"""
        ((count,),) = trace.all("SELECT count(*) FROM kernels")
        line = re.search(r"([\d,]+)  kernels", TOOL.run("info", trace.path).stdout)
        self.assertEqual(count, int(line.group(1).replace(",", "")) if line else 0)
        self.seen["kernels"] += count

    def waits(self, trace, directory):
        """11. How long did collectives wait for their last rank? Compared with the Perfetto file."""
        rows = {r[1:3] + r[:1]: r[3:] for r in trace.all(self.queries[14].replace("LIMIT 20", ""))}
        if len(trace.report["ranks"]) < 2 or not rows:
            return
        output = os.path.join(directory, "out.pftrace")
        TOOL.export(trace.path, "perfetto", output)
        starts = collections.defaultdict(list)
        for event in PerfettoFile(output).events:
            if event.category == "nccl" and "root" in event.args:
                key = (signed(event.args["communicator"]), event.args["sequence"], event.name)
                starts[key].append(signed(event.args["call_start_ns"]))
        for key, (ranks, wait) in rows.items():
            self.assertEqual((ranks, wait), (len(starts[key]), max(starts[key]) - min(starts[key])))
            self.seen["waits"] += wait > 0

    def findings(self, trace):
        """12. What does the report find, why, and what does it advise?"""
        found = trace.all("SELECT finding_id, id, severity, rank, device, summary FROM findings"
                          " ORDER BY finding_id")
        told = trace.report["findings"]
        self.assertEqual([row[1:] for row in found],
                         [(f["id"], f["severity"], f["rank"], f["device"], f["summary"])
                          for f in told])
        for (number, *_), finding in zip(found, told):
            self.seen["findings"] += 1
            evidence = trace.all("SELECT key, value FROM finding_evidence WHERE finding_id = ?",
                                 (number,))
            numbers = {k: v for k, v in finding["evidence"].items() if isinstance(v, int)}
            self.assertEqual(dict(evidence), numbers)
            self.seen["evidence"] += len(evidence)
            advice = trace.all("SELECT action, detail, saves_bytes FROM finding_advice"
                               " WHERE finding_id = ? ORDER BY rowid", (number,))
            self.assertEqual(advice, [(a["action"], a["detail"], a["saves_bytes"])
                                      for a in finding["advice"]])
            self.seen["advice"] += len(advice)


def signed(number):
    """A 64-bit number as SQLite shows it."""
    return number - (1 << 64) if number >= 1 << 63 else number


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
