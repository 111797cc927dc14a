#!/usr/bin/env python3
"""Measures `tidemark prepare` and the report after it, on a generated job.

    bench/prepare_bench.py TIDEMARK MAKE_JOB [RANKS [EVENTS [DIRECTORY]]]

Prints, for one task and for two tasks at once (each with one thread), the processor time of the
slowest task and the wall time; then the report after it, with its memory; and a plain read of all
traces for comparison. On a machine with other work, processor time says more than wall time. The
job (RANKS x EVENTS x 5 bytes) is removed at the end.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time


def start(*command, env=None):
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL,
                            env=dict(os.environ, **(env or {})))


def wait(process):
    """Processor seconds and peak memory in MiB."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.args
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def row(what, wall, cpu, memory):
    print(f"{what:<34} {wall:>9.2f} {cpu:>9.2f} {memory:>9.0f}", flush=True)


def prepare(tidemark, job, tasks):
    shutil.rmtree(job / ".tidemark", ignore_errors=True)
    begin = time.monotonic()
    running = [start(tidemark, "prepare", job, "-j", 1,
                     env={"PMI_RANK": str(i), "PMI_SIZE": str(tasks)}) for i in range(tasks)]
    used = [wait(process) for process in running]
    row(f"prepare, {tasks} task{'s' if tasks > 1 else ''}", time.monotonic() - begin,
        max(cpu for cpu, _ in used), max(memory for _, memory in used))


def report(tidemark, job, *more):
    begin = time.monotonic()
    cpu, memory = wait(start(tidemark, "report", job, *more))
    row(" ".join(["report", *more]), time.monotonic() - begin, cpu, memory)


def read_plainly(job):
    begin, before = time.monotonic(), time.process_time()
    for path in job.glob("*.tmk"):
        path.read_bytes()
    row("a plain read of the traces", time.monotonic() - begin, time.process_time() - before, 0)


def main():
    tidemark, make_job = sys.argv[1:3]
    ranks = sys.argv[3] if len(sys.argv) > 3 else "1000"
    events = sys.argv[4] if len(sys.argv) > 4 else "1000000"
    folder = pathlib.Path(sys.argv[5] if len(sys.argv) > 5 else tempfile.gettempdir())
    job = folder / f"prepare_bench-{os.getpid()}"
    try:
        subprocess.run([make_job, job, ranks, events, "7", "5"], check=True)
        size = sum(p.stat().st_size for p in job.glob("*.tmk"))
        print(f"{ranks} ranks of {events} events, {size / 1e9:.2f} GB")
        print(f"{'':<34} {'wall s':>9} {'cpu s':>9} {'MiB':>9}")
        read_plainly(job)
        prepare(tidemark, job, 1)
        prepare(tidemark, job, 2)
        kept = sum(p.stat().st_size for p in (job / ".tidemark").iterdir())
        print(f"summaries: {kept / 1e6:.1f} MB")
        report(tidemark, job)
        report(tidemark, job, "--json")
        report(tidemark, job, "--rank", "1")
    finally:
        shutil.rmtree(job, ignore_errors=True)


if __name__ == "__main__":
    main()
