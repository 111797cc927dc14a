"""Inputs of any size in which one thing is large: devices, streams, stacks, ranks, calls of NCCL,
requests of a server.

Each function writes an input with `count` of them into a folder and returns its path.
"""
import multiprocessing
import os
import pickle
import subprocess

from trace_file import TraceFile

MiB = 1 << 20
START = 1_700_000_000_000_000_000
BASE = 0x7F << 40
FRAMES = [{"name": "f", "filename": "train.py", "line": 1}]


def made(function, *args):
    """Calls it in a process of its own: the memory of this one counts as the memory of programs
    that it starts."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, args)


def cost(command):
    """Exit status, what it said on stderr, CPU seconds and MiB of memory."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def event(action, address, size, time_us, stream=0, frames=FRAMES):
    return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time_us,
            "frames": frames}


def snapshot(folder, name, traces, segments=()):
    path = folder / f"{name}.pickle"
    path.write_bytes(pickle.dumps({"segments": list(segments), "device_traces": traces}))
    return path


def streams(folder, count):
    """One segment per stream, and an out-of-memory error at the end."""
    entries = []
    for i in range(count):
        at = BASE + i * 2 * MiB
        entries += [event("segment_alloc", at, 2 * MiB, 3 * i, 1000 + i),
                    event("alloc", at, 512, 3 * i, 1000 + i)]
    oom = {**event("oom", 0, 20 * MiB, 3 * count), "device_free": 0}
    return snapshot(folder, "streams", [entries + [oom]])


def shared_frames(folder, count):
    """Entries that share one list of frames, as long as there are entries."""
    frames = FRAMES * count
    entries = [event("segment_alloc", BASE, 20 * MiB, 1, frames=[])]
    entries += [event("free_completed" if i % 2 else "alloc", BASE, 2 * MiB, 2 + i, frames=frames)
                for i in range(count)]
    return snapshot(folder, "shared_frames", [entries])


def process_row(trace, process, rank, ranks):
    return {"start_ns": START, "pid": 100 + rank, "rank": rank, "local_rank": rank % 8,
            "world_size": ranks, "host": trace.string(process, f"n{rank // 8}"),
            "job": trace.string(process, "j"), "source": 1}


def deep_stacks(folder, count):
    """Two ranks; each stack has one frame more than the one before."""
    job = folder / "deep_stacks"
    job.mkdir(exist_ok=True)
    for rank in range(2):
        trace = TraceFile()
        trace.table(1, "Processes", [process_row(trace, 1, rank, 2)])
        trace.table(1, "Frames", [{"id": 1, "function": trace.string(1, "some_function_name"),
                                   "file": trace.string(1, "/a/b/file.py"), "line": 1, "kind": 1}])
        trace.table(1, "Stacks", [{"id": i, "parent": i - 1, "frame": 1}
                                  for i in range(1, count + 1)])
        rows = [{"time_ns": START + 1, "action": 4, "address": BASE, "size_bytes": count * 1024}]
        rows += [{"time_ns": START + 1 + i, "action": 1, "address": BASE + i * 1024,
                  "size_bytes": 1024, "block_bytes": 1024, "stack": i} for i in range(1, count)]
        trace.table(1, "FrameworkEvents", rows)
        trace.save(job / f"rank{rank}.tmk")
    return job


def devices(folder, count):
    """One process with this many devices."""
    trace = TraceFile()
    trace.table(1, "Processes", [process_row(trace, 1, 0, 1)])
    trace.table(1, "FrameworkEvents", [
        row for device in range(count) for row in (
            {"time_ns": START + device, "action": 4, "device": device, "address": BASE,
             "size_bytes": 2 * MiB},
            {"time_ns": START + device, "action": 1, "device": device, "address": BASE,
             "size_bytes": 512, "block_bytes": 512})])
    return trace.save(folder / "devices.tmk")


def add_rank(trace, process, rank, ranks, allocations=50):
    """Every other rank is higher from the beginning."""
    trace.table(process, "Processes", [process_row(trace, process, rank, ranks)])
    base = (1000 if rank % 2 else 100) * MiB
    rows = [{"time_ns": START, "action": 4, "address": BASE, "size_bytes": 4000 * MiB},
            {"time_ns": START + 1, "action": 1, "address": BASE, "size_bytes": base,
             "block_bytes": base}]
    for i in range(1, allocations + 1):
        block = {"address": BASE + base, "size_bytes": 50 * MiB}
        rows += [{**block, "time_ns": START + i * 1_000_000, "action": 1, "block_bytes": 50 * MiB},
                 {**block, "time_ns": START + i * 1_000_000 + 1000, "action": 3}]
    trace.table(process, "FrameworkEvents", rows)


def ranks(folder, count):
    """One file of this many ranks."""
    trace = TraceFile()
    for rank in range(count):
        add_rank(trace, rank + 1, rank, count)
    return trace.save(folder / "ranks.tmk")


def rank_files(folder, count):
    """A folder with a file of each rank."""
    job = folder / "rank_files"
    job.mkdir()
    for rank in range(count):
        trace = TraceFile()
        add_rank(trace, 1, rank, count)
        trace.save(job / f"rank{rank}.tmk")
    return job


def nccl_calls(folder, count):
    """Collectives that were called and never enqueued."""
    trace = TraceFile()
    trace.table(1, "Processes", [process_row(trace, 1, 0, 2)])
    function = trace.string(1, "AllReduce")
    for first in range(0, count, 50_000):
        trace.table(1, "NcclOperations", [
            {"start_ns": START + i, "communicator": 77, "sequence": i, "function": function,
             "kind": 1} for i in range(first, min(count, first + 50_000))])
    return trace.save(folder / "nccl_calls.tmk")


def requests(folder, count):
    """A server, 40 calls deep, that keeps a block of each request and computes on many lines."""
    callers = [{"name": f"serve{i}", "filename": "server.py", "line": i} for i in range(40)]
    at_line = [[{"name": "handle", "filename": "server.py", "line": 100 + i}] + callers
               for i in range(1000)]
    kept = BASE + 4 * MiB
    entries = [event("segment_alloc", BASE, 4 * MiB + count * MiB, 1, frames=[])]
    for i in range(count):
        time = 10 + i * 100
        entries.append(event("alloc", kept + i * MiB, MiB, time, frames=at_line[0]))
        for j in range(3):
            frames = at_line[1 + (i * 3 + j) % 999]
            entries += [event("alloc", BASE, 2 * MiB, time + 2 * j + 1, frames=frames),
                        event("free_completed", BASE, 2 * MiB, time + 2 * j + 2, frames=frames)]
    return snapshot(folder, "requests", [entries])
