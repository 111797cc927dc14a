"""Checks that no command overwrites what it reads, and that none removes a file of the user.

    python3 outputs_and_inputs.py TIDEMARK TRACE_DIRECTORY [TIDEMARK_VIEW]

Every command with an output option, in every format, is given each way to name its input: the same
path, a path with "..", a symbolic link, a hard link, a file inside the input directory.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SNAPSHOTS, TIDEMARK, check, check_equal, finish, run  # noqa: E402

TRACES = pathlib.Path(sys.argv[2])
VIEWER = sys.argv[3] if len(sys.argv) > 3 else None
tmp = pathlib.Path(tempfile.mkdtemp())


def contents(directory):
    """All files below a directory with their bytes, links with their targets."""
    return {str(p.relative_to(directory)): os.readlink(p) if p.is_symlink() else p.read_bytes()
            for p in sorted(directory.rglob("*")) if p.is_symlink() or p.is_file()}


def commands():
    """(name, input, command line before the output)."""
    formats = ("perfetto", "sqlite", "csv", "parquet", "snapshot", "html")
    for form in formats:
        yield f"export {form}", "run.tmk", ["export", "{in}", "--format", form, "-o"]
        yield f"export {form}", "run.pickle.gz", ["export", "{in}", "--format", form, "-o"]
    for form in ("perfetto", "sqlite", "csv", "parquet", "html"):
        yield f"export {form}", "job", ["export", "{in}", "--format", form, "-o"]
    for source in ("run.tmk", "run.pickle.gz", "job"):
        yield "report --html", source, ["report", "{in}", "--html"]
    yield "import", "run.pickle.gz", ["import", "{in}", "-o"]
    yield "merge", "run.tmk", ["merge", "{in}", "-o"]
    yield "merge", "job", ["merge", "{in}", "-o"]
    yield "plan --picture", "run.svg", ["plan", "{in}", "--batch", "2x", "--picture"]
    if VIEWER:
        for source in ("run.tmk", "job"):
            yield "view --screenshot", source, ["view", "{in}", "--screenshot"]


def make_inputs(place):
    place.mkdir()
    shutil.copy(TRACES / "torch" / "training.tier2.tmk", place / "run.tmk")
    shutil.copy(place / "run.tmk", place / "run.svg")  # the name that a picture must have
    shutil.copy(SNAPSHOTS / "default.pickle.gz", place / "run.pickle.gz")
    (place / "job").mkdir()
    for rank in (0, 1):
        source = next((TRACES / "ranks" / "ddp2").glob(f"rank{rank}-*.tmk"))
        shutil.copy(source, place / "job" / f"rank{rank}.tmk")


def names_of(place, source):
    """Ways to name the input as an output."""
    path = place / source
    yield "the same path", path
    yield "a path with ..", place / "job" / ".." / source
    link = place / f"link{path.suffix}"
    link.symlink_to(source)
    yield "a symbolic link", link
    if path.is_dir():
        yield "a file inside it", path / "rank0.tmk"
        yield "a file inside it, by the link", link / "rank0.tmk"
        inner = place / "inner"
        inner.symlink_to("job/rank1.tmk")
        yield "a link to a file inside it", inner
    else:
        hard = place / f"hard{path.suffix}"
        os.link(path, hard)
        yield "a hard link", hard


environment = {**os.environ, "XDG_CACHE_HOME": str(tmp / "cache")}
place = tmp / "inputs"
make_inputs(place)
for name, source, command in commands():
    for how, output in names_of(place, source):
        before = contents(place)
        words = [str(place / source) if word == "{in}" else word for word in command]
        result = run(*words, output, env=environment)
        what = f"{name} of {source} onto {how}"
        check_equal(result.returncode, 2, f"{what}: exit status ({result.stderr!r})")
        check_equal(result.stderr.count("\n"), 1, f"{what}: one line, not {result.stderr!r}")
        check_equal(result.stdout, "", f"{what}: nothing on stdout")
        check(contents(place) == before, f"{what}: no file changed")
        shutil.rmtree(place)
        make_inputs(place)
        # A page needs the viewer's own, which is not always built.
        if how.startswith("the same") and source != "job" and "html" not in command:
            # A part that another program left has a name of the user's choice.
            new = tmp / "new"
            new.mkdir()
            out = "out.svg" if "--picture" in command else "out"
            for part in ("partial", "part"):
                (new / f"{out}.{part}").write_text("mine")
            result = run(*words, new / out, env=environment)
            check_equal(result.returncode, 0, f"{name} of {source}: exit status ({result.stderr!r})")
            left = contents(new)
            check_equal([left.pop(f"{out}.{part}", None) for part in ("partial", "part")],
                        [b"mine", b"mine"], f"{name} of {source}: files beside the output stay")
            check(not [n for n in left if n != out and not n.startswith(f"{out}/")],
                  f"{name}: nothing else is left: {set(left)}")
            shutil.rmtree(new)

# Merging again replaces the trace of the earlier merge, and only that.
job = place / "job"
ranks = contents(job)
for attempt in ("first", "second"):
    result = run("merge", job, "-o", job / "all.tmk", env=environment)
    check_equal(result.returncode, 0, f"{attempt} merge: exit status ({result.stderr!r})")
    now = contents(job)
    merged = now.pop("all.tmk")
    check(now == ranks, f"{attempt} merge: the ranks stay")
check_equal(run("merge", job / "all.tmk", "-o", job / "all.tmk").returncode, 2, "onto itself")

# CSV files go into a directory; one of them may have the name of the input.
shutil.copy(place / "run.tmk", place / "allocations.csv")
before = contents(place)
result = run("export", place / "allocations.csv", "--format", "csv", "-o", place, env=environment)
check_equal(result.returncode, 2, f"csv beside an input of that name: {result.stderr!r}")
check(contents(place) == before, "csv: no file changed")

# A ring beside a trace holds what an interrupted recording had not written yet.
ring = place / "run.tmk.ring"
ring.write_bytes(b"the rest")
result = run("export", place / "run.tmk", "--format", "sqlite", "-o", ring, env=environment)
check_equal((result.returncode, ring.exists() and ring.read_bytes()), (2, b"the rest"), "a ring")

result = run("plan", place / "run.tmk", place / "run.svg", "--batch", "2x", "--picture", place / "run.svg")
check_equal(result.returncode, 2, f"a picture onto the second recording: {result.stderr!r}")

# A part of a data set has a name of its own, also where a folder has that of another program's part.
fleet = tmp / "fleet"
script = f"mkdir {fleet}.partial-$$ && touch {fleet}.partial-$$/mine && exec \"$@\""
result = subprocess.run(["sh", "-c", script, "sh", TIDEMARK, "export", place / "run.tmk", "--format",
                         "parquet", "-o", fleet], capture_output=True, text=True)
check_equal(result.returncode, 0, f"parquet beside a folder: {result.stderr!r}")
check_equal([list(contents(p)) for p in tmp.glob("fleet.partial-*")], [["mine"]], "the folder stays")

# What several inputs are merged into is none of them.
before = contents(place)
for output in ("run.tmk", "job/rank1.tmk"):
    result = run("merge", place / "job" / "rank0.tmk", place / "job" / "rank1.tmk", place / "run.tmk",
                 "-o", place / output, env=environment)
    check_equal(result.returncode, 2, f"merge of three onto {output}: {result.stderr!r}")
    check(contents(place) == before, f"merge of three onto {output}: no file changed")

# Every option that names an output is tried above.
TRIED = {"export": ["-o"], "report": ["--html"], "import": ["-o"], "merge": ["-o"], "plan": ["--picture"]}
for command in re.findall(r"^  ([a-z]+) ", run("--help").stdout, re.M):
    if command in ("run", "attach", "snapshot", "bridge"):
        continue  # these read no trace
    options = re.split(r"\n  (?=-)", run(command, "--help").stdout)[1:]
    found = [text.split(",")[0].split()[0] for text in options if re.search(r"TEXT[^.]*\bwrite\b", text)]
    check_equal(found, TRIED.get(command, []), f"output options of {command}")

if VIEWER:
    result = subprocess.run([VIEWER, place / "run.tmk", place / "run.pickle.gz", "--screenshot",
                             place / "run.pickle.gz"], capture_output=True, text=True)
    check_equal(result.returncode, 2, f"a picture onto the second trace: {result.stderr!r}")

shutil.rmtree(tmp)
finish()
