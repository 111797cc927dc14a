"""Time and memory of `tidemark report`, `diff` and `export` while one thing in the input doubles twice.

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
SIZES = {"devices": 256, "streams": 10_000, "shared_frames": 50_000, "deep_stacks": 50_000,
         "ranks": 500, "rank_files": 500, "nccl_calls": 100_000, "requests": 50_000}
COMMANDS = ("report", "diff", "export")


def command_of(name, path, folder):
    more = {"report": (), "diff": (path,),
            "export": ("--format", "perfetto", "-o", folder / "out.pftrace")}[name]
    return [sys.argv[1], name, path, *more]


def best_cost(command):
    """CPU seconds, the best of three, and MiB."""
    results = [growing_inputs.cost(command) for _ in range(3)]
    if any(status != 0 for status, *_ in results):
        sys.exit(f"{command}: {results[0][1]}")
    return min(r[2] for r in results), min(r[3] for r in results)


def costs_of(name, count):
    """Of each command."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        path = growing_inputs.made(getattr(growing_inputs, name), folder, count)
        return [best_cost(command_of(command, path, folder)) for command in COMMANDS]


def main():
    worst = 0.0
    print(f"{'':15}{'count':>9}  {'':6}{'seconds':>10}{'x':>6}{'MiB':>9}{'x':>6}")
    for name in sys.argv[2:] or SIZES:
        before = None
        for count in (SIZES[name] << doubling for doubling in range(3)):
            costs = costs_of(name, count)
            for i, (seconds, memory) in enumerate(costs):
                ratios = ("", "")
                if before:
                    times, sizes = seconds / max(before[i][0], 0.01), memory / before[i][1]
                    worst = max(worst, times, sizes)
                    ratios = (f"{times:.1f}", f"{sizes:.1f}")
                print(f"{name:15}{count:9}  {COMMANDS[i]:6}{seconds:10.2f}{ratios[0]:>6}"
                      f"{memory:9.0f}{ratios[1]:>6}", flush=True)
            before = costs
    sys.exit(worst > MOST)


main()
