#!/usr/bin/env python3
"""Compares `tidemark import` of a snapshot with CPython's pickle.load of the same file.

    bench/import_bench.py TIDEMARK [SNAPSHOT.pickle[.gz]] [ROUNDS]

Times are the best of ROUNDS, each in a fresh process. For CPython that is pickle.load alone,
without the start of the interpreter; for tidemark it is the whole `tidemark import` process,
including writing the trace. Memory is the growth of the resident set during pickle.load, and the
peak resident set of the whole tidemark process. Ratios are CPython's value divided by ours.
"""
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile
import time

LOADER = """
import gc, pickle, resource, sys, time
gc.disable() if sys.argv[2] == "nogc" else None
with open(sys.argv[1], "rb") as f: f.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
with open(sys.argv[1], "rb") as f: data = pickle.load(f)
seconds = time.perf_counter() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def timed_child(command):
    start = time.perf_counter()
    pid = os.spawnv(os.P_NOWAIT, command[0], command)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_maxrss


def main():
    tidemark = os.path.abspath(sys.argv[1])
    here = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(sys.argv[2] if len(sys.argv) > 2
                          else here / "tests/data/snapshots/long.pickle.gz")
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "snapshot.pickle")
        data = source.read_bytes()
        with open(plain, "wb") as f:
            f.write(gzip.decompress(data) if source.suffix == ".gz" else data)
        out = os.path.join(folder, "out.tmk")
        devnull = os.open(os.devnull, os.O_WRONLY)


        def python(gc):
            results = []
            for _ in range(rounds):
                text = subprocess.run([sys.executable, "-c", LOADER, plain, gc],
                                      capture_output=True, text=True, check=True).stdout.split()
                results.append((float(text[0]), int(text[1])))
            return min(r[0] for r in results), min(r[1] for r in results)

        ours = []
        stdout = os.dup(1)
        for _ in range(rounds):
            os.dup2(devnull, 1)
            ours.append(timed_child([tidemark, "import", plain, "-o", out]))
            os.dup2(stdout, 1)
        load, load_kib = python("gc")
        without_gc, _ = python("nogc")
        imported, import_kib = min(ours)[0], min(o[1] for o in ours)
        size = os.path.getsize(plain)
        print(f"snapshot          {size / 1e6:8.1f} MB, trace {os.path.getsize(out) / 1e6:.2f} MB "
              f"({size / os.path.getsize(out):.0f} times smaller)")
        print(f"pickle.load       {load * 1e3:8.1f} ms, {load_kib / 1024:8.1f} MiB")
        print(f"  without its gc  {without_gc * 1e3:8.1f} ms")
        print(f"tidemark import   {imported * 1e3:8.1f} ms, {import_kib / 1024:8.1f} MiB")
        print(f"ratio             {load / imported:8.1f} x   {load_kib / import_kib:8.1f} x")


if __name__ == "__main__":
    main()
