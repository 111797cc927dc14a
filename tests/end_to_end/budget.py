"""Kernels in bursts, through every command: what was left out is said, drawn into exports, and true.

    python3 budget.py TIDEMARK SIMGPU_LIBRARIES LAUNCH_HOST
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from perfetto_file import PerfettoFile  # noqa: E402

TIDEMARK, LIBRARIES, HOST = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
LINE = "kernels recorded in bursts: "
# A recorded launch takes 20 us longer; one comes every 20 us otherwise.
DENSE = {"SIMGPU_KERNEL_TRACING_NS": "20000", "SIMGPU_KERNEL_US": "1"}


def run(*arguments, **environment):
    variables = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARIES), **environment)
    for name in ("TIDEMARK_OUT", "TIDEMARK_OVERHEAD", "CUDA_INJECTION64_PATH"):
        variables.pop(name, None)
    return subprocess.run([TIDEMARK, *arguments], env=variables, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=200)


class Budget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.out = cls.path / "out"
        cls.log = cls.path / "launches"
        # The share is 2 % unless another one is asked for.
        cls.done = run("run", "-o", cls.out, "--", HOST, cls.log, "100000", "20", "500", **DENSE)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def table(self, name):
        folder = self.path / "csv"
        if not folder.exists():
            self.assertEqual(run("export", self.out, "--format", "csv", "-o", folder).returncode, 0)
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def stretches(self):
        return [(int(row["begin_ns"]), int(row["end_ns"])) for row in self.table("marks")
                if row["kind"] == "not_recorded"]

    def test_bad_shares_are_one_line(self):
        for text in ("2", "0%", "fast", "101%", "-1%"):
            for command in (["run", f"--overhead={text}", "--", "true"],
                            ["attach", "1", f"--overhead={text}"]):
                done = run(*command)
                self.assertEqual(done.returncode, 2, command)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(text, done.stderr)

    def test_the_program_is_unharmed(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertEqual(len(self.log.read_text().splitlines()), 100_000)

    def test_report_info_and_json_say_it(self):
        text = run("report", self.out).stdout
        self.assertEqual(text.count(LINE), 1, text)
        self.assertIn("to stay below 2 % once the program has begun; with its beginning", text)
        self.assertIn("measured", text)
        self.assertIn(LINE, run("info", self.out).stdout)
        rank = json.loads(run("report", self.out, "--json").stdout)["ranks"][0]
        bursts = rank["loss"]["kernels_not_recorded"]
        self.assertEqual(bursts["budget"], "2 %")
        self.assertTrue(bursts["kernel_cost_measured"])
        self.assertGreater(bursts["kernel_cost_ns"], 5000)
        self.assertLess(bursts["recorded_share"], 1)
        left_out = sum(end - begin for begin, end in self.stretches())
        self.assertLess(abs(bursts["time_ns"] - left_out), 1e6)
        # Memory is complete: that is no loss.
        self.assertEqual(rank["loss"]["events_dropped"], 0)
        self.assertNotIn("!", run("report", self.out).stderr)

    def test_exports_have_the_stretches(self):
        stretches = self.stretches()
        self.assertGreater(len(stretches), 2)
        kernels = {int(row["grid_x"]) for row in self.table("kernels")}
        for line in self.log.read_text().splitlines():
            number, before, after = map(int, line.split())
            if not any(begin <= after and before <= end for begin, end in stretches):
                self.assertIn(number, kernels)
        trace = self.path / "trace.pftrace"
        self.assertEqual(
            run("export", self.out, "--format", "perfetto", "-o", trace).returncode, 0)
        names = [event.name for _, _, _, event in PerfettoFile(trace).slices()]
        self.assertEqual(names.count("kernels not recorded"), len(stretches))

    def test_every_allocation_is_recorded(self):
        sizes = [row["size_bytes"] for row in self.table("driver_events")
                 if row["operation"] == "allocate" and row["kind"] == "device"]
        self.assertEqual(sizes.count(str(1 << 20)), 200)

    def test_detaching_in_a_pause_leaves_kernels_to_the_next_recording(self):
        variables = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARIES), **DENSE)
        host = subprocess.Popen([TIDEMARK, "run", "--arm", "--", HOST, self.path / "armed", "400000",
                                 "20", "500"], env=variables, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(1)
            children = pathlib.Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text().split()
            self.assertEqual(len(children), 1)
            first, second = self.path / "first", self.path / "second"
            for out, share in ((first, "0.01%"), (second, "off")):
                done = run("attach", children[0], "--for", "2s", "--overhead", share, "-o", out)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(LINE, run("info", first).stdout)
            whole = run("info", second).stdout
            self.assertNotIn(LINE, whole)
            self.assertIn(" kernels", whole)
        finally:
            host.wait(120)
        self.assertEqual(host.returncode, 0, host.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
