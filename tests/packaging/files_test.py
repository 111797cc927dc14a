"""Tests what surrounds a build: scripts/setup.sh names the packages of Fedora and Arch where it cannot
install any, and the files under packaging/ are well formed and do what they say, with stand-ins for what is not
installed.

    python3 tests/packaging/files_test.py
"""
import importlib.util
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

    @unittest.skipUnless(importlib.util.find_spec("yaml"), "PyYAML is not installed")
    def test_kubernetes_manifests(self):
        import yaml
        kinds = [document["kind"] for path in sorted((ROOT / "packaging/kubernetes").glob("*.yaml"))
                 for document in yaml.safe_load_all(path.read_text())]
        self.assertEqual(sorted(kinds), ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Pod"])

    @unittest.skipUnless(shutil.which("tclsh"), "tclsh is not installed")
    def test_module_file(self):
        # The commands of Environment Modules that it uses, as procedures that print.
        script = "".join(f"proc {name} args {{ puts \"{name} $args\" }}\n"
                         for name in ("module-whatis", "conflict", "prepend-path"))
        done = subprocess.run(["tclsh"], input=f"{script}source {ROOT}/packaging/modulefiles/tidemark\n",
                              capture_output=True, text=True, check=True)
        self.assertIn("prepend-path PATH /opt/tidemark/bin\n", done.stdout)

    def environment_after_profile(self, place, **before):
        """The variables after the profile, with the library where `place` says."""
        profile = (ROOT / "packaging/profile.d/tidemark-arm.sh").read_text().replace("/opt/tidemark", str(place))
        done = subprocess.run(["sh", "-euc", profile + "\nenv"], env={"PATH": os.environ["PATH"], **before},
                              capture_output=True, text=True, check=True)
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    def test_profile_arms_and_leaves_others_alone(self):
        with tempfile.TemporaryDirectory() as scratch:
            place = pathlib.Path(scratch)
            self.assertNotIn("TIDEMARK_ARM", self.environment_after_profile(place))
            (place / "lib").mkdir()
            (place / "lib/libtidemark.so").touch()
            armed = self.environment_after_profile(place)
            self.assertEqual((armed["TIDEMARK_ARM"], armed["CUDA_INJECTION64_PATH"]),
                             ("1", f"{place}/lib/libtidemark.so"))
            other = self.environment_after_profile(place, CUDA_INJECTION64_PATH="/other.so")
            self.assertEqual(other["CUDA_INJECTION64_PATH"], "/other.so")
            self.assertNotIn("CUDA_INJECTION64_PATH", self.environment_after_profile(place, TIDEMARK_ARM="0"))

    def test_enroot_hook(self):
        with tempfile.TemporaryDirectory() as scratch:
            place = pathlib.Path(scratch)
            (place / "tidemark/lib").mkdir(parents=True)
            (place / "tidemark/lib/libtidemark.so").touch()
            (place / "bin").mkdir()
            mount = place / "bin/enroot-mount"
            mount.write_text(f"#!/bin/sh\necho \"$*\" > {place}/mounted\ncat >> {place}/mounted\n")
            mount.chmod(0o755)
            environ = place / "environ"
            environ.write_text("TIDEMARK_ARM=0\n")
            hook = (ROOT / "packaging/slurm/enroot-arm.sh").read_text().replace("/opt/tidemark", f"{place}/tidemark")
            subprocess.run(["bash", "-c", hook], check=True,
                           env={"PATH": f"{place}/bin:{os.environ['PATH']}", "ENROOT_ROOTFS": f"{place}/root",
                                "ENROOT_ENVIRON": str(environ)})
            self.assertIn(f"{place}/tidemark {place}/tidemark none", (place / "mounted").read_text())
            lines = environ.read_text().splitlines()
            self.assertIn("TIDEMARK_ARM=1", lines)
            self.assertEqual(lines[-1], "TIDEMARK_ARM=0", "what the user sets comes last")


if __name__ == "__main__":
    unittest.main()
