#!/usr/bin/env python3
"""Records PyTorch memory snapshots together with torch's own statistics.

    python3 record.py OUT_DIR            every case, each in its own process
    python3 record.py OUT_DIR --case graphs

Each case writes CASE.pickle.gz (what torch.cuda.memory._dump_snapshot would write, with shortened
file names) and CASE.truth.json (torch.cuda.memory_stats() at the same moment). The tests
compare the two to the byte.
"""
import argparse
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "scenarios"))
from scenario import shorten, shorten_paths  # noqa: E402

MIB = 1 << 20

# case -> (allocator configuration, keyword arguments of _record_memory_history)
CASES = {
    "default": ("", {}),
    "expandable": ("expandable_segments:True", {}),
    "max_split": ("max_split_size_mb:32", {}),
    "roundup": ("roundup_power2_divisions:8", {}),
    "roundup_list": ("roundup_power2_divisions:[1:4,64:2,256:8,>:1]", {}),
    "streams": ("", {}),
    "streams_expandable": ("expandable_segments:True", {}),
    "graphs": ("", {}),
    "graphs_expandable": ("expandable_segments:True", {}),
    "oom_fraction": ("garbage_collection_threshold:0.6", {}),
    "late": ("", {}),
    "ring": ("", {"max_entries": 600}),
    "no_stacks": ("", {"context": None}),
    "cpp_stacks": ("", {"stacks": "all"}),
    "empty_cache": ("", {}),
    "annotated": ("", {"compile_context": True, "global_record_annotations": True}),
    "long": ("", {}),
}


def as_program(name):
    """The file names as of a user's program."""
    return "train.py" if name.endswith("record.py") else shorten(name)


def model_and_step(torch, width, layers, batch):
    """A small transformer, its optimizer and one training step over a random length."""
    net = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True), layers,
        enable_nested_tensor=False).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)

    def step(length):
        x = torch.randn(batch, length, width, device="cuda")
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def train(torch, steps=3, width=256, layers=2, batch=16):
    import random
    random.seed(1)
    step = model_and_step(torch, width, layers, batch)
    for _ in range(steps):
        step(random.randrange(32, 400))


def side_streams(torch):
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    keep = []
    for i in range(30):
        x = torch.empty((1 + i % 7) * 3 * MIB // 4, device="cuda")
        with torch.cuda.stream(a):
            y = torch.ones((1 + i % 5) * 777_777, device="cuda")
            torch.cuda._sleep(2_000_000)
            y.mul_(2)
            x.record_stream(a)
        with torch.cuda.stream(b):
            torch.cuda._sleep(1_000_000)
            y.record_stream(b)
            z = y.clone() if i % 2 else y
        if i % 9 == 0:
            keep.append(z)
        del x, y, z
        if i % 10 == 9:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")
    return keep


def graphs(torch):
    net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(3)]).cuda()
    x = torch.randn(2048, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            net(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    kept = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(x).relu().sum()
        graph.replay()
        kept.append((graph, out))
    kept.pop(0)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept.append(torch.empty(5 * MIB, device="cuda"))
    kept.append(pool)
    return kept


def run_out(torch):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(512 * MIB / total)
    keep = []
    try:
        for i in range(200):
            keep.append(torch.empty((i % 13 + 1) * MIB, dtype=torch.uint8, device="cuda"))
            if i % 3 == 0:
                keep.pop(0)
            torch.empty((i % 7 + 12) * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    return keep


def work(torch, case):
    if case.startswith("streams"):
        return side_streams(torch)
    if case.startswith("graphs"):
        return graphs(torch)
    if case == "oom_fraction":
        return run_out(torch)
    if case == "annotated":
        for i in range(2):
            torch.cuda.memory._set_memory_metadata(f"step {i}")
            with torch.profiler.record_function(f"step {i}"):
                train(torch, steps=1, width=128, layers=1)
        return None
    if case == "empty_cache":
        for _ in range(3):
            train(torch, steps=1)
            torch.cuda.empty_cache()
        return None
    if case == "cpp_stacks":
        return train(torch, steps=1, width=128, layers=1)
    if case == "long":
        return train(torch, steps=150, width=256, layers=6, batch=8)
    return train(torch)


def record(case, out):
    conf, options = CASES[case]
    import torch
    options = {"stacks": "python", **options}
    before = None
    if case == "late":
        before = model_and_step(torch, 256, 2, 16)
        before(200)
        kept = [torch.empty(n * 700_001, dtype=torch.uint8, device="cuda") for n in range(1, 30)]
        del kept[::3]
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(**options)
    kept_after = before and [before(n) for n in (64, 300)]
    kept_work = None if before else work(torch, case)
    if case == "late":
        kept = kept[1::2]
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    truth = {
        "conf": conf,
        "torch": torch.__version__,
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "entries": sum(len(t) for t in snapshot["device_traces"]),
        "stats": {k: v for k, v in stats.items() if "_bytes.all." in k or k.startswith("num_")},
    }
    shorten_paths(snapshot, as_program)
    with gzip.GzipFile(os.path.join(out, case + ".pickle.gz"), "wb", 9, mtime=0) as f:
        pickle.dump(snapshot, f, protocol=4)
    with open(os.path.join(out, case + ".truth.json"), "w") as f:
        json.dump(truth, f, indent=1, sort_keys=True)
        f.write("\n")
    del kept_after, kept_work


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--case", choices=sorted(CASES))
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    if args.case:
        record(args.case, args.out)
        return
    for case, (conf, _) in CASES.items():
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
        code = subprocess.run([sys.executable, __file__, args.out, "--case", case], env=env).returncode
        print(case, "ok" if code == 0 else f"failed ({code})", flush=True)


if __name__ == "__main__":
    main()
