"""Time and memory of `tidemark report` while one thing in the input doubles.

    python3 bench/growth_bench.py build/dev/tidemark [NAME ...]

Both must at most grow by 2.2 with each doubling; otherwise the exit status is 1. Sizes are such
that the start of the program does not matter.
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
import growing_inputs  # noqa: E402

MOST = 2.2
SIZES = {"devices": 500, "streams": 20_000, "shared_frames": 100_000, "deep_stacks": 100_000,
         "ranks": 1000, "nccl_calls": 200_000, "requests": 100_000}


def best_cost(tidemark, path):
    """CPU seconds, the best of three, and MiB."""
    results = [growing_inputs.cost([tidemark, "report", path]) for _ in range(3)]
    if any(status != 0 for status, *_ in results):
        sys.exit(f"report {path}: {results[0][1]}")
    return min(r[2] for r in results), min(r[3] for r in results)


def main():
    tidemark, names = sys.argv[1], sys.argv[2:] or SIZES
    worst = 0.0
    print(f"{'':15}{'count':>9}{'seconds':>10}{'x':>6}{'MiB':>9}{'x':>6}")
    for name in names:
        seconds = memory = None
        for doublings in range(2):
            count = SIZES[name] << doublings
            with tempfile.TemporaryDirectory() as folder:
                path = growing_inputs.made(getattr(growing_inputs, name), pathlib.Path(folder),
                                           count)
                before, (seconds, memory) = (seconds, memory), best_cost(tidemark, path)
            ratios = ("", "")
            if doublings:
                times = seconds / max(before[0], 0.01)
                sizes = memory / before[1]
                worst = max(worst, times, sizes)
                ratios = (f"{times:.1f}", f"{sizes:.1f}")
            print(f"{name:15}{count:9}{seconds:10.2f}{ratios[0]:>6}{memory:9.0f}{ratios[1]:>6}")
    sys.exit(worst > MOST)


main()
