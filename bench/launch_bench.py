"""Measures what a kernel's launch costs before tidemark is in the process, armed, and recording. Needs a GPU.

    PATH=$PWD/build/dev:$PATH PYTHONPATH=python python3 bench/launch_bench.py

One thread on one core launches a small kernel again and again. Each number is the best of many short
stretches, which a disturbance of the machine cannot reach all; states that can be switched alternate.
The states before the library was loaded cannot come back: "nothing" and "armed" are measured one after
the other, and "armed" again beside the recordings.
"""
import os
import statistics
import tempfile
import time

import torch

import tidemark

ROUNDS, STRETCHES, LAUNCHES = 5, 60, 500


class Step:
    """A launch-bound training step, as in overhead.py."""

    def __init__(self):
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(8, 64, 256, device="cuda")

    def run(self):
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def best(work, repeats, stretches):
    shortest = float("inf")
    for _ in range(stretches):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            work()
        shortest = min(shortest, (time.perf_counter_ns() - begin) / repeats)
    return shortest


def main():
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[2:4]))  # one for autograd's thread
    vector, step = torch.zeros(64, device="cuda"), Step()
    results = {}

    def measure(name):
        results.setdefault(name, []).append(
            (best(lambda: vector.add_(1), LAUNCHES, STRETCHES), best(step.run, 1, STRETCHES)))

    for _ in range(ROUNDS):
        measure("nothing")
    if not tidemark.load():
        raise SystemExit("tidemark was not found: add its folder to PATH")
    for _ in range(ROUNDS):
        measure("armed")
    for _ in range(ROUNDS):
        for name, options in {"without kernels": {"kernels": False}, "all kernels": {"overhead": "off"}}.items():
            with tempfile.TemporaryDirectory() as folder:
                tidemark.start(folder, **options)
                step.run()
                measure(name)
                tidemark.stop()
            measure("armed, after a recording")
    print(f"{'':26} {'launch, ns':>18} {'step, ms':>24}   (best, median of {ROUNDS} rounds, added)")
    base = [min(column) for column in zip(*results["nothing"])]
    for name, rounds in results.items():
        launch, whole = ((min(column), statistics.median(column)) for column in zip(*rounds))
        print(f"{name:26} {launch[0]:6.0f} {launch[1]:6.0f} {launch[0] - base[0]:+6.0f} "
              f"{whole[0] / 1e6:8.2f} {whole[1] / 1e6:7.2f} {100 * (whole[0] / base[1] - 1):+6.1f} %")


if __name__ == "__main__":
    main()
