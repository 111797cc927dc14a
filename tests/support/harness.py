"""Shared by the tests of the command line: running tidemark, and checks that are counted."""
import json
import os
import pathlib
import subprocess
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SNAPSHOTS = DATA / "snapshots"
TIDEMARK = sys.argv[1]
SANITIZED = "SANITIZED" in os.environ  # a sanitizer takes memory and keeps it

failures = []
checks = 0


def run(*args, env=None):
    return subprocess.run([TIDEMARK, *map(str, args)], capture_output=True, text=True, env=env)


def report(path, *args):
    result = run("report", path, "--json", *args)
    if result.returncode != 0:
        raise AssertionError(f"report {path}: exit {result.returncode}, {result.stderr}")
    return json.loads(result.stdout)


def check(condition, text):
    global checks
    checks += 1
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def check_equal(got, wanted, text):
    check(got == wanted, f"{text}: got {got!r}, wanted {wanted!r}")


def finish():
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    sys.exit(1 if failures or checks == 0 else 0)
