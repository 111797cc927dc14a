"""Measures what recording a training step costs, against torch's own tools. Needs a GPU.

    PATH=$PWD/build/dev:$PATH PYTHONPATH=python python3 bench/overhead.py [--quick]

Everything runs in one process, and windows of --seconds with and without recording alternate, so
that the machine's drift cancels. The table has medians over the pairs of windows, and the middle half
of them as the spread; and, for machines that others use too, the same of the fastest tenth of the
steps in each window, which nobody disturbed, and of the time that all threads had on a processor.
Before each measured window the step runs for --settle seconds in the same mode: it shows the steady
state, not the beginning of a recording, in which every kernel is recorded.

The library stays in the process once it is loaded, so "armed" is compared with windows before that.
torch.profiler keeps CUPTI to itself from its first use on, so it comes last.

--quick takes less than three minutes. --stand-in DIRECTORY runs without a GPU, on simgpu and the
stand-in for torch (build/dev/simgpu/packages/torch), to try this script: the numbers mean nothing.
"""
import argparse
import collections
import contextlib
import ctypes
import itertools
import math
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import tidemark

MODULES_ALONE = "modules alone"  # compared with recording everything else but kernels
PIECE = 4  # steps between two looks at the clock


class TorchStep:
    """A step of a transformer. Small ones wait for the CPU, which launches kernels."""

    def __init__(self, width, layers, tokens):
        import torch
        self.torch = torch
        layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(8, tokens, width, device="cuda")

    def run(self):
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def wait(self):
        self.torch.cuda.synchronize()


class StandInStep:
    """Allocations and launches on simgpu."""

    def __init__(self, directory, launches):
        programs = pathlib.Path(__file__).resolve().parents[1] / "tests" / "programs"
        sys.path.insert(0, str(programs))
        import torch_program
        self.torch = torch_program.Torch(directory)
        self.cuda = ctypes.CDLL("libcuda.so.1")
        module = ctypes.c_void_p()
        self.kernel = ctypes.c_void_p()
        ptx = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n"
        self.cuda.cuModuleLoadData(ctypes.byref(module), ptx)
        self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"idle")
        self.launches = launches

    def run(self):
        blocks = [self.torch.alloc(1 << 20) for _ in range(20)]
        for _ in range(self.launches):
            self.cuda.cuLaunchKernel(self.kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        for block in blocks:
            self.torch.free(block)

    def wait(self):
        self.cuda.cuCtxSynchronize()


def steps_of(arguments):
    if arguments.stand_in:
        return {"launch-bound": lambda: StandInStep(arguments.stand_in, 400),
                "heavy": lambda: StandInStep(arguments.stand_in, 10)}
    return {"launch-bound": lambda: TorchStep(256, 12, 64),
            "medium": lambda: TorchStep(512, 12, 512),
            "heavy": lambda: TorchStep(1024, 12, 1024)}


class Modes:
    """What is switched on for a window."""

    def __init__(self, folder):
        self.folder = folder
        self.last_trace = None

    @contextlib.contextmanager
    def recording(self, **options):
        out = tempfile.mkdtemp(dir=self.folder)
        if tidemark.start(out, **options) is None:
            raise SystemExit("the recorder is not in the process")
        try:
            yield
        finally:
            ended = tidemark.stop()
            if self.last_trace is not None:
                shutil.rmtree(self.last_trace.parent, ignore_errors=True)
            self.last_trace = ended.trace

    @contextlib.contextmanager
    def history(self, stacks):
        import torch
        torch.cuda.memory._record_memory_history(stacks=stacks, max_entries=100_000)
        try:
            yield
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)

    def profiler(self):
        import torch
        return torch.profiler.profile(profile_memory=True)

    def all(self, stand_in):
        modes = {
            "default": self.recording,
            "no budget": lambda: self.recording(overhead="off"),
            "without kernels": lambda: self.recording(kernels=False),
            MODULES_ALONE: lambda: self.recording(kernels=False),
        }
        if stand_in:
            return modes
        return modes | {
            "torch history, python": lambda: self.history("python"),
            "torch history, all": lambda: self.history("all"),
            "torch.profiler, memory": self.profiler,
        }

    def estimate(self):
        """The recorder's own estimate in the last window, as text."""
        bursts = tidemark.report(self.last_trace).ranks[0].loss.kernels_not_recorded
        how = "measured" if bursts.kernel_cost_measured else "assumed"
        kernel = f", {bursts.kernel_cost_ns} ns per kernel ({how})" if bursts.kernel_cost_ns else ""
        return (f"{100 * bursts.estimated_overhead:.1f} %{kernel}, kernels "
                f"{100 * bursts.recorded_share:.0f} % of the time")


# Nanoseconds per step; those of the processor are all threads', tidemark's and CUPTI's own ones included.
Window = collections.namedtuple("Window", "mean quiet processor")


def window(step, seconds):
    """All steps of at least that many seconds, and the tenth of them that was fastest."""
    step.wait()
    processor = time.process_time_ns()
    times = [time.perf_counter_ns()]
    while times[-1] < times[0] + seconds * 1e9:
        for _ in range(PIECE):
            step.run()
        step.wait()
        times.append(time.perf_counter_ns())
    processor = (time.process_time_ns() - processor) / (PIECE * (len(times) - 1))
    pieces = sorted((after - before) / PIECE for before, after in itertools.pairwise(times))
    return Window(statistics.mean(pieces), statistics.mean(pieces[:math.ceil(len(pieces) / 10)]),
                  processor)


def measure(step, off, on, arguments):
    """Pairs of windows in the two modes; which comes first alternates."""
    def settled(mode):
        with mode():
            window(step, arguments.settle)
            return window(step, arguments.seconds)

    pairs = []
    for number in range(arguments.windows // 2):
        first, second = (off, on) if number % 2 == 0 else (on, off)
        one, other = settled(first), settled(second)
        pairs.append((one, other) if number % 2 == 0 else (other, one))
    return pairs


def added(pairs, part):
    """What the second windows add to the first ones, in percent: the median and the middle half."""
    percents = sorted(100 * (getattr(on, part) / getattr(off, part) - 1) for off, on in pairs)
    low, high = ((percents[0], percents[-1]) if len(percents) < 4 else
                 (statistics.quantiles(percents, n=4)[i] for i in (0, 2)))
    return f"{statistics.median(percents):+.2f} % ({low:+.2f} … {high:+.2f})"


def row(step_name, name, pairs, note=""):
    off, on = (statistics.median(pair[i].mean for pair in pairs) / 1e6 for i in (0, 1))
    print(f"| {step_name} | {name} | {off:.2f} | {on:.2f} | {added(pairs, 'mean')} | "
          f"{added(pairs, 'quiet')} | {added(pairs, 'processor')} | {2 * len(pairs)} | {note} |", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=4, help="of a window")
    parser.add_argument("--windows", type=int, default=20, help="of a mode, half of them without")
    parser.add_argument("--settle", type=float, default=2, help="seconds before a window")
    parser.add_argument("--steps", nargs="+", help="launch-bound, medium, heavy")
    parser.add_argument("--modes", nargs="+", help="first words of the modes to measure")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stand-in", metavar="DIRECTORY")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.windows, arguments.settle = 0.8, 6, 0.8
    return arguments


def main():
    arguments = parse()
    makers = steps_of(arguments)
    wanted = arguments.steps or list(makers)
    folder = tempfile.mkdtemp(prefix="tidemark-overhead-")
    modes = Modes(folder)
    chosen = {name: mode for name, mode in modes.all(arguments.stand_in).items()
              if arguments.modes is None or any(name.startswith(m) for m in arguments.modes)}
    steps = {name: makers[name]() for name in wanted}
    for step in steps.values():
        window(step, 2 * arguments.settle)
    before = {name: [window(step, arguments.seconds) for _ in range(arguments.windows // 2)]
              for name, step in steps.items()}
    if not tidemark.load():
        raise SystemExit("tidemark was not found: add its folder to PATH")
    print("| step | mode | off, ms | on, ms | added | added to the fastest tenth | "
          "added to processor time | windows | estimate |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, step in steps.items():
        armed = [window(step, arguments.seconds) for _ in before[name]]
        row(name, "armed", list(zip(before[name], armed)), "not alternated")
    # The bridge is attached, and what a kernel costs is measured, in the first recording.
    for step in steps.values():
        with modes.recording():
            window(step, 2 * arguments.settle + arguments.seconds)
        break
    for mode_name, mode in chosen.items():
        for name, step in steps.items():
            off = contextlib.nullcontext
            if mode_name == MODULES_ALONE:
                off = lambda: modes.recording(kernels=False, modules=False)
            pairs = measure(step, off, mode, arguments)
            records = not mode_name.startswith("torch")
            row(name, mode_name, pairs, modes.estimate() if records else "")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
