"""A program on the stand-in for PyTorch that uses memory of every kind, on command.

    python3 serve_program.py TORCH_DIRECTORY       with PYTHONPATH=python
"""
import ctypes
import os
import random
import sys

from torch_program import Torch, random_step, wait_for_bridge

import tidemark

torch = Torch(sys.argv[1])
driver = ctypes.CDLL("libcuda.so.1")
dice = random.Random(int(os.environ.get("RANK", 0)))
live, kept = [], []


def grow(steps):
    """Keeps 3 MiB more in each step."""
    for n in range(steps):
        torch.free(torch.alloc(30 << 20))
        kept.append(torch.alloc(3 << 20))
        tidemark.step(n)


def others():
    """Memory of the driver that is not PyTorch's."""
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(5 << 20)) == 0
    assert driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(7 << 20), 0) == 0
    assert driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(1 << 20), 0) == 0
    assert driver.cuMemFreeHost(address) == 0
    nccl = ctypes.CDLL("libnccl.so.2")
    assert nccl.ncclMemAlloc(ctypes.byref(address), ctypes.c_size_t(2 << 20)) == 0


def errors():
    """A retry, two errors of PyTorch and one of the driver."""
    for block in [torch.alloc(1 << 30) for _ in range(4)]:
        torch.free(block)
    total, free = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    block = torch.alloc(free.value + (1 << 30))
    assert block != 0
    torch.free(block)
    assert torch.alloc(total.value) == 0 and torch.alloc(total.value) == 0
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), total) == 2


def virtual():
    """New segments are virtual memory, and some of it is given back."""
    torch.use_sleeping_memory(1)
    blocks = [torch.alloc(40 << 20) for _ in range(3)]
    torch.free(blocks.pop())
    torch.empty_cache()
    live.extend(blocks)


def asynchronous():
    """The backend cudaMallocAsync, and an error in it."""
    torch.use_async()
    live.extend(torch.alloc(3 << 20) for _ in range(5))
    torch.free(live.pop())
    assert torch.alloc(1 << 50) == 0


for line in sys.stdin:
    verb, *numbers = line.split()
    if verb == "bridge":
        wait_for_bridge(torch)
    elif verb == "fill":
        for _ in range(int(numbers[0])):
            random_step(torch, dice, live, 100)
    else:
        {"begin": lambda: None, "grow": lambda: grow(int(numbers[0])), "others": others,
         "errors": errors, "virtual": virtual,
         "async": asynchronous}[verb]()
    print("ready", flush=True)
