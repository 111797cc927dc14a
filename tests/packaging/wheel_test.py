"""Tests packaging/wheel.py: what pip needs is in the wheel, the same tree gives the same bytes, and
where this Python has pip, it installs and removes it.

    python3 tests/packaging/wheel_test.py
"""
import base64
import csv
import email
import hashlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import wheel  # noqa: E402

README = "# tidemark\n\nA profiler.\n\n![picture](docs/a.png)\n\nMore.\n"
WHEN = 1700000000


def can_install():
    return all(importlib.util.find_spec(name) for name in ("ensurepip", "venv"))


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.tree = self.place / "tree"
        for name in ("bin/tidemark", "lib/libtidemark.so", "lib/tidemark/leak", "share/man/man1/tidemark.1",
                     "share/doc/tidemark/README.md", "share/doc/tidemark/licences/zlib.txt"):
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {name}\n")
            path.chmod(0o755 if "bin/" in name or name.endswith("leak") else 0o644)
        shutil.copytree(ROOT / "python/tidemark", self.tree / "share/tidemark/python/tidemark",
                        ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, out="out"):
        (self.place / out).mkdir(exist_ok=True)
        return wheel.write(self.tree, "1.2.3", "x86_64", README, self.place / out, WHEN)

    def test_has_what_an_installer_needs(self):
        path = self.write()
        self.assertEqual(path.name, "tidemark-1.2.3-py3-none-manylinux_2_28_x86_64.whl")
        with zipfile.ZipFile(path) as archive:
            files = {info.filename: archive.read(info) for info in archive.infolist()}
            modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
        self.assertIn("tidemark-1.2.3.data/scripts/tidemark", files)
        self.assertIn("tidemark-1.2.3.data/data/lib/libtidemark.so", files)
        self.assertIn("tidemark-1.2.3.dist-info/licenses/zlib.txt", files)
        self.assertIn("tidemark/__init__.py", files)
        self.assertFalse([name for name in files if "share/doc" in name])
        self.assertEqual(modes["tidemark-1.2.3.data/scripts/tidemark"], 0o755)
        self.assertEqual(modes["tidemark-1.2.3.data/data/lib/tidemark/leak"], 0o755)
        info = email.message_from_bytes(files["tidemark-1.2.3.dist-info/METADATA"])
        self.assertEqual((info["Name"], info["Version"], info["Metadata-Version"]), ("tidemark", "1.2.3", "2.1"))
        self.assertEqual(info["Description-Content-Type"], "text/markdown")
        self.assertEqual(info.get_payload(), "# tidemark\n\nA profiler.\n")
        tags = email.message_from_bytes(files["tidemark-1.2.3.dist-info/WHEEL"])
        self.assertEqual((tags["Tag"], tags["Root-Is-Purelib"]), ("py3-none-manylinux_2_28_x86_64", "false"))
        self.assertIn(b"tidemark.pytest_plugin", files["tidemark-1.2.3.dist-info/entry_points.txt"])
        # RECORD lists every file with its hash, itself without one.
        rows = list(csv.reader(io.StringIO(files["tidemark-1.2.3.dist-info/RECORD"].decode())))
        self.assertEqual(sorted(row[0] for row in rows), sorted(files))
        for name, digest, size in rows:
            if not digest:
                self.assertEqual(name, "tidemark-1.2.3.dist-info/RECORD")
                continue
            raw = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, int(size)), (f"sha256={raw}", len(files[name])), name)

    def test_same_tree_gives_same_bytes(self):
        first = self.write("first").read_bytes()
        for path in self.tree.rglob("*"):
            os.utime(path, (1, 1))
        self.assertEqual(self.write("second").read_bytes(), first)

    @unittest.skipUnless(can_install(), "this Python has no ensurepip")
    def test_installs_and_leaves_no_trace(self):
        machine = os.uname().machine
        path = self.write()
        path = path.rename(path.with_name(path.name.replace("x86_64", machine)))
        venv = self.place / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)

        def listing():
            return sorted(str(p) for p in venv.rglob("*") if "__pycache__" not in p.parts and p.is_file())

        def pip(*words):
            subprocess.run([venv / "bin/python", "-m", "pip", "--disable-pip-version-check", *words], check=True,
                           stdout=subprocess.DEVNULL)

        before = listing()
        pip("install", "--no-index", path)
        for command in ([venv / "bin/tidemark"], [venv / "bin/python", "-m", "tidemark"]):
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertEqual(said, "bin/tidemark\n")
        self.assertTrue((venv / "lib/libtidemark.so").exists())
        pip("uninstall", "-y", "tidemark")
        self.assertEqual(listing(), before)


if __name__ == "__main__":
    unittest.main()
