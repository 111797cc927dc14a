"""Checks exports that cannot be written or are invalid: one clear line, and no file left behind.

    python3 export_output.py TIDEMARK MAKE_TRACE SNAPSHOT_DIRECTORY
"""
import os
import pathlib
import pickle
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from tool import Tool  # noqa: E402

TOOL = Tool(sys.argv[1])
MAKE_TRACE = sys.argv[2]
SNAPSHOT = os.path.join(sys.argv[3], "default.pickle.gz")
FORMATS = ("perfetto", "sqlite", "csv", "snapshot")


def with_a_full_disk():
    """Limits files to 16 KiB, as if the disk were full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))


class Output(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name):
        return os.path.join(self.directory, name)

    def refused(self, source, form, output, *more, words, **how):
        done = subprocess.run([TOOL.program, "export", source, "--format", form, "-o", output,
                               *map(str, more)], capture_output=True, text=True, **how)
        self.assertEqual(done.returncode, 2, (form, more, done.stderr))
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_options_that_make_no_sense(self):
        job = self.path("job")
        os.mkdir(job)
        subprocess.run([MAKE_TRACE, job], check=True)
        output = self.path("out")
        wrong = [(("--time", text), "--time") for text in
                 ("5", "x..y", "3s..1s", "-1s..", "1s..2s..3s", "1e300s..", "1m..2m", "1000s..")]
        wrong += [(("--ranks", "9"), "no rank 9"), (("--ranks", "x"), "--ranks"),
                  (("--ranks", "0,9"), "no rank 9"), (("--max-size", "x"), "--max-size"),
                  (("--max-size", "100"), "would exceed")]
        for options, words in wrong:
            for form in FORMATS:
                more = options if "--ranks" in options else (*options, "--ranks", "0")
                self.refused(job, form, output, *more, words=words)
                self.assertEqual(os.listdir(self.directory), ["job"])
        self.refused(job, "snapshot", output, words="choose one with --ranks")
        self.refused(job, "snapshot", output, "--processes", "9", words="no process 9")
        self.refused(job, "snapshot", output, "--ranks", "0", "--processes", "2", words="none of")

    def test_processes_without_a_rank_are_chosen_by_number(self):
        job, output = self.path("job"), self.path("out.pickle")
        os.mkdir(job)
        for i, size in enumerate((2 << 20, 4 << 20)):
            event = {"action": "alloc", "addr": 1 << 40, "size": size, "stream": 0, "time_us": 5,
                     "frames": []}
            segment = dict(event, action="segment_alloc", size=20 << 20, time_us=4)
            with open(os.path.join(job, f"{'ab'[i]}.pickle"), "wb") as file:
                pickle.dump({"segments": [], "device_traces": [[segment, event]]}, file)
        self.refused(job, "snapshot", output, words="--processes: 1 (a.pickle), 2 (b.pickle)")
        for number, size in ((1, 2 << 20), (2, 4 << 20)):
            TOOL.export(job, "snapshot", output, "--processes", number)
            with open(output, "rb") as file:
                entries = pickle.load(file)["device_traces"][0]
            self.assertEqual([e["size"] for e in entries if e["action"] == "alloc"], [size])
        base = self.path("out.db")
        TOOL.export(job, "sqlite", base, "--processes", 2)
        connection = sqlite3.connect(base)
        self.assertEqual(connection.execute("SELECT requested_bytes FROM allocations").fetchall(),
                         [(4 << 20,)])
        connection.close()

    def test_a_full_disk_leaves_nothing(self):
        for form in FORMATS:
            self.refused(SNAPSHOT, form, self.path("new"), words=self.path("new"),
                         preexec_fn=with_a_full_disk)
            self.assertEqual(os.listdir(self.directory), [], form)

    def test_an_existing_file_stays_until_it_is_replaced(self):
        for form in ("perfetto", "sqlite", "snapshot"):
            output = self.path(form)
            with open(output, "w", encoding="utf-8") as file:
                file.write("old")
            self.refused(SNAPSHOT, form, output, words=output, preexec_fn=with_a_full_disk)
            with open(output, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old")
            TOOL.export(SNAPSHOT, form, output)
            self.assertGreater(os.path.getsize(output), 1 << 14)
        self.assertEqual(sorted(os.listdir(self.directory)), ["perfetto", "snapshot", "sqlite"])

    def test_paths_that_cannot_be_written(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        for form in FORMATS:
            self.refused(SNAPSHOT, form, self.path("no/such/place"), words="No such file")
            self.refused(SNAPSHOT, form, "", words="empty value")
            self.refused(SNAPSHOT, form, pipe, words=pipe)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        for form in ("perfetto", "sqlite", "snapshot"):
            self.refused(SNAPSHOT, form, self.directory, words="is a directory")
        self.assertEqual(os.listdir(self.directory), ["pipe"])

    def test_files_of_other_programs_stay(self):
        output = self.path("tables")
        TOOL.export(SNAPSHOT, "csv", output)
        TOOL.export(SNAPSHOT, "csv", output)  # replaces its own
        for name, text in (("steps.csv", "what,when\n"), ("load.sql", "DROP TABLE x;\n"),
                           ("devices.csv", "")):
            path = os.path.join(output, name)
            with open(path, encoding="utf-8") as file:
                before = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.refused(SNAPSHOT, "csv", output, words=path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(before)

    def test_no_progress_bar_without_a_terminal(self):
        for form in FORMATS:
            self.assertEqual(TOOL.export(SNAPSHOT, form, self.path(form)).stderr, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
