"""Records programs with the stand-in for PyTorch and a limited window, and compares what is kept.

    python3 flight_recorder.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY INJECTOR [TEST …]
"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from control_client import Host, wait_for  # noqa: E402

TIDEMARK, LIBRARIES, TORCH, INJECTOR = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
PROGRAM = HERE.parent / "programs" / "torch_program.py"


class FlightRecorder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.cache = pathlib.Path(cls.shared.name) / "cache"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "out"
        self.hosts = []

    def tearDown(self):
        for host in self.hosts:
            host.process.kill()
            host.process.communicate()
        self.folder.cleanup()

    def started(self, **environment):
        variables = dict(XDG_CACHE_HOME=str(self.cache), CXX=None, TIDEMARK_ARM=None,
                         TIDEMARK_OUT=str(self.out))
        variables.update(environment)
        self.hosts.append(Host([sys.executable, "-B", PROGRAM, "obey", TORCH],
                               self.path / "control", LIBRARIES, INJECTOR, **variables))
        return self.hosts[-1].ready()

    def tidemark(self, *words, status=0, **environment):
        done = subprocess.run([TIDEMARK, *map(str, words)], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(self.path / "control"),
                                       XDG_CACHE_HOME=str(self.cache), **environment))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def tables(self, trace, *names):
        folder = self.path / f"csv{len(list(self.path.glob('csv*')))}"
        self.tidemark("export", trace, "--format", "csv", "--events", "-o", folder)
        return [list(csv.DictReader((folder / f"{name}.csv").read_text("utf-8").splitlines()))
                for name in names]

    def run_a_while(self, host, rounds=3):
        """The window moves on."""
        for _ in range(rounds):
            host.say("fill 400")
            host.say("threads 2")
            time.sleep(1)
            truth = json.loads(host.say("quiet"))
        return truth

    def check_window(self, trace, truth, totals):
        events, devices, allocations, frames, order = self.tables(
            trace, "events", "devices", "allocations", "frames", "stack_frames")
        self.assertEqual([row["contradicting_events"] for row in devices], ["0"])
        self.assertEqual({name: int(events[-1][f"{name}_bytes"]) for name in totals},
                         {name: truth[name] for name in totals})
        kept = (int(events[-1]["time_ns"]) - int(events[0]["time_ns"])) / 1e9
        self.assertLess(kept, 2.5)
        return allocations, {row["frame_id"]: row for row in frames}, order

    def test_a_sealed_window_is_exact_and_knows_the_lines_of_older_blocks(self):
        self.started(TIDEMARK_KEEP="1s").say("fill 10")  # builds the bridge
        self.assertTrue(wait_for(lambda: list(self.cache.glob("tidemark/*.so"))))
        host = self.started(TIDEMARK_KEEP="1s,64MiB")
        truth = self.run_a_while(host)
        sealed = self.tidemark("seal", host.pid, "--name", "here").strip()
        self.assertEqual(pathlib.Path(sealed).parent, self.out / "here")
        allocations, frames, order = self.check_window(
            sealed, truth, ("allocated", "requested", "reserved"))
        older = [row for row in allocations if row["before_history"] == "1"]
        self.assertGreater(len(older), 20)
        first = {row["stack_id"]: frames[row["frame_id"]] for row in order
                 if row["position"] == "0"}
        for row in older:
            self.assertTrue(first[row["stack_id"]]["file"].endswith("torch_program.py"))
        device = json.loads(self.tidemark("report", sealed, "--json"))["ranks"][0]["devices"][0]
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        self.assertEqual(sum(ledger.values()), device["ledger_device_used_bytes"])

        # The recording goes on; killed, it leaves its last window.
        truth = self.run_a_while(host, 2)
        time.sleep(0.2)
        host.process.kill()
        host.process.wait()
        trace, = self.out.glob(f"*-{host.pid}.tmk")
        self.check_window(trace, truth, ("allocated", "requested", "reserved"))

    def test_a_window_without_the_bridge(self):
        host = self.started(TIDEMARK_KEEP="1s", TIDEMARK_BRIDGE="0")
        truth = self.run_a_while(host)
        sealed = self.tidemark("seal", host.pid).strip()
        self.assertTrue(pathlib.Path(sealed).parent.name.startswith("seal-"))
        self.check_window(sealed, truth, ("allocated", "reserved"))

    def test_all_ranks_of_a_job_are_sealed_under_one_name(self):
        hosts = [self.started(TIDEMARK_KEEP="64MiB", TIDEMARK_JOB="j7", RANK=str(rank),
                              WORLD_SIZE="2") for rank in range(2)]
        for host in hosts:
            host.say("fill 100")
        other = self.started(TIDEMARK_KEEP="64MiB", TIDEMARK_JOB="j8", RANK="0", WORLD_SIZE="1")
        other.say("fill 100")
        printed = self.tidemark("seal", "--job", "j7", "--name", "both").split()
        files = sorted((self.out / "both").glob("*.tmk"))
        self.assertEqual(sorted(printed), [str(file) for file in files])
        self.assertEqual(len(files), 2)
        # One of them is told alone, and tells the other.
        hosts[0].ask("seal", name="second", together="1")
        self.assertTrue(wait_for(lambda: len(list((self.out / "second").glob("*.tmk"))) == 2, 20))
        report = json.loads(self.tidemark("report", self.out / "second", "--json"))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1])

    def test_an_out_of_memory_error_is_kept(self):
        self.tidemark("run", "-q", "--keep", "30s", "--keep", "64MiB", "-o", self.out, "--",
                      sys.executable, "-B", PROGRAM, "out_of_memory", TORCH,
                      LD_LIBRARY_PATH=str(LIBRARIES), TRUTH=str(self.path / "truth.json"))
        sealed, = self.out.glob("oom-*")
        report = json.loads(self.tidemark("report", sealed, "--json"))
        self.assertTrue(report["ranks"][0]["devices"][0]["oom"])

    def test_messages(self):
        self.assertIn("--keep '10x'", self.tidemark("run", "--keep", "10x", "--", "true", status=2))
        self.assertIn("--keep '10'", self.tidemark("run", "--keep", "10", "--", "true", status=2))
        host = self.started()
        host.say("fill 10")
        self.assertIn("records everything", self.tidemark("seal", host.pid, status=2))
        self.assertFalse((self.out / "tidemark-seals").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
