#!/usr/bin/env python3
"""Compares tidemark's pickle reader with CPython's on random plain data and on given files.

    differential.py --tool path/to/pickle_dump_tool [--seed N] [--rounds N] [FILE...]

Each value is pickled with protocols 2 to 5 (C pickler, Python pickler, and pickletools.optimize)
and read by the tool and by pickle.loads. Both results are compared as canonical JSON: with the
sharing of containers shown and, unless that is too large, with shared containers expanded. Files
are read as they are, and also loaded and pickled again with every protocol. Exits with 1 and names
the first difference.
"""

import argparse
import gzip
import io
import json
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import tempfile

PROTOCOLS = (2, 3, 4, 5)
MAX_DEPTH = 64  # PickleLimits::max_depth
MAX_EXPANDED = 50_000
PAD = b"\0" * 2048  # after STOP: lets the reader's fast path look ahead in a small pickle


class Canonical:
    """The same JSON that pickle_dump.h describes, from Python objects."""

    def __init__(self, show_sharing):
        self.show_sharing = show_sharing
        self.seen = {}

    def of(self, value):
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return {"float": struct.pack(">d", value).hex()}
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass").decode("latin-1")
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": bytes(value).decode("latin-1")}
        return self.of_container(value)

    def of_container(self, value):
        if self.show_sharing and value != ():
            if id(value) in self.seen:
                return {"ref": self.seen[id(value)]}
            self.seen[id(value)] = len(self.seen)
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [self.of(item) for item in value]}
        return {"dict": [self.of(part) for pair in value.items() for part in pair]}


class RandomData:
    """Plain data with the shapes that exercise a pickle reader: sharing, batches, odd numbers."""

    def __init__(self, rng):
        self.rng = rng
        self.shared = []
        self.keys = [f"key_{i}" for i in range(12)]

    def number(self):
        bits = self.rng.choice((1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 59, 60, 61, 62, 63))
        value = self.rng.getrandbits(bits)
        if self.rng.random() < 0.3:
            value = self.rng.choice((0, 1, 2**31, 2**59, 2**60, 2**63 - 1, 2**63, 2**64 - 1))
        return value if self.rng.random() < 0.6 or value > 2**63 else -value

    def text(self):
        length = self.rng.choice((0, 1, 3, 20, 254, 255, 256, 300))
        if self.rng.random() < 0.002:
            length = self.rng.choice((65534, 65535, 65536, 70000))
        piece = "".join(self.rng.choice("ab\0\n\"\\é漢\U0001f600\ud800") for _ in range(7))
        return (piece * (length // 7 + 1))[:length]

    def scalar(self):
        kind = self.rng.randrange(8)
        if kind < 3:
            return self.number()
        if kind == 3:
            return self.rng.choice((None, True, False))
        if kind == 4:
            return self.rng.choice((0.0, -0.0, 1.5, -1e300, float("inf"), float("nan"), 5e-324))
        if kind == 5:
            return self.rng.choice(self.keys)
        return self.text()

    def container(self, depth):
        size = self.rng.choice((0, 1, 2, 3, 4, 5, 8, 17))
        if depth < 2 and self.rng.random() < 0.05:
            size = self.rng.choice((999, 1000, 1001, 2500))
            depth = 99  # scalars only
        kind = self.rng.randrange(4)
        items = [self.value(depth + 1) for _ in range(size)]
        if kind == 0:
            return tuple(items)
        if kind == 1:
            return items
        if kind == 2:
            return dict(zip(self.keys, items))
        keys = [self.rng.choice((self.number(), self.text(), (1, "a"), None)) for _ in items]
        return dict(zip(keys, items))

    def value(self, depth=0):
        if self.shared and self.rng.random() < 0.15:
            return self.rng.choice(self.shared)
        if depth > 8 or self.rng.random() < 0.5:
            return self.scalar()
        made = self.container(depth)
        if self.rng.random() < 0.3:
            self.shared.append(made)
        return made

    def trace(self):
        """Many dicts with the same keys, as in a snapshot, and an odd one now and then."""
        frames = [{"name": f"f{i}", "filename": "a.py", "line": i} for i in range(300)]
        stacks = [self.rng.sample(frames, self.rng.randrange(5)) for _ in range(20)]
        entries = []
        for i in range(self.rng.randrange(1, 400)):
            entry = {
                "action": self.rng.choice(("alloc", "free")),
                "addr": self.rng.getrandbits(self.rng.choice((20, 47, 64))),
                "size": self.rng.getrandbits(self.rng.choice((4, 12, 30))),
                "pool_id": (0, self.rng.randrange(3)),
                "time_us": 1794702468000000 + i,
                "user_metadata": self.rng.choice(("", self.keys[0], f"step {i}")),
                "flag": self.rng.choice((None, True, False)),
                "frames": self.rng.choice(stacks)
                if self.rng.random() < 0.5
                else self.rng.sample(frames, self.rng.choice((0, 1, 2, 7, 40))),
            }
            if self.rng.random() < 0.05:
                entry[self.rng.choice(("size", "extra", "frames"))] = self.value(6)
            if self.rng.random() < 0.05:
                del entry[self.rng.choice(list(entry))]
            entries.append(entry)
        return {"device_traces": [entries], "segments": self.value()}


def measure(value, known):
    """(values, height), counting shared containers at each occurrence."""
    if not isinstance(value, (list, tuple, dict)):
        return 1, 0
    if id(value) not in known:
        parts = value
        if isinstance(value, dict):
            parts = [part for pair in value.items() for part in pair]
        measures = [measure(part, known) for part in parts]
        known[id(value)] = (
            1 + sum(size for size, _ in measures),
            1 + max((height for _, height in measures), default=0),
        )
    return known[id(value)]


def python_dumps(value, protocol):
    file = io.BytesIO()
    pickle._Pickler(file, protocol).dump(value)
    return file.getvalue()


def calls_something(data):
    """Old protocols write bytes and bytearray as a call, which the reader rejects by design."""
    return any("GLOBAL" in op.name for op, _, _ in pickletools.genops(data))


def pickles_of(value):
    for protocol in PROTOCOLS:
        plain = pickle.dumps(value, protocol)
        if calls_something(plain):
            continue
        yield plain
        yield plain + PAD
        yield python_dumps(value, protocol)
        yield pickletools.optimize(plain)


def run_tool(tool, paths, refs):
    command = [tool] + (["--refs"] if refs else []) + paths
    result = subprocess.run(command, capture_output=True, check=True)
    return [json.loads(line) for line in result.stdout.decode("ascii").splitlines()]


def first_difference(tool, pickles):
    """None, or a description of the first pickle that was read differently."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, data in enumerate(pickles):
            paths.append(os.path.join(folder, f"{i}.pickle"))
            with open(paths[-1], "wb") as file:
                file.write(data)
        readings = run_tool(tool, paths, refs=True)
        if len(readings) != len(pickles):
            return "the tool printed too few lines"
        for i, data in enumerate(pickles):
            value = pickle.loads(data)
            wrong = mismatch(readings[i], Canonical(show_sharing=True).of(value))
            if wrong is None and i < 2 and measure(value, {})[0] < MAX_EXPANDED:
                expanded = run_tool(tool, [paths[i]], refs=False)[0]
                wrong = mismatch(expanded, Canonical(show_sharing=False).of(value))
            if wrong is not None:
                return f"pickle {i}: {wrong}"
    return None


def mismatch(reading, expected):
    # Not ==, because True == 1.
    if json.dumps(reading) == json.dumps(expected):
        return None
    return f"{reading!r:.300} instead of {expected!r:.300}"


def check(tool, label, pickles):
    pickles = list(pickles)
    difference = first_difference(tool, pickles)
    if difference is not None:
        print(f"{label}: {difference}")
        sys.exit(1)
    return len(pickles)


def main():
    sys.setrecursionlimit(10000)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True, help="the built pickle_dump_tool")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("files", nargs="*", help="real snapshots, .pickle or .pickle.gz")
    args = parser.parse_args()
    count = 0
    for path in args.files:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        count += check(args.tool, path, [data])
        count += check(args.tool, path + " again", pickles_of(pickle.loads(data)))
    count += check(args.tool, "bytes", pickles_of([b"", b"abc", b"\xff" * 300, bytearray(b"xy")]))
    for i in range(args.rounds):
        data = RandomData(random.Random(args.seed * 1_000_003 + i))
        value = data.trace() if i % 3 == 0 else data.value()
        if measure(value, {})[1] > MAX_DEPTH:
            continue
        count += check(args.tool, f"seed {args.seed}, round {i}", pickles_of(value))
    print(f"{count} pickles read like CPython does")


if __name__ == "__main__":
    main()
