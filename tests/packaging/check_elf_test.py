"""Tests packaging/check_elf.py with small libraries made for it.

    python3 tests/packaging/check_elf_test.py CXX
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "packaging/check_elf.py"
CXX = sys.argv.pop(1)


class CheckElf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        self.tree.mkdir()

    def library(self, code, *options):
        source = self.tree.parent / "code.cpp"
        source.write_text(code)
        subprocess.run([CXX, "-shared", "-fPIC", "-nostdlib", "-o", self.tree / "lib.so", source, *options],
                       check=True)

    def check(self, *options):
        return subprocess.run([sys.executable, "-B", CHECK, self.tree, *options], capture_output=True, text=True)

    def refuses(self, *texts):
        result = self.check()
        self.assertEqual(result.returncode, 1)
        for text in texts:
            self.assertIn(text, result.stderr)

    def test_an_ordinary_library_passes(self):
        self.library('extern "C" int puts(const char*); extern "C" int f() { return puts("x"); }', "-lc")
        (self.tree / "notes.txt").write_text("not ELF\n")
        result = self.check("--list")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^lib\.so: (x86_64|aarch64), glibc 2\.[0-9.]+, libc\.so\.6\n$")

    def test_a_newer_glibc_is_named_with_its_symbol(self):
        # In every glibc that builds tidemark.
        self.library('extern "C" int gettid(); extern "C" int f() { return gettid(); }', "-lc")
        self.refuses("lib.so needs gettid@GLIBC_2.30")

    def test_other_libraries_are_refused(self):
        other = self.tree.parent / "libother.so"
        self.library('extern "C" int g() { return 1; }', "-Wl,-soname,libother.so.1")
        (self.tree / "lib.so").rename(other)
        self.library('extern "C" int g(); extern "C" int f() { return g(); }', other)
        self.refuses("lib.so needs libother.so.1")

    def test_places_of_the_build_are_refused(self):
        self.library("int x;", "-Wl,-rpath,/home/somebody/build")
        self.refuses("/home/somebody/build")

    def test_an_executable_stack_is_refused(self):
        self.library("int x;", "-Wl,-z,execstack")
        self.refuses("executable stack")

    def test_a_tree_without_programs_is_refused(self):
        self.refuses("found []")


if __name__ == "__main__":
    unittest.main()
