"""Attaches to programs with the stand-in for PyTorch, and compares the traces with its statistics.

    python3 torch_attach.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY INJECTOR [TEST …]

TORCH_DIRECTORY contains the stand-in. TIDEMARK_ATTACH_CYCLES makes the test under load longer.
"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from control_client import HostTest, Refused, wait_for  # noqa: E402

TIDEMARK, LIBRARIES, TORCH, INJECTOR = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
PROGRAM = HERE.parent / "programs" / "torch_program.py"
CYCLES = int(os.environ.get("TIDEMARK_ATTACH_CYCLES", 8))


class TorchAttach(HostTest):
    def started(self, **environment):
        return self.host([sys.executable, "-B", PROGRAM, "obey", TORCH], LIBRARIES, INJECTOR,
                         **environment).ready()

    def truth(self, host):
        return json.loads(host.say("quiet"))

    def report(self, trace, *options):
        done = subprocess.run([TIDEMARK, "report", trace, "--json", *options], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return json.loads(done.stdout)["ranks"][0]

    def tables(self, trace, *names):
        folder = self.path / (pathlib.Path(trace).stem + ".csv")
        if not folder.exists():
            subprocess.run([TIDEMARK, "export", trace, "--format", "csv", "--events", "-o",
                            folder],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [list(csv.DictReader((folder / f"{name}.csv").read_text("utf-8").splitlines()))
                for name in names]

    def totals(self, trace):
        """The allocator's totals in the trace, at its start and at its end."""
        events, devices = self.tables(trace, "events", "devices")
        self.assertEqual([row["contradicting_events"] for row in devices], ["0"])
        names = ("allocated", "requested", "reserved")
        began = [row for row in events if row["time_ns"] == events[0]["time_ns"]]
        return [{name: int(row[f"{name}_bytes"]) for name in names}
                for row in (began[-1], events[-1])]

    def compare(self, truth, totals):
        self.assertEqual({name: truth[name] for name in totals}, totals)

    def health(self, trace):
        return [row["detail"] or "" for row in self.tables(trace, "health")[0]]

    def test_the_state_is_that_of_the_allocator(self):
        host = self.started()
        host.say("fill 700")
        before = self.truth(host)
        # The first one has to build the bridge; its events begin once that is loaded.
        trace = host.ask("start", out=self.out, kernels=0)["trace"]
        self.assertTrue(wait_for(lambda: list(self.cache.glob("tidemark/*.so"))))
        time.sleep(0.5)
        host.say("fill 500")
        host.say("empty")
        after = self.truth(host)
        ended = host.ask("stop")
        self.assertEqual(ended["dropped"], "0")
        began, end = self.totals(trace)
        self.compare(before, began)
        self.compare(after, end)

        # The next one finds the bridge loaded.
        host.say("fill 300")
        before = self.truth(host)
        trace = host.ask("start", out=self.out)["trace"]
        host.say("fill 200")
        after = self.truth(host)
        host.ask("stop")
        began, end = self.totals(trace)
        self.compare(before, began)
        self.compare(after, end)
        self.assertFalse([text for text in self.health(trace) if "torch" in text])
        allocations, = self.tables(trace, "allocations")
        self.assertTrue({row["before_history"] for row in allocations} == {"0", "1"})

        device = self.report(trace)["devices"][0]
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        self.assertGreater(device["ledger_device_used_bytes"], 0)
        self.assertEqual(sum(ledger.values()), device["ledger_device_used_bytes"])
        self.assertGreater(ledger["pre_attach"], 0)
        self.assertNotIn("context", ledger)
        self.assertEqual(ledger.get("torch.other", 0), 0)
        self.assertEqual(ledger["unexplained"], 0)

        # No events after the end.
        host.say("fill 300")
        self.assertEqual(host.end()[1:], (0, ""))

    def test_a_recording_that_ends_before_the_bridge_is_there_says_so(self):
        host = self.started(XDG_CACHE_HOME=str(self.path / "empty"))
        host.say("fill 100")
        trace = host.ask("start", out=self.out)["trace"]
        host.ask("stop")  # immediately: compiling takes longer
        notes = self.report(trace)["loss"]["notes"]
        self.assertEqual(len([note for note in notes if "the bridge was not ready" in note]), 1, notes)
        text = subprocess.run([TIDEMARK, "report", trace], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        self.assertEqual(len([line for line in text.splitlines()
                              if "the bridge was not ready" in line]), 1, text)

    def test_attach_builds_the_bridge_first(self):
        host = self.started(XDG_CACHE_HOME=str(self.path / "fresh"))
        host.say("fill 300")
        truth = self.truth(host)
        done = subprocess.run([TIDEMARK, "attach", str(host.pid), "--for", "0.3s", "-o", self.out],
                              env={**os.environ, "TIDEMARK_CONTROL_DIR": str(self.path / "control")},
                              check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.stderr.count("compiling the bridge to PyTorch"), 1, done.stderr)
        trace, = self.out.glob("*.tmk")
        began, _ = self.totals(trace)
        self.compare(truth, began)
        self.assertFalse([text for text in self.health(trace) if "torch" in text])
        again = subprocess.run([TIDEMARK, "attach", str(host.pid), "--for", "0.1s", "-o", self.out],
                               env={**os.environ, "TIDEMARK_CONTROL_DIR": str(self.path / "control")},
                               check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertNotIn("building", again.stderr)
        self.assertEqual(host.end()[1:], (0, ""))

    def test_no_event_is_lost_or_doubled_under_load(self):
        host = self.started()
        host.say("fill 300")
        host.ask("start", out=self.out)  # builds the bridge if necessary
        self.assertTrue(wait_for(lambda: list(self.cache.glob("tidemark/*.so"))))
        time.sleep(0.5)
        host.ask("stop")
        for cycle in range(CYCLES):
            host.say("threads 6")
            time.sleep(0.05)
            trace = host.ask("start", out=self.out, kernels=0, stacks="none", buffer_mb=32)["trace"]
            time.sleep(0.2)
            after = self.truth(host)
            self.assertEqual(host.ask("stop")["dropped"], "0")
            began, end = self.totals(trace)
            self.assertGreater(began["allocated"], 0, cycle)
            self.compare(after, end)
        self.assertEqual(host.end()[1:], (0, ""))

    def test_stopping_and_starting_under_load(self):
        host = self.started()
        host.say("threads 6")
        for _ in range(CYCLES):
            host.ask("start", out=self.out)
            time.sleep(0.05)
            host.ask("stop")
        self.truth(host)
        self.assertEqual(host.end()[1:], (0, ""))

    def test_without_a_bridge_it_says_so(self):
        host = self.started(TIDEMARK_BRIDGE="0")
        host.say("fill 200")
        trace = host.ask("start", out=self.out)["trace"]
        host.say("fill 100")
        host.ask("stop")
        self.assertTrue([text for text in self.health(trace)
                         if "memory allocated before the recording began is not known" in text])
        device = self.report(trace)["devices"][0]
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        self.assertGreater(ledger["pre_attach"], 0)
        self.assertTrue(all(value >= 0 for value in ledger.values()), ledger)

    def test_a_snapshot(self):
        host = self.started()
        host.say("fill 600")
        truth = self.truth(host)
        trace = host.ask("snapshot", out=self.out)["trace"]
        began, end = self.totals(trace)
        self.compare(truth, began)
        self.assertEqual(began, end)
        self.assertTrue(self.report(trace)["devices"][0]["state_only"])
        self.assertEqual(host.end()[1:], (0, ""))

    def test_nobody_asks_torch_after_its_end(self):
        for recorded in (False, True):
            host = self.started(STANDIN_SLOW_END="1")
            host.say("fill 30")
            host.ask("snapshot", out=self.path / "builds")
            if recorded:
                host.ask("start", out=self.out)
            self.assertIn("d0_requested", host.ask("live"))
            host.process.stdin.close()
            while host.process.poll() is None:  # its end takes a second
                try:
                    host.ask("live")
                except (OSError, Refused):
                    pass
            self.assertEqual(host.process.returncode, 0)
            host.process.stdin = None

    def test_live_totals(self):
        host = self.started()
        host.say("fill 300")
        self.assertNotIn("d0_allocated", host.ask("live"))  # a mere query loads nothing
        host.ask("snapshot", out=self.path / "builds")
        host.say("fill 50")
        truth, live = self.truth(host), host.ask("live")
        self.assertEqual((int(live["d0_allocated"]), int(live["d0_reserved"]), live["state"]),
                         (truth["allocated"], truth["reserved"], "armed"))
        host.ask("start", out=self.out)
        host.say("fill 100")
        truth, live = self.truth(host), host.ask("live")
        self.assertEqual((int(live["d0_allocated"]), int(live["d0_reserved"])),
                         (truth["allocated"], truth["reserved"]))
        host.ask("stop")

        # Another process finds the bridge in the cache, if it may use it.
        other = self.started()
        other.say("fill 70")
        truth, live = self.truth(other), other.ask("live", torch=1)
        self.assertEqual((int(live["d0_allocated"]), int(live["d0_reserved"])),
                         (truth["allocated"], truth["reserved"]))
        self.assertEqual(other.end()[1:], (0, ""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
