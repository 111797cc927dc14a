"""PyTorch programs whose important instant is short or unusual: peaks of milliseconds, errors,
stream-ordered memory, memory that sleeps.

    python3 samples/torch/instants_programs.py NAME --truth FILE

Each writes torch's own numbers, with which a recording of it is compared.
"""
import argparse
import ctypes
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import programs

GIB = 1 << 30
MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent


class Program:
    def __init__(self, run, alone, conf, expect):
        self.run, self.alone, self.conf, self.expect = run, alone, conf, expect


PROGRAMS = {}


def program(name=None, alone=False, conf="", expect=()):
    """`alone`: needs the whole card. `conf`: PYTORCH_CUDA_ALLOC_CONF. `expect`: the findings with
    these ids are there; those with "!" in front are not."""
    def register(function):
        PROGRAMS[name or function.__name__] = Program(function, alone, conf, expect)
        return function
    return register


def block(torch, size):
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def go_on(torch):
    """Life after the peak, on a low level: a reading of this time explains nothing of it."""
    torch.cuda.empty_cache()
    time.sleep(0.15)
    small = block(torch, 64 * MIB)
    time.sleep(0.25)
    return small


def spike(milliseconds):
    def run(torch, truth):
        base = block(torch, 2 * GIB)
        time.sleep(0.25)
        high = block(torch, 6 * GIB + milliseconds * 512)
        time.sleep(milliseconds / 1000)
        del high
        go_on(torch)
        del base
    return run


for length in (1, 2, 5, 10, 20, 50):
    program(f"peak_{length}ms")(spike(length))


@program()
def peak_of_many_blocks(torch, truth):
    base = block(torch, GIB)
    time.sleep(0.2)
    high = [block(torch, (1 + i % 37) * 700_001) for i in range(400)]
    time.sleep(0.002)
    del high
    go_on(torch)
    del base


@program()
def peak_in_the_cache(torch, truth):
    """The driver is not asked: the segments are there from before."""
    cached = [block(torch, GIB) for _ in range(6)]
    del cached
    time.sleep(0.3)
    high = [block(torch, GIB - i * MIB) for i in range(6)]
    time.sleep(0.003)
    high.clear()
    go_on(torch)


@program()
def peak_on_streams(torch, truth):
    side = [torch.cuda.Stream() for _ in range(3)]
    base = block(torch, GIB)
    time.sleep(0.2)
    high = []
    for i, stream in enumerate(side):
        with torch.cuda.stream(stream):
            high.append(block(torch, (i + 1) * GIB).fill_(1))
        high[-1].record_stream(torch.cuda.current_stream())
    time.sleep(0.005)
    high.clear()
    torch.cuda.synchronize()
    go_on(torch)
    del base


@program(conf="expandable_segments:True")
def peak_of_expandable_segments(torch, truth):
    base = block(torch, GIB)
    time.sleep(0.2)
    high = [block(torch, (700 + 10 * i) * MIB) for i in range(8)]
    time.sleep(0.01)
    high.clear()
    go_on(torch)
    del base


@program()
def peak_of_threads(torch, truth):
    ready = threading.Barrier(4)

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            ready.wait()
            high = block(torch, (index + 1) * GIB)
            ready.wait()
            time.sleep(0.004)
            ready.wait()
            del high

    base = block(torch, GIB)
    time.sleep(0.2)
    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    go_on(torch)
    del base


@program()
def peak_in_a_pool(torch, truth):
    base = block(torch, GIB)
    time.sleep(0.2)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        high = [block(torch, 900 * MIB + i) for i in range(5)]
        time.sleep(0.008)
        del high
    del pool
    go_on(torch)
    del base


def fill(torch, size, kept, truth):
    """Allocates until an error, and notes what torch says then."""
    try:
        while True:
            kept.append(block(torch, size))
    except torch.cuda.OutOfMemoryError:
        truth["errors"] = truth.get("errors", 0) + 1
        truth["at_error"] = {"allocated": torch.cuda.memory_allocated(),
                             "reserved": torch.cuda.memory_reserved(), "requested": size}


def allow(torch, truth, size):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(size / total)
    allowed = torch.cuda.memory.get_per_process_memory_fraction(0)
    truth["limit"] = round(allowed * total)


@program(alone=True, expect=("capacity", "!fragmentation"))
def error_of_the_whole_card(torch, truth):
    """Twice the driver refuses and torch frees its cache: once that helps."""
    kept = []
    cached = [block(torch, GIB // 16) for _ in range(64)]  # too small for what follows
    cached.clear()
    fill(torch, 2 * GIB, kept, truth)
    time.sleep(0.05)
    kept.clear()
    torch.cuda.empty_cache()
    time.sleep(0.2)


@program(expect=("memory_fraction", "capacity", "!fragmentation"))
def error_under_a_fraction(torch, truth):
    """15 GiB were reserved before; when the request fails, 7 are."""
    allow(torch, truth, 16 * GIB)
    cached = [block(torch, GIB) for _ in range(15)]
    del cached
    kept = [block(torch, 7 * GIB)]
    fill(torch, 12 * GIB, kept, truth)
    time.sleep(0.05)
    kept.clear()
    go_on(torch)


@program(expect=("fragmentation", "!capacity"))
def error_because_of_holes(torch, truth):
    """7.5 GiB are in use, 6 are requested, 16 allowed: they would have fitted."""
    allow(torch, truth, 16 * GIB)
    segments = [block(torch, 3 * GIB) for _ in range(5)]
    del segments
    halves = [block(torch, 3 * GIB // 2) for _ in range(10)]  # two in each segment
    pinned = halves[::2]
    del halves
    fill(torch, 6 * GIB, pinned, truth)
    time.sleep(0.05)
    pinned.clear()
    go_on(torch)


@program(expect=("memory_fraction",))
def error_inside_a_capture(torch, truth):
    allow(torch, truth, 4 * GIB)
    kept = []
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fill(torch, 700 * MIB, kept, truth)
    time.sleep(0.05)
    kept.clear()
    del graph
    go_on(torch)


def race(torch, truth, folder, index):
    """Two processes fill the card at the same time; the first that fails keeps what it has."""
    block(torch, MIB)
    (folder / f"ready{index}").touch()
    while not (folder / f"ready{1 - index}").exists():
        time.sleep(0.005)
    kept = []
    fill(torch, 2 * GIB + index * GIB, kept, truth)
    (folder / f"failed{index}").touch()
    for _ in range(2000):
        if (folder / f"failed{1 - index}").exists():
            break
        time.sleep(0.005)
    time.sleep(0.3)
    kept.clear()


@program(alone=True, expect=("capacity",))
def error_in_a_race(torch, truth):
    with tempfile.TemporaryDirectory() as folder:
        other = subprocess.Popen([sys.executable, __file__, "second_racer", "--truth",
                                  truth["file"] + ".second", "--folder", folder])
        race(torch, truth, pathlib.Path(folder), 0)
        other.wait()


def second_racer(torch, truth, folder):
    race(torch, truth, pathlib.Path(folder), 1)


ASYNC = "backend:cudaMallocAsync"


@program(conf=ASYNC)
def async_training(torch, truth):
    programs.training(torch)


@program(conf=ASYNC, expect=("creep|retained_graph",))
def async_leak(torch, truth):
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept = []
    for _ in range(30):
        loss = model(torch.randn(1024, 2048, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        kept.append(block(torch, 24 * MIB))


@program(conf=ASYNC)
def async_streams(torch, truth):
    programs.streams(torch)


@program(conf=ASYNC)
def async_graphs(torch, truth):
    programs.graphs(torch)


@program(conf=ASYNC, alone=True, expect=("capacity",))
def async_error(torch, truth):
    kept = []
    fill(torch, 2 * GIB, kept, truth)
    time.sleep(0.05)
    kept.clear()
    torch.cuda.synchronize()
    time.sleep(0.2)


def pool_that_sleeps(torch):
    """A MemPool on sleeper.cpp, and the library."""
    library = pathlib.Path(tempfile.mkdtemp()) / "sleeper.so"
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", "-O1", "-o",
                    library, HERE / "sleeper.cpp"], check=True)
    plug = torch.cuda.memory.CUDAPluggableAllocator(str(library), "sleeper_malloc", "sleeper_free")
    allocator = plug.allocator() if hasattr(plug, "allocator") else plug._allocator
    sleeper = ctypes.CDLL(str(library))
    sleeper.sleeper_sleep.restype = sleeper.sleeper_wake.restype = ctypes.c_size_t
    return torch.cuda.MemPool(allocator), sleeper, plug


@program(alone=True)
def sleep_and_wake(torch, truth):
    """Twenty instants, asleep and awake, each with what cuMemGetInfo says."""
    truth["instants"] = []

    def note(asleep):
        torch.cuda.synchronize()
        time.sleep(0.12)
        free, total = torch.cuda.mem_get_info()
        truth["instants"].append({"time_ns": time.time_ns(), "used": total - free,
                                  "asleep": asleep})
        time.sleep(0.12)

    pool, sleeper, plug = pool_that_sleeps(torch)
    others = [block(torch, 300 * MIB)]
    with torch.cuda.use_mem_pool(pool):
        weights = [block(torch, (200 + 30 * i) * MIB) for i in range(10)]
    note(0)
    for i in range(6):
        slept = sleeper.sleeper_sleep()
        note(slept)
        others.append(block(torch, (50 + i) * MIB))
        note(slept)
        sleeper.sleeper_wake()
        note(0)
    note(0)
    del weights
    del pool
    del others


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(PROGRAMS) + ["second_racer"])
    parser.add_argument("--truth", required=True)
    parser.add_argument("--folder")
    options = parser.parse_args()
    import torch
    torch.manual_seed(0)
    torch.cuda.init()
    truth = {"file": options.truth, "pid": os.getpid(), "errors": 0}
    if options.name == "second_racer":
        second_racer(torch, truth, options.folder)
    else:
        PROGRAMS[options.name].run(torch, truth)
    gc.collect()
    torch.cuda.synchronize()
    truth.update(programs.statistics(torch))
    truth["retries"] = torch.cuda.memory_stats(0).get("num_alloc_retries", 0)
    pathlib.Path(options.truth).write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
