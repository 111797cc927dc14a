"""Records the programs of torch_program.py with the real injector, and checks the traces.

    python3 torch_capture.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY INJECTOR TORCH_2_13

TORCH_DIRECTORY contains the stand-in for PyTorch, TORCH_2_13 the one in the shape of 2.13. Each program writes what the trace must contain.
"""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TIDEMARK, LIBRARIES, TORCH, INJECTOR, TORCH_2_13 = (
    pathlib.Path(path).resolve() for path in sys.argv[1:6])
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "torch_program.py"


class Recorded:
    """One run of a program: its output and its trace."""

    def __init__(self, folder, program, cache, through_run=True, torch=TORCH, **environment):
        self.folder = pathlib.Path(folder)
        self.out = self.folder / "out"
        self.truth_file = self.folder / "truth.json"
        self.told_file = self.folder / "told.json"
        variables = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARIES), XDG_CACHE_HOME=str(cache),
                         TRUTH=str(self.truth_file), TOLD=str(self.told_file))
        for name in ("TIDEMARK_OUT", "CUDA_INJECTION64_PATH", "CXX"):
            variables.pop(name, None)
        variables.update(environment)
        command = [sys.executable, "-B", PROGRAM, program, torch]
        if through_run:
            command = [TIDEMARK, "run", "-q", "-o", self.out, "--", *command]
        else:
            variables.update(CUDA_INJECTION64_PATH=str(INJECTOR), TIDEMARK_OUT=str(self.out))
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300)
        self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr

    def truth(self):
        return json.loads(self.truth_file.read_text())

    def told(self):
        return json.loads(self.told_file.read_text(encoding="utf-8"))

    def report(self, *options):
        done = subprocess.run([TIDEMARK, "report", self.out, "--json", *options], check=True,
                              stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)["ranks"][0]["devices"][0]

    def tables(self, *names):
        folder = self.folder / "csv"
        if not folder.exists():
            subprocess.run([TIDEMARK, "export", self.out, "--format", "csv", "-o", folder],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [list(csv.DictReader((folder / f"{name}.csv").read_text("utf-8").splitlines()))
                for name in names]

    def stacks(self):
        """Size of each allocation -> its frames as "function line", innermost first."""
        allocations, frames, order = self.tables("allocations", "frames", "stack_frames")
        by_frame = {frame["frame_id"]: frame for frame in frames}
        by_stack = {}
        for row in order:
            by_stack.setdefault(row["stack_id"], []).append((int(row["position"]), row["frame_id"]))
        result = {}
        for allocation in allocations:
            result.setdefault(int(allocation["block_bytes"]), []).append(
                [by_frame[frame] for _, frame in sorted(by_stack.get(allocation["stack_id"], []))])
        return result


class TorchCapture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.cache = pathlib.Path(cls.shared.name) / "cache"
        Recorded(cls.shared.name, "workers", cls.cache, through_run=False,
                 WAIT_FOR=str(cls.cache / "tidemark" / "*.so"))  # builds the bridge

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def record(self, program, status=0, cache=None, **options):
        recorded = Recorded(self.folder.name, program, cache or self.cache, **options)
        self.assertEqual(recorded.status, status, recorded.errors)
        return recorded

    def compare(self, recorded, names):
        truth, device = recorded.truth(), recorded.report()
        for name in names:
            self.assertEqual(device[f"{name}_peak"]["bytes"], truth[f"{name}_peak"], name)

    def test_both_tiers_agree_with_the_allocator(self):
        recorded = self.record("churn")
        self.compare(recorded, ["allocated", "requested", "reserved"])
        settings, = recorded.tables("settings")
        self.assertIn("attached", [row["value"] for row in settings if row["key"] == "torch_bridge"])
        allocations, = recorded.tables("allocations")
        self.assertGreater(len({row["stream"] for row in allocations}), 1)

    def modules_of(self, **options):
        recorded = self.record("nn_modules", **options)
        allocations, = recorded.tables("allocations")
        return ({int(size): path for size, path in recorded.told().items()},
                {int(row["requested_bytes"]): row["module"] or None for row in allocations})

    def test_each_block_has_its_nn_module(self):
        for torch in TORCH, TORCH_2_13:
            told, found = self.modules_of(torch=torch, PYTHONPATH=str(torch.parent))
            shutil.rmtree(self.folder.name + "/out")
            shutil.rmtree(self.folder.name + "/csv")
            wrong = [f"{size}: {path}, found {found.get(size)}" for size, path in told.items()
                     if found.get(size) != path]
            self.assertEqual(wrong, [], torch)
            self.assertGreater(len(told), 40)

    def test_with_native_stacks_too(self):
        told, found = self.modules_of(TIDEMARK_STACKS="all")
        self.assertEqual({size: found.get(size) for size in told}, told)

    def test_without_nn_modules(self):
        told, found = self.modules_of(TIDEMARK_MODULES="0")
        self.assertEqual({found[size] for size in told}, {None})

    def test_the_line_that_empties_the_cache_is_named(self):
        recorded = self.record("thrash")
        done = subprocess.run([TIDEMARK, "report", recorded.out, "--json"], check=True,
                              stdout=subprocess.PIPE, text=True)
        finding, = (f for f in json.loads(done.stdout)["findings"] if f["id"] == "cache_thrash")
        self.assertIn(f"torch_program.py:{recorded.told()}", finding["evidence"]["frames"][0])

    def test_tier_1_alone_agrees(self):
        recorded = self.record("churn", TIDEMARK_BRIDGE="0")
        self.compare(recorded, ["allocated", "reserved"])
        self.assertEqual(recorded.errors, "")

    def test_torch_that_comes_after_cuda(self):
        self.compare(self.record("late"), ["allocated", "requested", "reserved"])
        shutil.rmtree(self.folder.name + "/out")
        self.compare(self.record("late", TIDEMARK_BRIDGE="0"), ["allocated", "reserved"])

    def test_the_injector_builds_the_bridge_by_itself_and_switches_to_it(self):
        cache = pathlib.Path(self.folder.name) / "empty"
        recorded = self.record("churn", through_run=False, cache=cache,
                               WAIT_FOR=str(cache / "tidemark" / "*.so"))
        # The first requests, of unknown size, were small and freed before the peak.
        self.compare(recorded, ["allocated", "requested", "reserved"])
        settings, = recorded.tables("settings")
        self.assertIn("attached", [row["value"] for row in settings if row["key"] == "torch_bridge"])

    def test_run_builds_the_bridge_before_the_launch(self):
        recorded = self.record("churn", cache=pathlib.Path(self.folder.name) / "empty",
                               PYTHONPATH=str(TORCH.parent))
        self.compare(recorded, ["allocated", "requested", "reserved"])
        recorded = subprocess.run([TIDEMARK, "run", "--", sys.executable, "-c", "pass"],
                                  cwd=self.folder.name, stderr=subprocess.PIPE, text=True, env=dict(
                                      os.environ, PYTHONPATH=str(TORCH.parent),
                                      XDG_CACHE_HOME=self.folder.name + "/other"))
        self.assertIn("compiling the bridge to PyTorch 2.10.0+standin", recorded.stderr)

    def test_without_a_compiler_one_line_says_what_is_missing(self):
        cache = pathlib.Path(self.folder.name) / "empty"
        recorded = self.record("churn", cache=cache, PATH="/nowhere", through_run=False)
        self.compare(recorded, ["allocated", "reserved"])
        self.assertEqual(recorded.errors.count("\n"), 1, recorded.errors)
        self.assertIn("no C++ compiler", recorded.errors)

    def test_a_bridge_that_does_not_load_is_built_again(self):
        cache = pathlib.Path(self.folder.name) / "cache"
        shutil.copytree(self.cache, cache)
        bridge, = (cache / "tidemark").glob("*.so")
        bridge.write_text("built on another machine")
        digits = "[0-9a-f]" * 16
        recorded = self.record("churn", through_run=False, cache=cache,
                               WAIT_FOR=str(cache / "tidemark" / f"*-{digits}-{digits}.so"))
        self.assertEqual(recorded.errors, "")
        settings, = recorded.tables("settings")
        self.assertIn("attached", [row["value"] for row in settings if row["key"] == "torch_bridge"])
        self.assertEqual(bridge.read_text(), "built on another machine")

    def test_a_bridge_is_built_once_for_a_cluster(self):
        bridges = pathlib.Path(self.folder.name) / "bridges"
        done = subprocess.run([TIDEMARK, "bridge", "build", "--torch", TORCH, "-o", bridges],
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual([pathlib.Path(done.stdout.strip())], list(bridges.iterdir()))
        empty = pathlib.Path(self.folder.name) / "empty"
        recorded = self.record("churn", cache=empty, through_run=False, TIDEMARK_BRIDGE="prebuilt",
                               TIDEMARK_BRIDGE_DIR=str(bridges))
        self.compare(recorded, ["allocated", "requested", "reserved"])
        self.assertEqual(recorded.errors, "")
        done = subprocess.run([TIDEMARK, "bridge", "build", "--torch", bridges, "-o", bridges],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("contains no PyTorch", done.stderr)

    def test_a_rank_does_not_compile_if_the_bridge_must_be_prebuilt(self):
        cache = pathlib.Path(self.folder.name) / "empty"
        recorded = self.record("churn", cache=cache, TIDEMARK_BRIDGE="prebuilt",
                               PYTHONPATH=str(TORCH.parent))
        self.compare(recorded, ["allocated", "reserved"])
        self.assertIn("TIDEMARK_BRIDGE=prebuilt", recorded.errors)
        self.assertEqual(list(cache.rglob("*.so")), [])

    def test_the_environment_of_the_program_is_not_read_later(self):
        cache = pathlib.Path(self.folder.name) / "empty"
        # The second attempt to compile comes when the environment has changed.
        compiler = pathlib.Path(self.folder.name) / "compiler"
        compiler.write_text('#!/bin/sh\ncase "$*" in *-std=c++20*) sleep 1; exit 1;; esac\n'
                            'exec c++ "$@"\n')
        compiler.chmod(0o700)
        recorded = self.record("changing_environment", through_run=False, cache=cache,
                               CXX=str(compiler), WAIT_FOR=str(cache / "tidemark" / "*.so"),
                               SIMGPU_NVML_LOADS_SLOWLY="1")
        self.compare(recorded, ["allocated", "requested", "reserved"])

    def check_lines(self, recorded):
        stacks = recorded.stacks()
        told = recorded.told()
        self.assertGreater(len(told), 60)
        for size, *expected in told:
            found = [[f"{frame['function'].split('.')[-1]} {frame['line']}" for frame in stack]
                     for stack in stacks[size]]
            # Our innermost frame is the call into ctypes, one level deeper than traceback's.
            self.assertTrue(any(stack[-len(expected):] == expected for stack in found),
                            (size, expected, found))

    def test_frames_have_the_lines_python_reports(self):
        self.check_lines(self.record("lines"))

    def test_reading_with_the_gil_finds_the_same(self):
        self.check_lines(self.record("lines", TIDEMARK_PYTHON_GIL="1"))

    def test_calls_that_change_in_any_place_are_followed(self):
        recorded = self.record("calls")
        stacks = recorded.stacks()
        told = recorded.told()
        self.assertGreater(len(told), 1500)
        self.assertTrue(any(len(expected) > 250 for expected in told))
        for size, *expected in told:
            (stack,) = stacks[size]
            found = [f"{frame['function'].split('.')[-1]} {frame['line']}" for frame in stack]
            first = next(i for i, frame in enumerate(found) if frame.startswith("note "))
            self.assertGreater(len(found), min(len(expected), 120))
            # The line of the innermost frame is that of its allocation, one after it was told.
            self.assertEqual(found[first + 1:], expected[1:][:len(found) - first - 1], size)

    def test_threads_without_python(self):
        stacks = self.record("workers").stacks()
        functions = {size: [frame["function"] for stack in found for frame in stack]
                     for size, found in stacks.items()}
        self.assertIn("MmBackward0", functions[64 << 10])
        self.assertIn("loader", functions[128 << 10])
        qualified = sys.version_info >= (3, 11)
        self.assertIn("workers.<locals>.<lambda>" if qualified else "<lambda>",
                      functions[256 << 10])

    def test_nodes_that_count_their_own_references(self):
        # From 2.13 on torch's function returns one word under the name that used to return two.
        recorded = self.record("nodes", torch=TORCH_2_13, TIDEMARK_BRIDGE="0")
        self.assertEqual(recorded.output, "live nodes 0\n")
        self.assertIn("loader", [frame["function"] for frame in recorded.stacks()[64 << 10][-1]])
        health, = recorded.tables("health")
        self.assertIn("torch: without the bridge, backward nodes of this version have no names",
                      [row["detail"] for row in health])

    def test_nodes_that_count_their_own_references_are_named_by_the_bridge(self):
        cache = pathlib.Path(self.folder.name) / "cache"
        self.record("nodes", torch=TORCH_2_13, through_run=False, cache=cache,
                    WAIT_FOR=str(cache / "tidemark" / "*.so"))  # builds the bridge
        shutil.rmtree(self.folder.name + "/out")
        recorded = self.record("nodes", torch=TORCH_2_13, cache=cache)
        self.assertEqual(recorded.output, "live nodes 0\n")
        self.assertIn("MmBackward0",
                      [frame["function"] for frame in recorded.stacks()[64 << 10][-1]])

    def test_a_version_that_is_not_known_yet(self):
        torch = pathlib.Path(self.folder.name) / "packages" / "torch"
        shutil.copytree(TORCH_2_13, torch)
        (torch / "version.py").write_text("__version__ = '2.99.0'\n")
        recorded = self.record("churn", torch=torch)
        self.compare(recorded, ["allocated", "reserved"])
        self.assertEqual(recorded.errors.count("\n"), 1, recorded.errors)
        self.assertIn("PyTorch 2.99 is newer than this version of tidemark knows", recorded.errors)

    def packaged(self, name="lib{}.so.2.10.0"):
        """The stand-in as distributions install it: torch/lib has only links."""
        root = pathlib.Path(self.folder.name) / "usr/lib"
        libraries, torch = root / "x86_64-linux-gnu", root / "python3/dist-packages/torch"
        shutil.copytree(TORCH, torch, ignore=shutil.ignore_patterns("*.so"))
        libraries.mkdir()
        for library in ("c10", "c10_cuda", "torch_cpu"):
            real = libraries / name.format(library)
            shutil.copy(TORCH / f"lib/lib{library}.so", real)
            (libraries / f"lib{library}.so").symlink_to(real.name)
            (torch / f"lib/lib{library}.so").symlink_to(f"../../../../{real.parent.name}/{real.name}")
        return torch

    def test_libraries_of_a_distribution(self):
        torch = self.packaged()
        cache = pathlib.Path(self.folder.name) / "cache"
        recorded = self.record("churn", torch=torch, cache=cache, PYTHONPATH=str(torch.parent))
        self.compare(recorded, ["allocated", "requested", "reserved"])
        self.assertEqual(len(list(cache.rglob("*.so"))), 1)
        shutil.rmtree(recorded.out)
        recorded = self.record("workers", torch=torch, TIDEMARK_BRIDGE="0")
        self.compare(recorded, ["allocated", "reserved"])
        self.assertIn("MmBackward0", [frame["function"]
                                      for frame in recorded.stacks()[64 << 10][-1]])

    def test_a_library_with_another_name_is_told_to_be_missing(self):
        torch = self.packaged("lib{}-1a2b3c4d.so")
        recorded = self.record("churn", torch=torch)
        missing = "libc10_cuda.so is loaded under another name"
        self.assertEqual(recorded.errors.count(missing), 1, recorded.errors)
        for command in "report", "info":
            text = subprocess.run([TIDEMARK, command, recorded.out], stdout=subprocess.PIPE,
                                  text=True, check=True).stdout
            self.assertEqual(text.count(missing), 1, text)
            self.assertNotIn("No problems found.", text)
            self.assertNotIn("complete: nothing lost", text)

    def test_a_fork_leaves_the_parent_recording(self):
        recorded = self.record("forked")
        self.assertEqual(recorded.output, "child\nparent 3\n")
        self.compare(recorded, ["allocated", "requested", "reserved"])

    def test_the_interpreter_shuts_down_while_threads_allocate(self):
        for _ in range(5):
            shutil.rmtree(self.folder.name + "/out", ignore_errors=True)
            shutil.rmtree(self.folder.name + "/csv", ignore_errors=True)
            recorded = self.record("shutdown")
            self.assertEqual(recorded.output, "leaving\n")
            self.assertGreaterEqual(recorded.report()["allocated_peak"]["bytes"], 8 << 20)

    def test_an_error_is_explained_on_disk_before_the_program_sees_it(self):
        recorded = self.record("out_of_memory", status=-9, through_run=False)
        trace, = (path for path in recorded.out.glob("*.tmk"))
        alone = pathlib.Path(self.folder.name) / "alone.tmk"
        shutil.copy(trace, alone)  # without its ring: only what was written at the error
        done = subprocess.run([TIDEMARK, "report", alone, "--json"], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        oom, = json.loads(done.stdout)["ranks"][0]["devices"][0]["oom"]
        self.assertEqual(oom["layer"], "torch")
        self.assertEqual(oom["requested_bytes"], 30 << 20)
        self.assertEqual(oom["allocated_bytes"], 6 * (6 << 20))
        self.assertTrue(any("out_of_memory" in frame for frame in oom["frames"]), oom["frames"])
        rows, = recorded.tables("out_of_memory")
        framework = [row for row in rows if row["layer"] == "torch"]
        self.assertEqual(len(framework), 1, rows)

    def test_the_limit_of_a_fraction_is_the_one_that_torch_has(self):
        recorded = self.record("fraction")
        self.assertEqual(recorded.report()["limit"],
                         {"bytes": recorded.told(), "at_least": False, "source": "fraction"})

    def test_without_the_bridge_the_limit_of_a_fraction_is_a_lower_bound(self):
        recorded = self.record("fraction", TIDEMARK_BRIDGE="0")
        self.assertEqual(recorded.report()["limit"], {
            "bytes": recorded.truth()["reserved_peak"], "at_least": True, "source": "fraction"})

    def test_the_backend_that_leaves_all_to_the_driver(self):
        recorded = self.record("asynchronous")
        self.assertEqual(recorded.errors, "")
        device = recorded.report()
        for name, bytes_ in recorded.told().items():
            self.assertEqual(device[name]["bytes"], bytes_, name)
        allocated, = (line["bytes"] for line in device["ledger_at_peak"]
                      if line["owner"] == "torch.allocated")
        self.assertEqual(allocated, device["allocated_peak"]["bytes"])
        oom, = device["oom"]
        self.assertEqual((oom["layer"], oom["requested_bytes"]), ("torch", 1 << 50))
        self.assertTrue(any("asynchronous" in frame for frame in oom["frames"]), oom["frames"])
        self.assertTrue(any("asynchronous" in frame for frame in device["by_stack"][0]["frames"]))

    def test_memory_that_sleeps(self):
        recorded = self.record("sleeping")
        whole = json.loads(subprocess.run([TIDEMARK, "report", recorded.out, "--json"], check=True,
                                          stdout=subprocess.PIPE, text=True).stdout)
        peak = recorded.report()
        lines = {line["owner"]: line["bytes"] for line in peak["ledger_at_peak"]}
        self.assertEqual(lines["torch.allocated"], peak["allocated_peak"]["bytes"])
        used = {}
        for name, time_ns in recorded.told().items():
            at = (time_ns - whole["source"]["start_ns"]) / 1e9
            device = recorded.report("--at", f"{at:.6f}s")
            lines = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
            asleep = 900 << 20 if name in ("asleep", "end") else 0
            self.assertEqual(lines.get("torch.not_resident", 0), asleep, name)
            self.assertEqual(lines["torch.allocated"], (1300 << 20) - asleep, name)
            self.assertEqual(lines["torch.cached"], 0, name)
            self.assertNotIn("unknown", lines)
            used[name] = device["ledger_device_used_bytes"]
            self.assertEqual(sum(line["bytes"] for line in device["ledger_at_peak"]
                                 if line.get("on_card", True)), used[name])
        self.assertEqual(used["awake"] - used["asleep"], 900 << 20)
        self.assertEqual(used["woken"] - used["end"], 900 << 20)
        finding, = (f for f in whole["findings"] if f["id"] == "sleep_leftover")
        self.assertEqual((finding["evidence"]["asleep_bytes"], finding["evidence"]["held_bytes"]),
                         (900 << 20, 400 << 20))
        self.assertNotIn("graph_private_pool", [f["id"] for f in whole["findings"]
                                                if f["severity"] != "info"])

    def test_pinned_memory_of_torch(self):
        for torch, in_use, cached in ((TORCH, None, None), (TORCH_2_13, 2 << 20, 1 << 20)):
            with self.subTest(torch=torch):
                cache = pathlib.Path(self.folder.name) / torch.parent.name
                self.record("workers", torch=torch, through_run=False, cache=cache,
                            WAIT_FOR=str(cache / "tidemark" / "*.so"))  # builds the bridge
                shutil.rmtree(self.folder.name + "/out")
                recorded = self.record("phases", torch=torch, cache=cache)
                text = subprocess.run([TIDEMARK, "report", recorded.out, "--json"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout
                pinned = json.loads(text)["ranks"][0]["pinned"]["torch"]
                del pinned["time_ns"]
                self.assertEqual(pinned, {"held_bytes": 3 << 20, "in_use_bytes": in_use,
                                          "cached_bytes": cached})

    def test_steps_ranges_and_roles(self):
        recorded = self.record("phases")
        self.assertEqual(recorded.output, "hooks 1\n")
        marks, = recorded.tables("marks")
        names = [row["name"] for row in marks]
        self.assertEqual(names.count("optimizer step"), 5)
        self.assertEqual(names.count("training step"), 5)
        categories = {row["category"]: row["bytes"] for row in recorded.report()["by_category"]}
        self.assertEqual(categories, {"parameter": 1 << 20, "gradient": 2 << 20,
                                      "optimizer_state": 3 << 20})

    def test_nvtx_ranges(self):
        recorded = self.record("nvtx")
        self.assertEqual(recorded.output, "levels [0, 1, 1, 0, -1]\n")
        marks, = recorded.tables("marks")
        collectives, = recorded.tables("collectives")
        self.assertEqual([row["function"] for row in collectives], ["AllReduce", "Send"])
        found = {row["name"]: row for row in marks
                 if row["kind"] == "nvtx" and row["domain"] != "NCCL"}
        self.assertEqual(set(found), {"outer", "inn\u00e9r", "fetch", "one", "two", "done"})
        self.assertEqual(found["fetch"]["domain"], "loader")
        self.assertEqual(found["done"]["is_instant"], "1")
        begin = {name: int(row["begin_ns"]) for name, row in found.items()}
        end = {name: int(row["end_ns"]) for name, row in found.items()}
        self.assertLess(begin["outer"], begin["inn\u00e9r"])
        self.assertLess(end["inn\u00e9r"], end["outer"])
        self.assertLess(begin["two"], end["one"])
        self.assertLess(end["one"], end["two"])

    def test_parts_can_be_turned_off(self):
        recorded = self.record("churn", TIDEMARK_TORCH="0")
        self.assertEqual(recorded.report()["events"], 0)
        shutil.rmtree(self.folder.name + "/out")
        shutil.rmtree(self.folder.name + "/csv", ignore_errors=True)
        recorded = self.record("churn", TIDEMARK_STACKS="none")
        self.compare(recorded, ["allocated", "requested", "reserved"])
        allocations, = recorded.tables("allocations")
        self.assertEqual({row["stack_id"] for row in allocations}, {""})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
