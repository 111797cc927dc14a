#!/usr/bin/env python3
"""Measures what being attachable adds to a CUDA call, on the simulated driver.

    bench/attach_bench.py BUILD_DIRECTORY [ROUNDS]

Prints the time of a cuMemAlloc and cuMemFree pair in four modes: plain (nothing injected), armed
(injected and idle), recording, and stopped (after a recording). Compare with `plain`: the
difference is what tidemark costs. The modes alternate; each line gives the median and the range of
all rounds.
"""
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from control_client import Host  # noqa: E402

COUNT = 20_000


def measure(build, folder, mode):
    environment = {} if mode != "plain" else {"CUDA_INJECTION64_PATH": None, "TIDEMARK_ARM": None}
    host = Host([build / "tests/programs/attach_host", "0"], folder / "control",
                build / "simgpu/lib", build / "injector/libtidemark.so", **environment)
    if mode == "plain":
        assert host.say("begin") == "ready"
    else:
        host.ready()
    if mode in ("recording", "stopped"):
        host.ask("start", out=folder / "out", buffer_mb=64)
    if mode == "stopped":
        host.ask("stop")
    host.say("time 2000")
    result = float(host.say(f"time {COUNT}"))
    host.end()
    return result


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    modes = ("plain", "armed", "recording", "stopped")
    results = {mode: [] for mode in modes}
    for i in range(rounds):
        for mode in modes if i % 2 == 0 else reversed(modes):
            with tempfile.TemporaryDirectory() as folder:
                results[mode].append(measure(build, pathlib.Path(folder), mode))
    for mode, values in results.items():
        print(f"{mode:10} {statistics.median(values):8.1f} ns per pair, "
              f"{min(values):.1f} to {max(values):.1f}")


if __name__ == "__main__":
    main()
