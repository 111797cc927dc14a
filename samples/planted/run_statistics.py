"""Torch's own statistics of a run, written at its end; imported by the generated programs.

    PLANTED_STATISTICS    the file to write (JSON); with several ranks, rank N writes FILE.rankN
    PLANTED_LIMIT_BYTES   a limit for this process, as if the card were that small

The exact bytes of parameters, gradients and optimizer state come from the objects themselves, as
they are when the allocated peak is reached: optimizer hooks tell whether the peak lies inside an
optimizer step, where all three are known, or outside, where the gradients are not.
"""
import json
import os
import re
import weakref

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                   register_optimizer_step_pre_hook)

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def rounded(size):
    """The block that PyTorch's allocator takes for a request, before it decides whether to split."""
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
    found = re.search(r"roundup_power2_divisions:(\d+)", conf)
    parts = int(found[1]) if found else 0
    if parts > 1 and size > 512 * parts:
        unit = (1 << (size.bit_length() - 1)) // parts
        return -(-size // unit) * unit
    return -(-size // 512) * 512


def block_bytes(tensors):
    """The bytes of the blocks under these tensors, each storage once."""
    sizes = {}
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
        if torch.is_tensor(tensor) and tensor.is_cuda:
            storage = tensor.untyped_storage()
            if storage.nbytes():
                sizes[storage.data_ptr()] = rounded(storage.nbytes())
    return sum(sizes.values())


def verdict(message, total):
    """Whether an out-of-memory error is for want of memory or of a hole that is large enough."""
    def amount(pattern):
        found = re.search(pattern.replace("SIZE", r"([\d.]+) (bytes|KiB|MiB|GiB)"), message)
        return float(found[1]) * UNITS[found[2]] if found else None

    asked = amount("Tried to allocate SIZE")
    used = amount("Of the allocated memory SIZE is allocated by PyTorch")
    allowed = amount(r"SIZE allowed") or total
    if asked is None or used is None:
        return None
    return "capacity" if asked + used > allowed else "fragmentation"


class Observer:
    def __init__(self):
        self.parameters = []
        self.steps = {}
        self.peak = 0
        self.labels = {}
        self.weights = self.state = self.gradients = 0
        self.oom = None

    def on_parameter(self, module, name, parameter):
        if parameter is not None:
            self.parameters.append(weakref.ref(parameter))

    def live_parameters(self, optimizer=None):
        found = [p for p in (ref() for ref in self.parameters) if p is not None]
        if optimizer is not None:
            found += [p for group in optimizer.param_groups for p in group["params"]]
        return found

    def note(self, labels):
        peak = torch.cuda.max_memory_allocated()
        if peak > self.peak:
            self.peak, self.labels = peak, labels

    def before_step(self, optimizer, args, kwargs):
        live = self.live_parameters(optimizer)
        self.gradients = block_bytes(p.grad for p in live if p.grad is not None)
        self.weights = block_bytes(live)
        self.note({"parameter": self.weights, "optimizer_state": self.state})

    def after_step(self, optimizer, args, kwargs):
        self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
        state = [value for values in optimizer.state.values() for value in values.values()]
        self.state = block_bytes(state) if len(self.steps) == 1 else None  # of several: unknown
        self.note({"parameter": self.weights, "gradient": self.gradients,
                   "optimizer_state": self.state})

    def __enter__(self):
        register_module_parameter_registration_hook(self.on_parameter)
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        torch.manual_seed(1)
        torch.cuda.init()
        limit = os.environ.get("PLANTED_LIMIT_BYTES")
        self.total = torch.cuda.get_device_properties(0).total_memory
        if limit:
            torch.cuda.set_per_process_memory_fraction(min(1.0, int(limit) / self.total))
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and issubclass(kind, torch.OutOfMemoryError):
            self.oom = str(error)
        elif kind is not None:
            return False
        if self.oom is None:
            torch.cuda.synchronize()
        if not self.steps:  # no optimizer: the weights are what is still alive
            self.weights = block_bytes(self.live_parameters())
        self.note({"parameter": self.weights, "optimizer_state": self.state})
        self.write()
        return True

    def write(self):
        stats = torch.cuda.memory_stats()
        pinned = [value for name, value in torch.cuda.host_memory_stats().items()
                  if name.startswith("allocated_bytes") and name.endswith("peak")]
        truth = {
            "torch": torch.__version__,
            "total_memory": self.total,
            "allocated_peak": torch.cuda.max_memory_allocated(),
            "reserved_peak": torch.cuda.max_memory_reserved(),
            "requested_peak": stats.get("requested_bytes.all.peak", 0),
            "num_ooms": stats.get("num_ooms", 0),
            "num_alloc_retries": stats.get("num_alloc_retries", 0),
            "pinned_peak": max(pinned, default=0),
            "optimizer_steps": max(self.steps.values(), default=0),
            "oom": self.oom is not None,
            "oom_verdict": verdict(self.oom, self.total) if self.oom else None,
            "labels": {name: value for name, value in self.labels.items() if value is not None},
        }
        file = os.environ.get("PLANTED_STATISTICS")
        if file:
            rank = os.environ.get("RANK")
            with open(f"{file}.rank{rank}" if rank else file, "w") as out:
                json.dump(truth, out, indent=1, sort_keys=True)


def observed():
    return Observer()
