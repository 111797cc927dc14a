#!/usr/bin/env python3
"""Compares tidemark's pickle reader with CPython's pickle.load on a PyTorch-like snapshot.

    bench/pickle_bench.py --tool path/to/pickle_bench_tool [--entries 360000] [--keep FILE]

The snapshot has the shape that torch.cuda.memory._dump_snapshot writes (torch 2.11, protocol 4):
keys, actions and frame dicts are shared through the memo; about two entries in three have their
own frames list and the others share one. Every reader runs in its own process, best of --rounds.
The last line gives the ratios: pickle.load's time divided by ours, and our memory as a fraction of
the memory of Python's objects.
"""

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile

# Run by a fresh interpreter, so that its memory grows by the size of the objects alone.
CPYTHON_READER = r"""
import gc, json, pickle, sys, time

def rss_bytes():
    with open('/proc/self/status') as status:
        fields = dict(line.split(':', 1) for line in status)
    return int(fields['VmRSS'].split()[0]) * 1024

def load_seconds(path):
    with open(path, 'rb') as file:
        start = time.perf_counter()
        document = pickle.load(file)
        return time.perf_counter() - start, document

path, rounds = sys.argv[1], int(sys.argv[2])
if sys.argv[3] == 'nogc':
    gc.disable()
before = rss_bytes()
best, document = load_seconds(path)
growth = rss_bytes() - before
for _ in range(rounds - 1):
    document = None
    seconds, document = load_seconds(path)
    best = min(best, seconds)
print(json.dumps({'best_s': best, 'rss_growth_bytes': growth}))
"""


def make_frames(rng):
    """Frame dicts as torch shares them: one dict per code location."""
    return [
        {
            "name": f"forward_{i}",
            "filename": f"/usr/lib/python3/site-packages/model/layer_{i % 40}.py",
            "line": rng.randrange(1, 2000),
        }
        for i in range(300)
    ]


def make_trace(rng, frames, entry_count):
    live = []
    recent = [rng.sample(frames, 3)]
    trace = []
    time_us = 1794702468000000
    for _ in range(entry_count):
        time_us += rng.randrange(40)
        if rng.random() < 0.67:
            recent.append(rng.sample(frames, rng.choice((1, 2, 3, 3, 4, 5, 8))))
            del recent[:-64]
            stack = recent[-1]
        else:
            stack = rng.choice(recent)
        if live and rng.random() < 0.66:
            actions = ("free_requested", "free_completed")
            action = actions[rng.randrange(2)]
            addr, size = live[-1] if action == "free_requested" else live.pop()
        else:
            action = "alloc"
            size = rng.choice((512, 4096, 65536, 1 << 20, rng.randrange(1, 1 << 26)))
            addr = 0x7FF000000000 + 512 * rng.randrange(1 << 26)
            live.append((addr, size))
        trace.append(
            {
                "action": action,
                "addr": addr,
                "size": size,
                "stream": 0,
                "time_us": time_us,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": stack,
            }
        )
    return trace


def make_segments(rng, frames, segment_count):
    segments = []
    for index in range(segment_count):
        address = 0x7FF000000000 + index * (20 << 20)
        blocks = [
            {
                "address": address + i * 65536,
                "size": 65536,
                "requested_size": rng.randrange(60000, 65536),
                "state": rng.choice(("active_allocated", "inactive")),
                "frames": rng.sample(frames, 3),
            }
            for i in range(20)
        ]
        segments.append(
            {
                "device": 0,
                "address": address,
                "total_size": 20 << 20,
                "allocated_size": 10 << 20,
                "active_size": 10 << 20,
                "requested_size": 9 << 20,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": blocks,
            }
        )
    return segments


def write_snapshot(path, entry_count):
    rng = random.Random(20)
    frames = make_frames(rng)
    snapshot = {
        "segments": make_segments(rng, frames, max(1, entry_count // 1500)),
        "device_traces": [make_trace(rng, frames, entry_count)],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
        "external_annotations": [],
    }
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def run_json(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(path, tool, rounds):
    python = [sys.executable, "-c", CPYTHON_READER, path, str(rounds)]
    cpython = run_json(python + ["gc"])
    cpython_nogc = run_json(python + ["nogc"])
    ours = run_json([tool, path, str(rounds)])
    mib = 1 << 20
    size_mb = os.path.getsize(path) / 1e6
    print(f"snapshot             {size_mb:.1f} MB, {ours['containers']} containers")
    print(
        f"pickle.load          {cpython['best_s'] * 1e3:.1f} ms"
        f"   RSS +{cpython['rss_growth_bytes'] / mib:.0f} MiB"
    )
    print(f"pickle.load, gc off  {cpython_nogc['best_s'] * 1e3:.1f} ms")
    print(
        f"parse_pickle         {ours['parse_s'] * 1e3:.1f} ms"
        f"   RSS +{ours['parse_rss_bytes'] / mib:.0f} MiB"
        f" (+{ours['total_rss_bytes'] / mib:.0f} with the mapped file,"
        f" peak +{ours['peak_rss_bytes'] / mib:.0f})"
    )
    print(f"open + parse         {ours['open_parse_s'] * 1e3:.1f} ms")
    print(f"walk all entries     {ours['walk_s'] * 1e3:.1f} ms")
    print(
        f"parse is {cpython['best_s'] / ours['parse_s']:.1f}x pickle.load"
        f" ({cpython_nogc['best_s'] / ours['parse_s']:.1f}x with gc off),"
        f" open + parse {cpython['best_s'] / ours['open_parse_s']:.1f}x,"
        f" memory {ours['parse_rss_bytes'] / cpython['rss_growth_bytes']:.2f} of Python's objects"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True, help="the built pickle_bench_tool")
    parser.add_argument("--entries", type=int, default=360_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", help="write the snapshot here and keep it (reused if present)")
    args = parser.parse_args()
    if args.keep:
        if not os.path.exists(args.keep):
            write_snapshot(args.keep, args.entries)
        report(args.keep, args.tool, args.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        write_snapshot(path, args.entries)
        report(path, args.tool, args.rounds)


if __name__ == "__main__":
    main()
