"""Tests scripts/check_includes.py: a clean tree passes, each kind of forbidden include fails.

    python3 tests/check_includes_test.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "check_includes.py"


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.write("proto/rows.h", "")
        self.write("proto/read/trace_reader.h", '#include "proto/rows.h"')
        self.write("analysis/history/curve.h", '#include "proto/read/trace_reader.h"')
        self.write("analysis/report/report.h", '#include "analysis/history/curve.h"')
        self.write("collector/attach/control_client.h", "")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")

    def check(self):
        return subprocess.run([sys.executable, "-B", CHECK, self.root], capture_output=True,
                              text=True)

    def assert_found(self, text):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(text, result.stdout)
        self.assertIn(" 1 violations", result.stdout)

    def test_a_clean_tree_passes(self):
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_upwards_between_folders(self):
        self.write("proto/rows.h", '#include "analysis/history/curve.h"')
        self.assert_found("proto/rows.h: proto/ must not include analysis/history/curve.h")

    def test_upwards_between_sub_folders(self):
        self.write("analysis/history/curve.h", '#include "analysis/report/report.h"')
        self.assert_found("history is below report and must not include analysis/report/report.h")

    def test_a_reader_in_the_injector(self):
        self.write("injector/injection.cpp", '#include "proto/read/trace_reader.h"')
        self.assert_found("the injector links proto/base and proto/write only")

    def test_attaching_in_the_viewer(self):
        self.write("viewer/model/ticks.cpp", '#include "collector/attach/control_client.h"')
        self.assert_found("viewer/ reads traces only")

    def test_the_environment_in_a_host_process(self):
        self.write("injector/nvtx/ranges.cpp", 'bool on() { return std::getenv("X") != nullptr; }')
        self.assert_found("injector/nvtx/ranges.cpp: getenv races with the host")
        self.write("injector/nvtx/ranges.cpp", "// getenv() would race with the host")
        self.write("collector/launch/launcher.cpp", 'const char* x() { return getenv("X"); }')
        self.write("injector/nccl/wiring.cpp", 'void wire() { setenv("X", "1", 1); }')
        self.assertEqual(self.check().returncode, 0)
        self.write("injector/nccl/wiring.cpp", "char** all() { return environ; }")
        self.assert_found("injector/nccl/wiring.cpp: environ races with the host")

    def test_a_missing_file(self):
        self.write("analysis/history/curve.h", '#include "proto/gone.h"')
        self.assert_found("proto/gone.h does not exist")

    def test_a_sub_folder_without_a_place(self):
        self.write("analysis/new/thing.h", "")
        self.assert_found("analysis/new: not in LAYERS")

    def test_a_crowded_sub_folder(self):
        for i in range(26):
            self.write(f"export/report/file{i}.h", "")
        self.assert_found("export/report: 26 source files, at most 25")


if __name__ == "__main__":
    unittest.main()
