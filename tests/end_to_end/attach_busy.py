"""Injects into a busy program that was started without tidemark, then captures it repeatedly.

    python3 attach_busy.py TIDEMARK SIMGPU_LIBRARIES INJECTOR ATTACH_HOST SLOW_LISTEN

Its output must be the same as without tidemark; threads, descriptors, mappings and memory must not
grow. TIDEMARK_INJECT_ROUNDS sets the number of captures.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import SANITIZED, check, check_equal, finish, report, run  # noqa: E402

SIMGPU, INJECTOR, HOST, SLOW_LISTEN = sys.argv[2:6]
ROUNDS = int(os.environ.get("TIDEMARK_INJECT_ROUNDS", "10"))
tmp = pathlib.Path(tempfile.mkdtemp())
env = {**os.environ, "TIDEMARK_CONTROL_DIR": str(tmp / "control"), "LD_LIBRARY_PATH": SIMGPU}
for name in ("CUDA_INJECTION64_PATH", "TIDEMARK_ARM", "TIDEMARK_OUT"):
    env.pop(name, None)


def start(threads=16, **more):
    process = subprocess.Popen([HOST, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env={**env, **more})
    tell(process, "begin")
    return process


def tell(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def end(process):
    out, _ = process.communicate()
    return process.returncode, out


def held(process):
    root = pathlib.Path(f"/proc/{process.pid}")
    status = (root / "status").read_text()
    return {"threads": len(list((root / "task").iterdir())),
            "descriptors": len(list((root / "fd").iterdir())),
            "mappings": (root / "maps").read_text().count("\n"),
            "resident_kib": int(re.search(r"VmRSS:\s+(\d+)", status)[1]),
            "address_kib": int(re.search(r"VmSize:\s+(\d+)", status)[1])}


def parent_of(pid):
    try:
        return int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])
    except OSError:
        return 0  # a process of another test that has ended


# What malloc and the C library keep of ended threads. A capture that is not freed would add 59 MiB
# of address space.
SLACK = {"threads": 0, "descriptors": 0, "mappings": 6, "resident_kib": 1024, "address_kib": 16384}
if SANITIZED:
    SLACK["resident_kib"] = 1 << 20


def settled(process, limit):
    """What it holds, as soon as that is within the limit, or after five seconds."""
    for _ in range(100):
        now = held(process)
        if all(now[what] <= limit[what] + SLACK[what] for what in now):
            break
        time.sleep(0.05)
    return now


undisturbed = end(start())
check(undisturbed[1].startswith("sum "), "the program works")

# An idle process: what its recording must contain is known.
quiet = start(0)
result = run("attach", quiet.pid, "--library", INJECTOR, "-q", "-o", tmp / "quiet", env=env)
check_equal((result.returncode, result.stderr), (0, ""), "entered by ptrace")
tell(quiet, "alloc 64")
result = run("detach", quiet.pid, env=env)
check_equal(result.returncode, 0, f"detach: {result.stderr}")
trace = pathlib.Path(result.stdout.strip())
found = report(trace)["ranks"][0]
check_equal(found["pid"], quiet.pid, "the trace is of that process")
check(found["devices"][0]["driver_peak"]["bytes"] >= 64 << 20, "64 MiB were seen")
result = run("snapshot", quiet.pid, "-o", tmp / "now.tmk", env=env)
check_equal((result.returncode, result.stdout), (0, f"{tmp}/now.tmk\n"), f"snapshot: {result.stderr}")
check_equal(end(quiet)[0], 0, "it ends well")

# Its socket is searched before the process listens on it.
slow = start(0, LD_PRELOAD=SLOW_LISTEN)
result = run("attach", slow.pid, "--library", INJECTOR, "-q", "-o", tmp / "slow", env=env)
check_equal((result.returncode, result.stderr), (0, ""), "a socket that takes its time")
check_equal(end(slow)[0], 0, "it ends well, too")

# Injects for the first time, into one new process after another.
for i in range(ROUNDS // 2):
    fresh = start(4)
    result = run("attach", fresh.pid, "--library", INJECTOR, "-q", "-o", tmp / f"fresh{i}", env=env)
    check_equal((result.returncode, result.stderr), (0, ""), f"process {i}: attach")
    check_equal(end(fresh)[0], 0, f"process {i}: its end")
    shutil.rmtree(tmp / f"fresh{i}")

host = start()
before = None
for i in range(1, ROUNDS + 1):
    out = tmp / str(i)
    result = run("attach", host.pid, "--library", INJECTOR, "-q", "-o", out, env=env)
    check_equal((result.returncode, result.stderr), (0, ""), f"round {i}: attach")
    result = run("detach", host.pid, "-q", env=env)
    check_equal((result.returncode, result.stderr), (0, ""), f"round {i}: detach")
    check(pathlib.Path(result.stdout.strip()).exists(), f"round {i}: the trace is there")
    shutil.rmtree(out)
    if i == min(ROUNDS // 2, 20):
        time.sleep(0.2)  # until its threads have ended
        before = held(host)
    if i == ROUNDS or i % 100 == 0:
        print(i, held(host), flush=True)
after = settled(host, before)
check(all(after[what] <= before[what] + SLACK[what] for what in before),
      f"nothing grows: {before}, {after}")
check_equal(end(host)[1].splitlines()[-1:], undisturbed[1].splitlines(), "its output is unchanged")

# Started armed: nothing has to be loaded.
armed = subprocess.Popen([sys.argv[1], "run", "--arm", "--", HOST, "0"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True, env=env)
tell(armed, "begin")
processes = json.loads(run("ps", "--json", env=env).stdout)["processes"]
ours = [p for p in processes if parent_of(p["pid"]) == armed.pid]
check_equal([p["state"] for p in ours], ["armed"], "run --arm: ps")
result = run("attach", "--job", ours[0]["job"], "--for", "0.2s", "-o", tmp / "job", env=env)
check_equal(result.returncode, 0, f"attach --job: {result.stderr}")
check("tidemark report" in result.stderr, "attach --job says where the trace is")
check_equal(end(armed)[0], 0, "run --arm: status")

shutil.rmtree(tmp)
finish()
