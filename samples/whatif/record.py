#!/usr/bin/env python3
"""Measures what PyTorch's allocator settings really do to the reserved memory of some workloads.

    python3 record.py OUT_DIR                 every workload under every setting
    python3 record.py OUT_DIR --keep-all      and the snapshot of every run, not only the default's

Every run is a separate process. OUT_DIR/WORKLOAD/default.pickle.gz is the snapshot of the run under
default settings, with its whole history and no stacks; OUT_DIR/WORKLOAD/truth.json has torch's own
statistics under each setting. `tidemark whatif` predicts the latter from the former.
"""
import argparse
import concurrent.futures
import gzip
import hashlib
import json
import os
import pickle
import subprocess
import sys

from workloads import WORKLOADS

# name -> (configuration, how the memory limit follows from the peaks of the default run)
SETTINGS = {
    "default": ("", None),
    "expandable": ("expandable_segments:True", None),
    "max_split_64": ("max_split_size_mb:64", None),
    "max_split_200": ("max_split_size_mb:200", None),
    "roundup_8": ("roundup_power2_divisions:8", None),
    "roundup_list": ("roundup_power2_divisions:[1:4,64:2,256:8,>:1]", None),
    "gc": ("garbage_collection_threshold:0.6", lambda allocated, reserved: 1.05 * reserved),
    "max_split_gc": ("max_split_size_mb:64,garbage_collection_threshold:0.6",
                     lambda allocated, reserved: 1.05 * reserved),
    "tight": ("", lambda allocated, reserved: allocated + 0.4 * (reserved - allocated)),
    "too_tight": ("", lambda allocated, reserved: 0.97 * allocated),
    "expandable_tight": ("expandable_segments:True",
                         lambda allocated, reserved: allocated + 0.4 * (reserved - allocated)),
}


def requests_of(trace):
    """A digest of the program's requests, in order: allocations, and which one is freed."""
    digest, serial, born = hashlib.sha256(), 0, {}
    for entry in trace:
        if entry["action"] == "alloc":
            born[entry["addr"]] = serial
            serial += 1
            digest.update(b"+%d;" % entry["size"])
        elif entry["action"] == "free_requested":
            digest.update(b"-%d;" % born[entry["addr"]])
    return digest.hexdigest()


def run_one(workload, seed, fraction, out_file, snapshot_file):
    import torch
    torch.manual_seed(0)
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info()
    if fraction:
        torch.cuda.set_per_process_memory_fraction(fraction)
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    ran_out = False
    try:
        WORKLOADS[workload](torch, seed)
    except torch.cuda.OutOfMemoryError:
        ran_out = True
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    trace = snapshot["device_traces"][0]
    result = {
        "out_of_memory": ran_out,
        "entries": len(trace),
        "requests": requests_of(trace),
        "device_total": total,
        "torch": torch.__version__,
        "stats": {k: v for k, v in stats.items()
                  if k.endswith("_bytes.all.peak") or k.startswith("num_")},
    }
    with open(out_file, "w") as f:
        json.dump(result, f)
    if snapshot_file:
        with gzip.GzipFile(snapshot_file, "wb", 9, mtime=0) as f:
            pickle.dump(snapshot, f, protocol=4)


def start(workload, setting, fraction, args):
    folder = os.path.join(args.out, workload)
    os.makedirs(folder, exist_ok=True)
    out_file = os.path.join(folder, setting + ".part")
    command = [sys.executable, "-B", __file__, args.out, "--one", workload, "--result", out_file,
               "--seed", str(args.seed)]
    if fraction:
        command += ["--fraction", repr(fraction)]
    if setting == "default" or args.keep_all:
        command += ["--snapshot", os.path.join(folder, setting + ".pickle.gz")]
    env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=SETTINGS[setting][0])
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{workload} {setting} failed:\n{done.stderr}", flush=True)
        return None
    with open(out_file) as f:
        result = json.load(f)
    os.remove(out_file)
    result["conf"] = SETTINGS[setting][0]
    result["fraction"] = fraction
    print(f"{workload:16} {setting:17} reserved peak {result['stats']['reserved_bytes.all.peak']:>13,}"
          f"{'  out of memory' if result['out_of_memory'] else ''}", flush=True)
    return result


def record_all(args):
    chosen = args.workload or list(WORKLOADS)
    truth = {w: {} for w in chosen}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for workload, result in zip(chosen, pool.map(
                lambda w: start(w, "default", None, args), chosen)):
            truth[workload]["default"] = result
        runs = []
        for workload in chosen:
            default = truth[workload]["default"]
            if default is None:
                continue
            allocated = default["stats"]["allocated_bytes.all.peak"]
            reserved = default["stats"]["reserved_bytes.all.peak"]
            for setting, (_, limit) in SETTINGS.items():
                if setting != "default":
                    fraction = limit and round(limit(allocated, reserved) / default["device_total"], 6)
                    runs.append((workload, setting, fraction))
        for (workload, setting, _), result in zip(runs, pool.map(lambda r: start(*r, args), runs)):
            truth[workload][setting] = result
    for workload, settings in truth.items():
        settings = {k: v for k, v in settings.items() if v is not None}
        for name, result in settings.items():
            # A run that ended early made fewer requests; all others must have made the same.
            result["same_requests"] = result["requests"] == settings["default"]["requests"]
            if not result["same_requests"] and not result["out_of_memory"]:
                print(f"{workload} {name}: requests differ from those of the default run", flush=True)
        with open(os.path.join(args.out, workload, "truth.json"), "w") as f:
            json.dump(settings, f, indent=1, sort_keys=True)
            f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    parser.add_argument("--seed", type=int, default=0, help="other sizes for the same workloads")
    parser.add_argument("--keep-all", action="store_true")
    parser.add_argument("--jobs", type=int, default=6, help="processes at a time")
    parser.add_argument("--one", choices=sorted(WORKLOADS), help=argparse.SUPPRESS)
    parser.add_argument("--fraction", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(args.one, args.seed, args.fraction, args.result, args.snapshot)
    else:
        record_all(args)


if __name__ == "__main__":
    main()
