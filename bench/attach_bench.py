#!/usr/bin/env python3
"""Measures what tidemark adds to a CUDA call, on the simulated driver.

    bench/attach_bench.py BUILD_DIRECTORY [ROUNDS]

Prints the time of a call, for calls that allocate and free (cuMemAlloc, cuMemFree), that map and
unmap (cuMemMap, cuMemUnmap) and that launch (cuLaunchKernel, for which there is no callback), in
five modes: plain (nothing injected), armed (injected and idle), recording, recording without
stacks, and stopped (after a recording). The difference from `plain` is what tidemark costs: in a
recording the work of the driver's callbacks. The modes alternate; each line gives the best and the
median of all rounds, and the difference and ratio of the best to that of `plain`.

The simulated driver does almost nothing, so the ratio is an upper limit: on an H200 a cuMemAlloc
takes microseconds to milliseconds.
"""
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from control_client import Host  # noqa: E402

COUNT = 20_000
CALLS = ("alloc", "map", "launch")
MODES = ("plain", "armed", "recording", "no stacks", "stopped")


def measure(build, folder, mode):
    environment = {} if mode != "plain" else {"CUDA_INJECTION64_PATH": None, "TIDEMARK_ARM": None}
    host = Host([build / "tests/programs/attach_host", "0"], folder / "control",
                build / "simgpu/lib", build / "injector/libtidemark.so", **environment)
    if mode == "plain":
        assert host.say("begin") == "ready"
    else:
        host.ready()
    if mode in ("recording", "no stacks", "stopped"):
        stacks = {"stacks": "none"} if mode == "no stacks" else {}
        host.ask("start", out=folder / "out", buffer_mb=64, **stacks)
    if mode == "stopped":
        host.ask("stop")
    result = {}
    for calls in CALLS:
        host.say(f"time 2000 {calls}")
        result[calls] = float(host.say(f"time {COUNT} {calls}"))
    host.end()
    return result


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    results = {mode: [] for mode in MODES}
    for i in range(rounds):
        for mode in MODES if i % 2 == 0 else reversed(MODES):
            with tempfile.TemporaryDirectory() as folder:
                results[mode].append(measure(build, pathlib.Path(folder), mode))
    print(f"{'':17} {'best, ns':>9} {'median':>8} {'added':>8} {'ratio':>6}")
    for calls in CALLS:
        plain = min(times[calls] for times in results["plain"])
        for mode, rounds_of in results.items():
            values = [times[calls] for times in rounds_of]
            print(f"{calls:7}{mode:10} {min(values):9.1f} {statistics.median(values):8.1f} "
                  f"{min(values) - plain:+8.1f} {min(values) / plain:6.2f}")


if __name__ == "__main__":
    main()
