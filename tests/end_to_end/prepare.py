"""Checks `tidemark prepare`: with its summaries, report and diff say the same as without; they are
ignored when they are damaged or outdated; tasks share the work.

    python3 prepare.py TIDEMARK MAKE_JOB
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import DATA, check, check_equal, finish, run  # noqa: E402

MAKE_JOB = sys.argv[2]
ROOT = pathlib.Path(__file__).resolve().parents[2]
tmp = pathlib.Path(tempfile.mkdtemp())

# Every way to look at a job by its summaries.
WAYS = [[], ["--json"], ["--json", "--rank", "1"], ["--at", "oom"], ["--at", "0s", "--json"],
        ["--card", "24GiB"]]


def recorded_jobs():
    folders = [*(ROOT / "samples" / "traces" / "ranks").iterdir(), *(DATA / "scenarios").iterdir()]
    return sorted(f for f in folders if f.is_dir() and len(list(f.glob("*.tmk"))) > 1)


def copy_of(job):
    copy = tmp / job.name
    shutil.copytree(job, copy)
    return copy


def answers(job, *more):
    """What report says in every way, without what it says about the summaries on stderr."""
    return [(done.returncode, done.stdout) for done in
            (run("report", job, "--detail", 1, *way, *more) for way in WAYS)]


def summaries_of(job):
    return sorted((job / ".tidemark").glob("*.summary"))


def hint(done):
    return "without a summary" in done.stderr


# Summaries change nothing but the time it takes.
def check_same(job):
    name = job.name
    before = answers(job)
    first = run("report", job, "--detail", 1)
    check(hint(first), f"{name}: says that there are no summaries: {first.stderr!r}")
    done = run("prepare", job)
    check_equal((done.returncode, done.stderr), (0, ""), f"{name}: prepare")
    after = answers(job)
    for way, old, new in zip(WAYS, before, after):
        check(old == new, f"{name}: report {way} is the same after prepare")
    check(not hint(run("report", job, "--detail", 1)), f"{name}: all summaries are used")
    files = {p: p.stat().st_mtime_ns for p in summaries_of(job)}
    check("already" in run("prepare", job).stdout, f"{name}: nothing is made twice")
    check_equal({p: p.stat().st_mtime_ns for p in summaries_of(job)}, files,
                f"{name}: and nothing is written")


def light(device):
    """What is known of a device that is not described in detail."""
    long = ("by_", "stack_tree", "fragmentation", "oom", "steps", "stacks_only", "pushed_by")
    return {k: v for k, v in device.items() if not k.startswith(long)}


# The whole job loaded at once says the same as its summaries.
def check_whole(job):
    name = job.name
    whole = json.loads(run("report", job, "--json").stdout)
    parts = json.loads(run("report", job, "--json", "--detail", 1).stdout)
    check_equal(len(parts["ranks"]), len(whole["ranks"]), f"{name}: every rank is there")
    check(any(r.get("detailed", True) is False for r in parts["ranks"]), f"{name}: by summaries")
    for a, b in zip(whole["ranks"], parts["ranks"]):
        check_equal((a["rank"], a["pid"], a["host"], a["loss"]),
                    (b["rank"], b["pid"], b["host"], b["loss"]), f"{name}: rank {a['rank']}")
        for x, y in zip(a["devices"], b["devices"]):
            check_equal(light(y), light(x), f"{name}: rank {a['rank']} cuda:{x['device']}")
    one, other = whole["rank_comparison"], parts["rank_comparison"]
    # When a rank left the others is judged by the highest value in each part of the run.
    one_left, other_left = one.pop("diverged", None), other.pop("diverged", None)
    check_equal(other, one, f"{name}: the comparison of the ranks")
    check_equal(other_left and other_left["rank"], one_left and one_left["rank"],
                f"{name}: who left the others")
    times = [left["time_ns"] for left in (one_left, other_left) if left]
    check(all(t is None for t in times) or None not in times, f"{name}: whether it is known when")
    if times and None not in times:
        span = whole["source"]["end_ns"] - whole["source"]["start_ns"]
        check(abs(times[0] - times[1]) <= span / 10, f"{name}: and when")
    check_equal(parts["findings"], whole["findings"], f"{name}: findings")
    errors = [run("report", job, "--at", "oom", "--detail", n) for n in (64, 1)]
    check_equal(errors[1].returncode, errors[0].returncode, f"{name}: at the error: {errors[1].stderr}")
    check_equal(parts["losses"], whole["losses"], f"{name}: losses")
    check_equal(parts["source"], whole["source"], f"{name}: source")


jobs = recorded_jobs()
check(len(jobs) >= 6, f"there are recorded jobs: {jobs}")
for recorded in jobs:
    job = copy_of(recorded)
    check_same(job)
    check_whole(job)

# A generated job: one rank keeps more, another does not call the last collective.
made = tmp / "made"
subprocess.run([MAKE_JOB, made, "70", "3000", "37", "5"], check=True)
text = run("report", made)  # more than 64 ranks
check(hint(text) and text.returncode == 0, f"without summaries: {text.stderr}")
check_same(made)
prepared = run("report", made)
check_equal((prepared.stdout, prepared.stderr), (text.stdout, ""), "70 ranks: the same report")
for part in ("rank 37 needs 2.0 GiB more", "keep_for_later train.py:99", "for rank 5, which never called",
             "other ranks: peak of", "highest: rank 37"):
    check(part in prepared.stdout, f"70 ranks: the report says {part!r}: {prepared.stdout}")
check("rank 36  cuda:0" not in prepared.stdout, "70 ranks: not all are described")
check_whole(made)
one = run("report", made, "--rank", 36)
check("rank 36  cuda:0" in one.stdout, f"one rank alone: {one.stdout}{one.stderr}")
check_equal(run("report", made, "--rank", 99).returncode, 2, "a rank that is not there")
page = tmp / "page.html"
check_equal(run("report", made, "--html", page).returncode, 0, "as a page")
check(page.read_text().count("<h2>") < 20, "not a chapter for every rank")

# Two jobs, rank by rank.
other = tmp / "other"
subprocess.run([MAKE_JOB, other, "70", "3000", "12"], check=True)
plain = run("diff", made, other)
run("prepare", other)
done = run("diff", made, other)
check_equal((done.returncode, done.stdout), (0, plain.stdout), "diff is the same after prepare")
check_equal(done.stderr, "", "diff uses the summaries")
for part in ("70 devices compared: the peak grew on 1 and shrank on 1", "rank 12 cuda:0", "rank 37 cuda:0"):
    check(part in done.stdout, f"diff says {part!r}: {done.stdout}")
deep = run("diff", made, other, "--rank", 12)
check("keep_for_later" in deep.stdout, f"diff of one rank has its stacks: {deep.stdout}{deep.stderr}")

# A summary that is damaged, empty, of another file or older than its trace is as good as none.
good = run("report", made, "--json").stdout
victim = summaries_of(made)[3]
content = victim.read_bytes()
other_trace, trace = (file.parent.parent / file.stem for file in (summaries_of(made)[9], victim))
os.utime(trace, ns=(other_trace.stat().st_mtime_ns,) * 2)  # as if written in the same instant
run("prepare", made)
content = victim.read_bytes()
damages = {"cut": content[:len(content) // 2], "empty": b"", "long": content + b"x",
           "of another rank": summaries_of(made)[9].read_bytes()}
for place in range(0, len(content), max(1, len(content) // 25)):
    damages[f"flipped at {place}"] = content[:place] + bytes([content[place] ^ 64]) + content[place + 1:]
for what, damaged in damages.items():
    victim.write_bytes(damaged)
    done = run("report", made, "--json")
    check_equal((done.returncode, done.stdout == good, hint(done)), (0, True, True),
                f"a summary that is {what}")
done = run("prepare", made)
check("8 traces prepared, 62 traces already were" in done.stdout, f"only its host again: {done.stdout}")
check(not hint(run("report", made)), "the damaged summary was replaced")
trace = made / "rank00020.tmk"
os.utime(trace, ns=(1, 1))
done = run("report", made, "--json")
check((done.stdout == good, hint(done)) == (True, True), "a trace that is not the one it was")
for path in (made / ".tidemark").glob("*.frames"):
    path.unlink()
check(run("report", made, "--json").stdout == good, "without the lists of frames")

# A trace that goes away or cannot be read does not stop the others.
run("prepare", made)
trace.unlink()
done = run("report", made)
check("1 of 70 ranks missing: 20" in done.stdout and done.returncode == 0, "a missing rank is named")
trace.write_bytes(b"not a trace")
done = run("prepare", made)
check_equal(done.returncode, 1, "an unreadable trace: exit status")
check("rank00020.tmk" in done.stderr and done.stderr.count("\n") == 1, f"it is named: {done.stderr}")
check("prepared" in done.stdout, "the others are prepared")
check("rank00020.tmk" in run("report", made).stdout, "and the report names it, too")

# Tasks share the hosts of the job.
for variables in (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_STEP_ID": "0"}),
                  ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}),
                  ("PMI_RANK", "PMI_SIZE", {})):
    rank, size, more = variables
    shutil.rmtree(other / ".tidemark")
    counts = []
    for task in range(3):
        env = dict(os.environ, **more, **{rank: str(task), size: "3"})
        done = run("prepare", other, env=env)
        check_equal(done.returncode, 0, f"{rank}: task {task}")
        check(f"task {task} of 3" in done.stdout, f"{rank}: {done.stdout}")
        counts.append(len(summaries_of(other)))
    check_equal((counts[0] < counts[1] < counts[2], counts[2]), (True, 70), f"{rank}: {counts}")
# In a batch script, which is no step, there is one task.
shutil.rmtree(other / ".tidemark")
run("prepare", other, env=dict(os.environ, SLURM_PROCID="0", SLURM_NTASKS="3"))
check_equal(len(summaries_of(other)), 70, "a batch script does it all")

# One line for what cannot be done.
for what, arguments in (("no directory", [tmp / "absent"]), ("a file", [page]), ("no traces", [tmp]),
                        ("no argument", [])):
    done = run("prepare", *arguments)
    check_equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1),
                f"prepare of {what}: {done.stderr}")
blocked = tmp / "blocked"
blocked.mkdir()
shutil.copy(other / "rank00000.tmk", blocked)
(blocked / ".tidemark").write_text("")
done = run("prepare", blocked)
check_equal((done.returncode, done.stderr.count("\n")), (2, 1), f"no place to write: {done.stderr}")
check(".tidemark" in done.stderr, "it is named")

shutil.rmtree(tmp)
finish()
