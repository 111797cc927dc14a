"""Checks that a directory of snapshots without ranks tells which file each result is of.

    python3 several_snapshots.py TIDEMARK
"""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from growing_inputs import BASE, MiB, event, snapshot  # noqa: E402
from harness import SNAPSHOTS, check, check_equal, finish, report, run  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())


def holes(name, line, kept_mib):
    """A large segment of which little is in use."""
    frames = [{"name": "work", "filename": "train.py", "line": line}]
    return snapshot(tmp, name, [[event("segment_alloc", BASE, 4096 * MiB, 1, frames=frames),
                                 event("alloc", BASE, kept_mib * MiB, 2, frames=frames)]])


def sections(path, *args):
    """The titles of its devices."""
    return [line for line in run("report", path, *args).stdout.splitlines()
            if "cuda:0" in line and not line.startswith(" ")]


def files_of(made):
    """Of the findings: the file of each, and the line that it names."""
    return sorted((f.get("file"), f["evidence"]["frames"][0].split()[-1])
                  for f in made["findings"] if f["id"] == "fragmentation")


def check_all(path, suffix, *args):
    first, last, third = (name + suffix for name in ("first", "last", "third"))
    made = report(path, *args)
    check_equal(sorted(r["file"] for r in made["ranks"]), sorted((first, last, third)), "processes")
    check_equal(files_of(made), [(first, "train.py:10"), (last, "train.py:50"), (third, "train.py:90")],
                f"{path}: findings")
    shown = (first, last, third) if not args else (first, last)
    check_equal(sections(path, *args), [f"{name}  cuda:0" for name in shown], f"{path}: sections")
    page = tmp / "page.html"
    check_equal(run("report", path, "--html", page, *args).returncode, 0, "page")
    for text in (run("report", path, *args).stdout, page.read_text()):
        said = text.replace("\n  ", " ").split("\n")
        for name in (first, last, third):
            found = [part for part in said if "fragmentation" in part or "also in" in part]
            check(any(name in part for part in found), f"{name} in {found}")


folder = tmp / "snapshots"
folder.mkdir()
for made in (holes("first", 10, 64), holes("last", 50, 96), holes("third", 90, 32)):
    alone = report(made)
    check("file" not in alone["ranks"][0] and not any("file" in f for f in alone["findings"]),
          "one file alone is the report's path")
    check_equal(sections(made), ["cuda:0"], "the section of one file alone")
    made.rename(folder / made.name)
check_all(folder, ".pickle")

# What would be names the files as well.
trained = tmp / "trained"
trained.mkdir()
for name in ("one.pickle.gz", "two.pickle.gz"):
    shutil.copy(SNAPSHOTS / "default.pickle.gz", trained / name)
for words in (["whatif", folder, "--all"], ["plan", trained, "--batch", "2x"]):
    names = sorted(path.name for path in words[1].iterdir())
    titles = [line.split("  ")[:2] for line in run(*words).stdout.splitlines()
              if "  cuda:0" in line and not line.startswith(" ")]
    check_equal(sorted(titles), [[name, "cuda:0"] for name in names], f"{words}: titles")
    made = json.loads(run(*words, "--json").stdout)
    check_equal(sorted(d.get("file") for d in made["devices"]), names, f"{words}: files")

# Merged into one file.
merged = tmp / "merged.tmk"
check_equal(run("merge", folder, "-o", merged).returncode, 0, "merge")
check_all(merged, ".pickle")
for name in ("first", "last", "third"):
    check(f"process of {name}.pickle, from a PyTorch" in run("info", merged).stdout, f"info: {name}")
# Merged again: the first names stay.
fourth = holes("fourth", 70, 32)
again = tmp / "again.tmk"
check_equal(run("merge", merged, fourth, "-o", again).returncode, 0, "merge of a merged file")
check_equal(sorted(r["file"] for r in report(again)["ranks"]),
            ["first.pickle", "fourth.pickle", "last.pickle", "third.pickle"], "merged twice")

# The same as traces, read one by one and by their summaries.
traces = tmp / "traces"
traces.mkdir()
for made in folder.iterdir():
    check_equal(run("import", made, "-o", traces / f"{made.stem}.tmk").returncode, 0, "import")
check_all(traces, ".tmk")
check_all(traces, ".tmk", "--detail", "2")

finish()
