"""Measures what recording PyTorch's allocator costs, against torch's memory history. Needs a GPU.

    CUDA_INJECTION64_PATH=build/dev/bench/libtidemark_bench.so TIDEMARK_OUT=/tmp/torch_bench \
        TIDEMARK_CUPTI=0 python3 bench/torch_bench.py

Everything runs in one process, and the modes alternate, so that disturbances of the machine affect
all of them. The differences printed are against "nothing". The bridge cannot be detached once it is
attached, so the modes without it are measured first, and "nothing" is measured again with it
attached. Driver callbacks are off (TIDEMARK_CUPTI=0); samples/gpu/check_on_gpu.sh measures their
cost, and bench/overhead.py that of whole steps. TIDEMARK_PYTHON_GIL=1 measures the slow way to read
Python's frames. ROUNDS sets the number of rounds (15).
"""
import ctypes
import gc
import os
import statistics
import sys
import time

import torch

ROUNDS = int(os.environ.get("ROUNDS", "15"))
STRETCHES = 20
PAIRS = 1000


def deep(levels, function):
    return function() if levels == 0 else deep(levels - 1, function)


def pairs():
    """The best of many short stretches: a disturbance of the machine only affects some of them."""
    empty, device = torch.empty, torch.device("cuda")
    best = float("inf")
    for _ in range(STRETCHES):
        begin = time.perf_counter_ns()
        for _ in range(PAIRS):
            empty(1000, device=device)
        best = min(best, (time.perf_counter_ns() - begin) / PAIRS)
    return best


def history(**arguments):
    torch.cuda.memory._record_memory_history(max_entries=100000, **arguments)


def measure(modes):
    results = {name: ([], []) for name in modes}
    for _ in range(ROUNDS):
        for name, (begin, end) in modes.items():
            begin()
            pairs()  # warm-up
            results[name][0].append(pairs())
            results[name][1].append(deep(30, pairs))
            end()
            gc.collect()
    return {name: [[min(values), statistics.median(values)] for values in lists]
            for name, lists in results.items()}


def main():
    torch.cuda.init()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[2]})  # one core for this thread
    library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
    held = library.tidemark_bench_hold_bridge(1)
    if not held:
        print("the bridge is not in the cache: run `tidemark run` with this torch once before")
        return 2
    listen = library.tidemark_bench_listen

    def with_modules(on):
        library.tidemark_bench_modules(on)
        listen(2, 1)

    nothing = (lambda: listen(0, 0), lambda: None)
    without = measure({
        "nothing": nothing,
        "tidemark, tier 1": (lambda: listen(1, 0), lambda: listen(0, 0)),
        "torch history, no stacks": (lambda: history(context=None), lambda: history(enabled=None)),
        "torch history, python": (lambda: history(stacks="python"), lambda: history(enabled=None)),
        "torch history, all": (lambda: history(stacks="all"), lambda: history(enabled=None)),
    })
    listen(0, 0)
    library.tidemark_bench_hold_bridge(0)
    pairs()
    behind = measure({
        "nothing, bridge attached": nothing,
        "tidemark, tier 2": (lambda: listen(2, 0), lambda: listen(0, 0)),
        "tidemark, tier 2, python stacks": (lambda: with_modules(0), lambda: listen(0, 0)),
        "tidemark, tier 2, and modules": (lambda: with_modules(1), lambda: listen(0, 0)),
    })
    base = without["nothing"]
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {ROUNDS} rounds: "
          "the best, the median, and the difference of the best from nothing")
    print(f"{'':32} {'alloc+free, ns':>25} {'30 frames deep, ns':>25}")
    for name, (pair, deeper) in {**without, **behind}.items():
        print(f"{name:32} {pair[0]:8.0f} {pair[1]:8.0f} {pair[0] - base[0][0]:+7.0f} "
              f"{deeper[0]:9.0f} {deeper[1]:8.0f} {deeper[0] - base[1][0]:+7.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
