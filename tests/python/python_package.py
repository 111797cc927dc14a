"""The Python package, its pytest plugin and the C interface, in programs on simulated cards.

    python3 python_package.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY INJECTOR [TEST …]
"""
import ast
import csv
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import unittest

TIDEMARK, LIBRARIES, TORCH, INJECTOR = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "support"))
from control_client import HostTest  # noqa: E402

PACKAGE = ROOT / "python"
PYTHONPATH = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]

# Allocates by the driver alone: the library comes with cuInit.
C_PROGRAM = r"""
#include "tidemark.h"
#include <stdio.h>
#include <unistd.h>
#ifdef __cplusplus
extern "C" {
#endif
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(unsigned long long* address, size_t size);
#ifdef __cplusplus
}
#endif
int main(void) {
  unsigned long long address = 0;
  void* context = NULL;
  uint64_t first, second;
  int i;
  tidemark_mark("too early");
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0) return 2;
  usleep(150000); /* it is looked for ten times per second */
  if (cuCtxSetCurrent(context) != 0 || cuMemAlloc_v2(&address, 3 << 20) != 0) return 3;
  tidemark_name((const void*)(uintptr_t)address, "weights");
  first = tidemark_range_begin("first");
  second = tidemark_range_begin("second");
  tidemark_range_end(first); /* they may overlap */
  for (i = 40; i < 43; ++i) tidemark_step((uint64_t)i);
  tidemark_range_end(second);
  tidemark_mark("done");
  puts("ended");
  return 0;
}
"""


class PythonPackage(HostTest):
    def run_it(self, *command, status=0, **environment):
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("TIDEMARK_", "CUDA_INJ", "NVTX"))}
        variables.update(LD_LIBRARY_PATH=str(LIBRARIES), XDG_CACHE_HOME=str(self.cache),
                         PATH=f"{TIDEMARK.parent}:{os.environ['PATH']}", STANDIN_TORCH=str(TORCH),
                         PYTHONPATH=":".join([str(PACKAGE), str(HERE), *PYTHONPATH]), PYTHONDONTWRITEBYTECODE="1",
                         TIDEMARK_CONTROL_DIR=str(self.path / "control"))
        variables.update(environment)
        done = subprocess.run([str(word) for word in command], env=variables, cwd=self.path,
                              capture_output=True, text=True, timeout=300)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def python(self, code, *prefix, **environment):
        return self.run_it(*prefix, sys.executable, "-c", code, **environment)

    def armed(self, code, **environment):
        return self.python(code, TIDEMARK, "run", "-q", "--arm", "--", **environment)

    def tables(self, trace, *names):
        folder = self.path / f"csv{trace}"
        self.run_it(TIDEMARK, "export", trace, "--format", "csv", "-o", folder)
        return [list(csv.DictReader((folder / f"{name}.csv").read_text("utf-8").splitlines()))
                for name in names]

    def test_the_documentation(self):
        done = self.run_it(TIDEMARK, "run", "-q", "--arm", "--", sys.executable,
                           HERE / "run_examples.py", ROOT / "docs" / "python.md")
        self.assertIn(" examples", done.stdout)
        self.assertNotIn("Warning", done.stderr)

        marks, allocations = self.tables("marked", "marks", "allocations")
        told = [(row["kind"], row["name"]) for row in marks if row["kind"] in ("user", "iteration")
                and not row["domain"]]
        self.assertEqual(told, [("user", "forward"), *(pair for n in range(5) for pair in (
            [("iteration", f"step {n}")] + [("user", "forward")] * (n < 4))),
            ("user", "all done")])
        self.assertTrue(all(row["end_ns"] for row in marks))
        self.assertEqual([row["block_bytes"] for row in allocations if row["label"] == "kv cache"],
                         [str(32 << 20)])
        text = self.run_it(TIDEMARK, "report", "marked").stdout
        self.assertRegex(text, r'32\.0 MiB .*named "kv cache", 1 block')
        page = self.path / "page.html"
        self.run_it(TIDEMARK, "report", "marked", "--html", page)
        self.assertIn("kv cache", page.read_text("utf-8"))

        self.run_it(TIDEMARK, "export", "marked", "--format", "snapshot", "-o", "marked.pickle")
        annotations = pickle.loads((self.path / "marked.pickle").read_bytes())["external_annotations"]
        self.assertEqual([(entry["stage"], entry["name"]) for entry in annotations],
                         [("START", "forward"), ("END", "forward")] * 5)

        marks, allocations = self.tables("named", "marks", "allocations")
        self.assertIn(("user", "warm-up"), [(row["kind"], row["name"]) for row in marks])
        self.assertEqual(sorted(int(row["block_bytes"]) for row in allocations
                                if row["label"] == "teacher"), [4096, 4 << 20])

    def test_sealing_a_window(self):
        done = self.python("""if True:
            import tidemark, standin_torch, torch
            kept = [torch.empty(1 << 20, device="cuda") for _ in range(5)]
            path = tidemark.seal("first")
            print(path.parent.name, path.exists())
            print(tidemark.seal().parent.name)
            for name in ("../up", "x" * 200, "first"):
                try:
                    print(tidemark.seal(name).parent.name)
                except tidemark.Error as error:
                    print(error)
            kept.clear()
            """, TIDEMARK, "run", "-q", "--keep", "10m", "-o", self.path / "out", "--")
        first, second, bad, long, again = done.stdout.splitlines()
        self.assertEqual(long, bad)
        self.assertEqual((first, bad), ("first True", "the name may have letters, digits, '-', '_' "
                                        "and '.' only"))
        self.assertTrue(second.startswith("seal-"), done.stdout)
        self.assertIn("/out/first/", again)
        self.assertTrue(again.endswith("exists; choose another name"), again)
        self.assertEqual(done.stderr, "")
        report = json.loads(self.run_it(TIDEMARK, "report", "out/first", "--json", "--at",
                                        "end").stdout)
        device, = report["ranks"][0]["devices"]
        self.assertEqual(device["at_totals"]["allocated_bytes"], 20 << 20)

        done = self.armed("""if True:
            import tidemark, standin_torch
            try:
                tidemark.seal()
            except tidemark.Error as error:
                print(error)
            """)
        self.assertEqual(done.stdout, "nothing is being recorded\n")

    def test_live_numbers(self):
        done = self.armed("""if True:
            import tidemark, standin_torch, torch
            kept = torch.empty(1 << 20, device="cuda")
            odd = torch.allocator.alloc(1000)
            with tidemark.record("out"):  # builds the bridge if it has to
                gpu, = tidemark.stats()
            assert tidemark.stats() == [gpu]
            print(gpu.allocated, gpu.requested, gpu.reserved, gpu.largest_hole)
            """)
        self.assertEqual(done.stdout, f"{(4 << 20) + 1024} {(4 << 20) + 1000} {22 << 20} "
                         f"{16 << 20}\n")

    def test_a_label_ends_with_its_block(self):
        self.armed("""if True:
            import tidemark, standin_torch, torch
            with tidemark.record("out"):
                first = torch.empty(1 << 20, device="cuda")
                tidemark.name([first, {"of": ()}], "first")
                address = first.address
                del first
                second = torch.empty(1 << 20, device="cuda")
                assert second.address == address
                third = torch.empty(1 << 20, device="cuda")
                tidemark.name(third, "nobody sees this")
                tidemark.name(third.address, "third")
            """)
        allocations, = self.tables("out", "allocations")
        self.assertEqual([row["label"] for row in allocations], ["first", "", "third"])
        report = json.loads(self.run_it(TIDEMARK, "report", "out", "--json").stdout)
        device, = report["ranks"][0]["devices"]
        self.assertEqual(device["by_label"], [{"label": "third", "bytes": 4 << 20, "count": 1}])

    def test_without_the_library_nothing_happens(self):
        done = self.python("""if True:
            import os, tidemark
            with tidemark.record("out") as recording:
                with tidemark.range("x"):
                    tidemark.mark("y")
                    tidemark.step(1)
                    tidemark.name(4096, "z")
            assert recording == tidemark.Recording()
            assert tidemark.start("out") is tidemark.stop() is tidemark.seal() is None
            assert tidemark.snapshot("now.tmk") is None and tidemark.stats() == []
            assert os.listdir() == [], os.listdir()
            try:
                tidemark.name(object(), "z")
            except TypeError as error:
                print(error)
            """)
        self.assertEqual(done.stdout, "a tensor, module, collection of them or address is needed, "
                         "not object\n")
        self.assertEqual(done.stderr, "")

    def test_unknown_options_and_the_version(self):
        done = self.python("""if True:
            import tidemark
            for call in (tidemark.start, lambda *a, **o: tidemark.record(*a, **o).__enter__()):
                try:
                    call("out", kernel=False)
                except TypeError as error:
                    print(str(error).partition(";")[0])
            print(tidemark.__version__)
            """)
        version = self.run_it(TIDEMARK, "--version").stdout.split()[-1]
        self.assertEqual(done.stdout, "unknown option 'kernel'\n" * 2 + version + "\n")
        source = (ROOT / "injector" / "process" / "options.cpp").read_text("utf-8")
        variables = {name.lower() for name in re.findall(r'"TIDEMARK_(\w+)"', source)}
        sys.path.insert(0, str(PACKAGE))
        from tidemark._control import OPTIONS
        self.assertEqual(OPTIONS - {"for_ms"}, variables - {"out", "chain", "arm", "control"})

    def test_a_snapshot_replaces_only_files(self):
        done = self.armed("""if True:
            import os, standin_torch, stat, tidemark, torch
            kept = torch.empty(1 << 20, device="cuda")
            os.mkfifo("fifo")
            for path in ("fifo", ".", "absent/now.tmk"):
                try:
                    print(tidemark.snapshot(path))
                except tidemark.Error as error:
                    print(str(error).partition(": ")[2])
            assert stat.S_ISFIFO(os.stat("fifo").st_mode) and not os.path.exists("absent")
            print(tidemark.snapshot("now.tmk").name)
            """)
        self.assertEqual(done.stdout, "is not a regular file\nis a directory\n"
                         "No such file or directory\nnow.tmk\n")

    def test_armed_before_cuda_is_initialised(self):
        done = self.armed("""if True:
            import tidemark
            with tidemark.record("out") as recording:
                import standin_torch, torch
                kept = torch.empty(1 << 20, device="cuda")
            print(tidemark.report(recording.trace).peak_bytes)
            """)
        self.assertEqual((done.stdout, done.stderr), (f"{4 << 20}\n", ""))

    def test_loaded_into_a_running_process(self):
        done = self.python("""if True:
            import standin_torch, tidemark, torch
            before = torch.empty(1 << 20, device="cuda")
            assert tidemark.start("out") is None
            assert tidemark.load() and tidemark.load()
            with tidemark.record("out") as recording:
                kept = torch.empty(1 << 20, device="cuda")
            print(tidemark.report("out").peak_bytes)
            """)
        self.assertEqual((done.stdout, done.stderr), (f"{8 << 20}\n", ""))

    def test_what_is_not_possible_is_said(self):
        done = self.python("""if True:
            import standin_torch, tidemark
            with tidemark.record("out") as recording:
                print(recording)
            for call in (lambda: tidemark.start("out"), lambda: tidemark.snapshot("now.tmk"),
                         lambda: tidemark.report("nowhere")):
                try:
                    call()
                except tidemark.Error as error:
                    print(error)
            """, TIDEMARK, "run", "-q", "-o", self.path / "all", "--")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "Recording(trace=None, rows=None, dropped=None)")
        self.assertEqual([line.startswith("already recording to ") for line in lines[1:3]],
                         [True, True], lines)
        self.assertIn("nowhere", lines[3])
        self.assertIn("not recorded: already recording to", done.stderr)
        self.assertFalse((self.path / "out").exists() or (self.path / "now.tmk").exists())

    def test_the_command(self):
        for arguments in (["--version"], ["no-such-command"]):
            direct = self.run_it(TIDEMARK, *arguments, status=None)
            module = self.run_it(sys.executable, "-m", "tidemark", *arguments, status=None)
            self.assertEqual((module.returncode, module.stdout, module.stderr),
                             (direct.returncode, direct.stdout, direct.stderr))
        nothing = self.run_it(sys.executable, "-m", "tidemark", status=1, PATH="/nowhere")
        self.assertEqual(nothing.stderr, "tidemark: the command tidemark was not found; install it "
                         "or add it to PATH\n")

    def test_the_page_of_a_notebook_is_safe(self):
        code = """if True:
            import tidemark, types, json
            device = json.loads(open("report.json").read())
            device["ranks"][0]["devices"][0]["by_stack"][0]["line"] = "<script>alert(1)</script>"
            page = tidemark.Report(json.dumps(device))._repr_html_()
            print(page)
            """
        trace = ROOT / "samples" / "traces" / "run_out"
        (self.path / "report.json").write_text(
            self.run_it(TIDEMARK, "report", trace, "--json").stdout)
        page = self.python(code).stdout
        self.assertNotIn("<script", page)
        self.assertIn("&lt;script&gt;", page)
        self.assertIn("<table>", page)

    def test_the_pytest_plugin(self):
        python = next((path for path in (sys.executable, "/usr/bin/python3") if subprocess.run(
            [path, "-c", "import pytest"], capture_output=True).returncode == 0), None)
        if python is None:
            self.skipTest("pytest is not installed")
        text = (ROOT / "docs" / "python.md").read_text("utf-8")
        example = text.partition("```python\n")[2].partition("```")[0]
        (self.path / "conftest.py").write_text("import standin_torch\n")
        (self.path / "test_fits.py").write_text(example)
        (self.path / "test_more.py").write_text(example.replace("16, 1024", "32, 1024") + """
@pytest.mark.gpu_memory("1GB")
class TestClass:
    def test_positional(self):
        batch = torch.empty(16, 1024, 1024, device="cuda")

    @pytest.mark.gpu_memory(max_peak=1000)
    def test_own_failure(self):
        batch = torch.empty(16, 1024, 1024, device="cuda")
        assert "its own" == "reason"

def test_unmarked():
    batch = torch.empty(64, 1024, 1024, device="cuda")
""")
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tidemark.pytest_plugin",
                   "-v", "--strict-markers"]
        done = self.run_it(*command, status=1)
        self.assertIn("test_fits.py::test_one_batch_fits PASSED", done.stdout)
        self.assertIn("test_more.py::test_one_batch_fits FAILED", done.stdout)
        self.assertIn("device 0 had 128.0 MiB allocated, more than max_peak=100MiB", done.stdout)
        self.assertRegex(done.stdout, r"128\.0 MiB  (Torch\.)?alloc .*/torch_program\.py:\d+")
        self.assertIn("test_positional PASSED", done.stdout)
        self.assertIn("assert 'its own' == 'reason'", done.stdout)
        self.assertIn("test_unmarked PASSED", done.stdout)
        self.assertIn("2 failed, 3 passed in", done.stdout)
        self.assertIn("@pytest.mark.gpu_memory(max_peak)",
                      self.run_it(*command, "--markers").stdout)

        # Where there is no recorder, the tests run and say that nothing was checked.
        only_report = self.path / "bin"
        only_report.mkdir()
        shutil.copy(TIDEMARK, only_report)
        done = self.run_it(*command, "test_more.py::test_one_batch_fits",
                           PATH=f"{only_report}:/usr/bin:/bin")
        self.assertIn("gpu_memory was not checked", done.stdout)

    def test_the_c_interface(self):
        source = self.path / "program.c"
        source.write_text(C_PROGRAM)
        for number, compiler in enumerate((["cc", "-std=gnu99"], ["c++", "-std=c++11", "-xc++"])):
            program = self.path / f"program{number}"
            self.run_it(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                        f"-I{ROOT / 'include'}", source, "-o", program, "-xnone",
                        LIBRARIES / "libcuda.so.1", "-ldl", LD_LIBRARY_PATH="")
            self.assertEqual(self.run_it(program).stdout, "ended\n")
            out = f"out{number}"
            self.assertEqual(self.run_it(TIDEMARK, "run", "-q", "-o", out, "--", program).stdout,
                             "ended\n")
            marks, = self.tables(out, "marks")
            told = [(row["kind"], row["name"], row["is_instant"]) for row in marks
                    if row["kind"] in ("user", "iteration")]
            self.assertEqual(told, [
                ("user", "first", "0"), ("user", "second", "0"), ("iteration", "step 40", "1"),
                ("iteration", "step 41", "1"), ("iteration", "step 42", "1"),
                ("user", "done", "1")])
            first, second = marks[0], marks[1]
            self.assertLess(int(second["begin_ns"]), int(first["end_ns"]))
            self.assertLess(int(first["end_ns"]), int(second["end_ns"]))
            report = json.loads(self.run_it(TIDEMARK, "report", out, "--json").stdout)
            self.assertEqual(report["ranks"][0]["devices"][0]["by_label"],
                             [{"label": "weights", "bytes": 3 << 20, "count": 1}])

    def test_the_c_example(self):
        text = (ROOT / "docs" / "python.md").read_text("utf-8")
        include, _, body = text.partition("```c\n")[2].partition("```")[0].partition("\n\n")
        source = self.path / "example.c"
        source.write_text(f"{include}\nint main(void) {{\nint block, n = 3;\nvoid* cache = &block;\n"
                          f"{body}return 0;\n}}\n")
        program = self.path / "example"
        self.run_it("cc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", source,
                    "-o", program, "-ldl", LD_LIBRARY_PATH="")
        self.run_it(program)

    def test_it_is_python_3_9(self):
        for path in (PACKAGE / "tidemark").glob("*.py"):
            tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
            for node in ast.walk(tree):
                self.assertNotIn(type(node).__name__, ("Match", "TryStar", "TypeAlias"), path)
                for field in ("annotation", "returns"):  # X | Y needs 3.10 at run time
                    types = ast.walk(getattr(node, field, None) or ast.Pass())
                    self.assertFalse([t for t in types if isinstance(t, ast.BinOp)], path)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
