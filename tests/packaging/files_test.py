"""Tests what surrounds a build: scripts/setup.sh names the packages of Fedora and Arch where it cannot
install any, and the manuals, the shell scripts and the manifests under packaging/ are well formed.

    python3 tests/packaging/files_test.py
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("bash", "cat", "dirname", "id", "mkdir", "nproc", "sort", "paste")


class Setup(unittest.TestCase):
    def ask(self, manager):
        """What setup.sh says on a system with this package manager and nothing installed."""
        with tempfile.TemporaryDirectory() as scratch:
            place = pathlib.Path(scratch)
            for name in PROGRAMS:
                (place / name).symlink_to(shutil.which(name))
            if manager:
                (place / manager).symlink_to("/bin/true")
            return subprocess.run(
                [shutil.which("bash"), "-c",
                 f". {ROOT}/scripts/setup.sh; install_missing nowhere:debs:fedoras:archs "
                 "'/none/a*|/none/b':libx-dev:libx-devel:libx bash:bash:bash:bash"],
                env={"PATH": scratch, "HOME": scratch}, capture_output=True, text=True)

    def test_each_system_is_told_its_own_names(self):
        for manager, command in (("dnf", "sudo dnf install fedoras libx-devel"),
                                 ("pacman", "sudo pacman -S --needed archs libx"),
                                 (None, "debs libx-dev")):
            result = self.ask(manager)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"  {command}\n", result.stderr)

    def test_every_need_names_all_three(self):
        lines = subprocess.run(
            ["bash", "-c", f'. {ROOT}/scripts/setup.sh; printf "%s\\n" "${{build_needs[@]}}" '
             '"${test_needs[@]}" "${viewer_needs[@]}"'], capture_output=True, text=True, check=True)
        for line in lines.stdout.splitlines():
            self.assertEqual(len(line.split(":")), 4, line)


class Files(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_manuals(self):
        for page in sorted((ROOT / "packaging/man").glob("*.1")):
            done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""), page)

    def test_shell_scripts_parse(self):
        for name in ("scripts/package", "scripts/setup.sh", "scripts/fetch_gui_sources.sh", "packaging/build.sh"):
            subprocess.run(["bash", "-n", ROOT / name], check=True)
        for path in sorted((ROOT / "packaging").rglob("*.sh")):
            subprocess.run(["bash", "-n", path], check=True)
            self.assertTrue(os.access(path, os.X_OK) or "profile.d" in path.parts, path)


if __name__ == "__main__":
    unittest.main()
