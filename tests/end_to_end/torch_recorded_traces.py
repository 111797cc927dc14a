"""Compares traces of PyTorch programs, recorded on a real GPU, with torch's own statistics.

    python3 torch_recorded_traces.py TIDEMARK TRACES

TRACES (samples/traces/torch) has for each program a trace with both tiers, one with tier 1 alone,
and torch's statistics.
"""
import json
import pathlib
import subprocess
import sys
import unittest

TIDEMARK, TRACES = sys.argv[1], pathlib.Path(sys.argv[2])


def report(trace, *options):
    done = subprocess.run([TIDEMARK, "report", trace, "--json", *options], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["ranks"][0]["devices"][0]


class RecordedTraces(unittest.TestCase):
    def test_peaks_equal_torch_to_the_byte(self):
        truths = sorted(TRACES.glob("*.json"))
        self.assertGreaterEqual(len(truths), 18)
        for path in truths:
            truth = json.loads(path.read_text())
            device = report(path.with_suffix(".tmk"))
            names = ["allocated", "reserved"]
            if path.stem.endswith("tier2"):
                names.append("requested")
            else:  # unknown, and not guessed
                self.assertIsNone(device["requested_peak"])
            for name in names:
                with self.subTest(trace=path.stem, peak=name):
                    self.assertEqual(device[f"{name}_peak"]["bytes"], truth[f"{name}_peak"])
            with self.subTest(trace=path.stem, what="out-of-memory errors"):
                ooms = [oom for oom in device["oom"] if oom["layer"] == "torch"]
                self.assertEqual(len(ooms), truth["ooms"])

    def test_the_peak_names_the_script_or_the_backward_node(self):
        for name in ("training", "mixed_precision"):
            device = report(TRACES / f"{name}.tier2.tmk", "--stacks", "100000")
            total = sum(stack["bytes"] for stack in device["by_stack"])
            named = sum(stack["bytes"] for stack in device["by_stack"]
                        if any("programs.py:" in frame for frame in stack["frames"])
                        or stack["frames"][0].endswith(("Backward0", "AccumulateGrad")))
            with self.subTest(trace=name):
                self.assertEqual(total, device["allocated_peak"]["bytes"])
                self.assertGreaterEqual(named, 0.99 * total)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
