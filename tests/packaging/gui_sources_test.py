"""Tests scripts/fetch_gui_sources.sh without network: what is there is kept, a system without Debian's
archive takes the pinned commits from a repository, and nothing else is accepted for them.

    python3 tests/packaging/gui_sources_test.py
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/fetch_gui_sources.sh"
# Everything that the script needs except apt-get.
PROGRAMS = ("awk", "bash", "cat", "chmod", "cp", "cut", "dirname", "env", "git", "head", "id", "mkdir", "mktemp",
            "mv", "rm", "sed", "sha256sum", "sh", "sort", "tar", "xargs", "gzip")
FILES = {"ocornut/imgui": ["imgui.cpp", "LICENSE.txt", "backends/imgui_impl_glfw.cpp", "backends/imgui_impl_glfw.h"],
         "epezent/implot": ["implot.cpp", "LICENSE"],
         "glfw/glfw": ["CMakeLists.txt", "LICENSE.md"],
         "CLIUtils/CLI11": ["include/CLI/CLI.hpp"]}


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class GuiSources(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.remote = self.place / "remote"
        self.dest = self.place / "third_party"
        bin_folder = self.place / "bin"
        bin_folder.mkdir()
        for name in PROGRAMS:
            (bin_folder / name).symlink_to(shutil.which(name))
        self.env = {"PATH": str(bin_folder), "HOME": str(self.place), "GIT_CONFIG_NOSYSTEM": "1",
                    "TIDEMARK_GUI_REPOSITORIES": f"file://{self.remote}",
                    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                    "GIT_COMMITTER_EMAIL": "a@b"}
        # The real script, with the commits of our repositories in place of upstream's.
        self.script = self.place / "scripts/fetch_gui_sources.sh"
        self.script.parent.mkdir()
        text = SCRIPT.read_text()
        for name, files in FILES.items():
            pinned = self.commit(name, {file: f"{file} as pinned\n" for file in files})
            self.commit(name, {files[0]: "something newer\n"})
            text, count = re.subn(rf"({name} +)[0-9a-f]{{40}}", rf"\g<1>{pinned}", text)
            self.assertEqual(count, 1, name)
        self.script.write_text(text)

    def git(self, *words):
        done = subprocess.run(["git", *map(str, words)], env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, name, files):
        repository = self.remote / name
        if not repository.exists():
            repository.mkdir(parents=True)
            self.git("init", "-q", repository)
            self.git("-C", repository, "config", "uploadpack.allowAnySHA1InWant", "true")
        for file, text in files.items():
            (repository / file).parent.mkdir(parents=True, exist_ok=True)
            (repository / file).write_text(text)
        self.git("-C", repository, "add", "-A")
        self.git("-C", repository, "commit", "-q", "-m", "x")
        return self.git("-C", repository, "rev-parse", "HEAD")

    def fetch(self, *options):
        return subprocess.run([shutil.which("bash"), self.script, *options, self.dest], env=self.env,
                              capture_output=True, text=True)

    def test_takes_the_pinned_commits_and_keeps_them(self):
        result = self.fetch("--glfw", "--cli11")
        self.assertEqual(result.returncode, 0, result.stderr)
        for file in ("imgui/imgui.cpp", "implot/implot.cpp", "glfw/CMakeLists.txt", "cli11/include/CLI/CLI.hpp",
                     "imgui-glfw/backends/imgui_impl_glfw.cpp"):
            self.assertIn("as pinned", (self.dest / file).read_text(), file)
        shutil.rmtree(self.remote)  # a second run needs no network
        result = self.fetch("--glfw", "--cli11")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_accepts_no_other_content(self):
        text = self.script.read_text()
        self.script.write_text(re.sub(r"(epezent/implot +)[0-9a-f]{40}", r"\g<1>" + "0" * 40, text))
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("epezent/implot does not give commit " + "0" * 40, result.stderr)
        self.assertIn("unpack your own copies", result.stderr)
        self.assertFalse((self.dest / "implot").exists())
        self.assertFalse([p for p in self.dest.iterdir() if p.name.startswith(".git-")], "no leftovers")

    def test_says_what_to_do_without_network(self):
        shutil.rmtree(self.remote)
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("this system has no apt", result.stderr)
        self.assertIn("unpack your own copies", result.stderr)

    def test_debian_is_asked_first(self):
        # An apt that gives nothing: the repositories are next.
        log = self.place / "asked"
        apt = pathlib.Path(self.env["PATH"]) / "apt-get"
        apt.write_text(f"#!/bin/sh\necho \"$*\" >> {log}\nexit 1\n")
        apt.chmod(0o755)
        result = self.fetch()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.dest / "imgui/imgui.cpp").exists())
        release = pathlib.Path("/etc/os-release")
        if release.exists() and re.search(r"^ID=debian$", release.read_text(), re.M) and \
                pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
            self.assertIn("update --print-uris", log.read_text())


if __name__ == "__main__":
    unittest.main()
