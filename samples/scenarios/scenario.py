"""Shared by the scenarios: options, a simulated small card, ranks, and writing torch's statistics.

Each scenario is a module with `main(run)`; `start(main, ...)` parses the options:

    python3 SCENARIO.py [--fixed] [--unlimited] [--out PREFIX] [--roles]

--fixed      the same program with its problem fixed
--unlimited  without the simulated limit, to learn how much the program would have needed
--out        writes PREFIX.pickle.gz (torch's own history) and PREFIX.truth.json (torch's statistics);
             with several ranks PREFIX.rankN.…
--roles      marks allocations in the history with their exact category, as torch.profiler would
"""
import argparse
import bisect
import gzip
import json
import os
import pickle
import subprocess
import sys
import time

MIB = 1 << 20


def shorten(name):
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in name:
            return "site-packages/" + name.split(mark, 1)[1]
    return os.path.basename(name) if name.startswith("/") else name


def shorten_paths(snapshot, short=shorten):
    seen = set()
    lists = [s.get("frames", ()) for s in snapshot["segments"]]
    lists += [b.get("frames", ()) for s in snapshot["segments"] for b in s["blocks"]]
    lists += [e.get("frames", ()) for trace in snapshot["device_traces"] for e in trace]
    for frames in lists:
        for frame in frames:
            if id(frame) not in seen:  # shared between entries
                seen.add(id(frame))
                frame["filename"] = short(frame["filename"])


class Roles:
    """The role of each storage and when: exact categories from optimizers and autograd."""

    def __init__(self, torch):
        self.torch = torch
        self.notes = []
        self.parameters = set()
        # torch.optim deletes the name of its own module, so it is not available as an attribute.
        from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                           register_optimizer_step_pre_hook)
        register_optimizer_step_pre_hook(self.on_step)
        register_optimizer_step_post_hook(self.on_step)
        self.saved = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t)
        self.saved.__enter__()

    def note(self, tensor, role):
        if self.torch.is_tensor(tensor) and tensor.is_cuda:
            address = tensor.untyped_storage().data_ptr()
            self.notes.append((time.time_ns() // 1000, address, role))

    def pack(self, tensor):
        self.note(tensor, "activation")
        return tensor.detach()  # the same storage, without a cycle through its own node

    def on_step(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.note(p, "parameter")
                if p.grad is not None:
                    self.note(p.grad, "gradient")
                for value in optimizer.state.get(p, {}).values():
                    self.note(value, "optimizer_state")

    def write_into(self, snapshot):
        """Gives each allocation of the history the strongest role noted during its lifetime."""
        strength = ["activation", "input", "gradient", "optimizer_state", "parameter"]
        notes = {}
        for when, address, role in self.notes:
            notes.setdefault(address, []).append((when, role))
        for times in notes.values():
            times.sort()
        for trace in snapshot["device_traces"]:
            born = {}
            for entry in trace + [None]:
                if entry is None or entry["action"] == "free_requested":
                    ended = list(born.items()) if entry is None else [(entry["addr"], born.get(entry["addr"]))]
                    last = 1 << 62 if entry is None else entry["time_us"]
                    for address, alloc in ended:
                        if alloc is None:
                            continue
                        times = notes.get(address, [])
                        begin = bisect.bisect_left(times, (alloc["time_us"], ""))
                        roles = [role for when, role in times[begin:] if when <= last]
                        if roles:
                            alloc["category"] = max(roles, key=strength.index)
                elif entry["action"] == "alloc":
                    born[entry["addr"]] = entry


class Run:
    """One run of a scenario in this process."""

    def __init__(self, args, rank, world):
        import torch
        self.torch = torch
        self.fixed = args.fixed
        self.unlimited = args.unlimited
        self.rank = rank
        self.world = world
        self.out = args.out and (args.out if world == 1 else f"{args.out}.rank{rank}")
        self.roles = Roles(torch) if args.roles else None
        self.steps = 0
        self.oom = False
        torch.manual_seed(1 + rank)
        torch.cuda.init()
        if self.out:
            torch.cuda.memory._record_memory_history(stacks="python")

    def limit(self, mib):
        """Makes the card look as if PyTorch had only this many MiB."""
        if not self.unlimited:
            total = self.torch.cuda.get_device_properties(0).total_memory
            self.torch.cuda.set_per_process_memory_fraction(mib * MIB / total)

    def input(self, tensor):
        if self.roles:
            self.roles.note(tensor, "input")
        return tensor

    def step(self):
        self.steps += 1

    def finish(self):
        torch = self.torch
        torch.cuda.synchronize()
        if not self.out:
            return
        stats = torch.cuda.memory_stats()
        truth = {
            "fixed": self.fixed, "unlimited": self.unlimited, "rank": self.rank,
            "world_size": self.world, "steps": self.steps, "oom": self.oom,
            "torch": torch.__version__,
            "total_memory": torch.cuda.get_device_properties(0).total_memory,
            "allocated_peak": stats["allocated_bytes.all.peak"],
            "requested_peak": stats["requested_bytes.all.peak"],
            "reserved_peak": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
        }
        snapshot = torch.cuda.memory._snapshot()
        shorten_paths(snapshot)
        if self.roles:
            self.roles.write_into(snapshot)
        with gzip.GzipFile(self.out + ".pickle.gz", "wb", 6, mtime=0) as f:
            pickle.dump(snapshot, f, protocol=4)
        with open(self.out + ".truth.json", "w") as f:
            json.dump(truth, f, indent=1, sort_keys=True)
            f.write("\n")


def start(main, ranks=1):
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--unlimited", action="store_true")
    parser.add_argument("--roles", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    if ranks > 1 and "RANK" not in os.environ:
        children = []
        for rank in range(ranks):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(ranks),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
            children.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
        sys.exit(max(abs(child.wait()) for child in children))
    run = Run(args, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
    kept = None
    try:
        kept = main(run)  # what the program still holds at its end
    except run.torch.OutOfMemoryError:
        run.oom = True  # expected if the scenario is about it
    run.finish()
    del kept
