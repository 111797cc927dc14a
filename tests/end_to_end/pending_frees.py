"""Compares what tidemark says about frees that wait for another stream with a plain replay.

    python3 pending_frees.py TIDEMARK

From free_requested to free_completed a block is pending: no longer allocated, and not free either.
Random histories are replayed here, entry by entry, as torch's statistics define the terms.
"""
import collections
import html
import pathlib
import pickle
import random
import re
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from perfetto_file import PerfettoFile  # noqa: E402
from harness import check, check_equal, finish, report, run  # noqa: E402

MiB = 1 << 20
A = 0x7F0000000000
SLOT = 16 * MiB
tmp = pathlib.Path(tempfile.mkdtemp())


def history(seed):
    """Blocks of whole MiB, each in a slot of its own, so that their sizes are plain."""
    chance = random.Random(seed)
    free, used, pending = list(range(40)), {}, {}
    trace = []

    def add(action, slot, size, line):
        trace.append({"action": action, "addr": A + slot * SLOT, "size": size, "stream": 0,
                      "time_us": 1000 + 7 * len(trace),
                      "frames": [{"name": "f", "filename": "t.py", "line": line}]})

    for slot in free:
        add("segment_alloc", slot, SLOT, 1)
    for _ in range(300):
        what = chance.random()
        if what < 0.5 and free:
            slot = free.pop(chance.randrange(len(free)))
            used[slot] = (2 * chance.randrange(1, 8) * MiB - chance.randrange(512),
                          chance.randrange(10, 15))
            add("alloc", slot, *used[slot])
        elif what < 0.8 and used:
            slot = chance.choice(sorted(used))
            pending[slot] = used.pop(slot)
            add("free_requested", slot, *pending[slot])
            if chance.random() < 0.4:
                add("free_completed", slot, *pending.pop(slot))
                free.append(slot)
        elif pending:
            slot = chance.choice(sorted(pending))
            add("free_completed", slot, *pending.pop(slot))
            free.append(slot)
    return trace


class State:
    """The memory after an entry, by the definitions alone."""

    def __init__(self, trace, count):
        self.used, self.pending = {}, {}
        self.reserved = 0
        for entry in trace[:count]:
            address = entry["addr"]
            if entry["action"] == "segment_alloc":
                self.reserved += entry["size"]
            elif entry["action"] == "alloc":
                self.used[address] = entry
            elif entry["action"] == "free_requested":
                self.pending[address] = self.used.pop(address)
            else:
                del self.pending[address]
        self.allocated = sum(map(self.block, self.used.values()))
        self.requested = sum(e["size"] for e in [*self.used.values(), *self.pending.values()])
        self.pending_bytes = sum(map(self.block, self.pending.values()))

    @staticmethod
    def block(entry):
        return (entry["size"] + 511) // 512 * 512

    def by_stack(self):
        sums = collections.Counter()
        for entry in self.used.values():
            sums[f"f t.py:{entry['frames'][0]['line']}"] += self.block(entry)
        return dict(sums)


def compare(device, state, name):
    check_equal(device["at_totals"], {"allocated_bytes": state.allocated,
                                      "pending_bytes": state.pending_bytes,
                                      "reserved_bytes": state.reserved}, f"{name}: totals")
    ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
    check_equal((ledger["torch.allocated"], ledger.get("torch.pending", 0), ledger["torch.cached"]),
                (state.allocated, state.pending_bytes,
                 state.reserved - state.allocated - state.pending_bytes), f"{name}: ledger")
    check_equal({s["frames"][0]: s["bytes"] for s in device["by_stack"]}, state.by_stack(),
                f"{name}: by stack")
    for shares in ("by_category", "by_size"):
        check_equal(sum(s["bytes"] for s in device[shares]), state.allocated, f"{name}: {shares}")


pending_at_peak = 0
for seed in range(6):
    trace = history(seed)
    path = tmp / f"history{seed}.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    states = [State(trace, count) for count in range(len(trace) + 1)]
    peak = max(range(len(states)), key=lambda i: states[i].allocated)
    device = report(path)["ranks"][0]["devices"][0]
    check_equal(device["allocated_peak"]["bytes"], states[peak].allocated, f"{seed}: peak")
    requested = max(s.requested for s in states)
    check_equal(device["requested_peak"]["bytes"], requested, f"{seed}: requested peak")
    check_equal("pending frees included" in run("report", path).stdout,
                requested > states[peak].allocated, f"{seed}: more requested than allocated")
    compare(device, states[peak], f"{seed}, at the peak")
    pending_at_peak += states[peak].pending_bytes
    for count in random.Random(seed).sample(range(41, len(trace)), 4):
        offset = trace[count - 1]["time_us"] - trace[0]["time_us"]
        at = report(path, "--at", f"{offset}us")["ranks"][0]["devices"][0]
        compare(at, states[count], f"{seed}, after {count} entries")

    # The curves of the table of events, and the documented way to what is allocated and pending.
    base = tmp / f"{seed}.db"
    check_equal(run("export", path, "--format", "sqlite", "-o", base, "--events").returncode, 0,
                f"{seed}: export")
    connection = sqlite3.connect(base)
    curves = {row[0]: row[1:] for row in connection.execute(
        "SELECT time_ns / 1000, allocated_bytes, requested_bytes, active_bytes FROM events"
        " ORDER BY event")}
    for entry, state in zip(trace, states[1:]):
        check_equal(curves[entry["time_us"]],
                    (state.allocated, state.requested, state.allocated + state.pending_bytes),
                    f"{seed}: curves at {entry['time_us']}")
    sums = connection.execute(
        "SELECT sum(a.block_bytes * (release_event IS NULL OR release_event > e)),"
        " sum(a.block_bytes * (release_event <= e)) FROM allocations a,"
        " (SELECT allocated_peak_event AS e FROM devices)"
        " WHERE birth_event <= e AND (death_event IS NULL OR death_event > e)").fetchone()
    check_equal((sums[0], sums[1] or 0), (states[peak].allocated, states[peak].pending_bytes),
                f"{seed}: the table at the peak")
    connection.close()
check(pending_at_peak > 0, "some of the peaks have pending frees")

# People are told, and the percentages are of what is allocated.
path = tmp / "history0.pickle"
trace = history(0)
states = [State(trace, count) for count in range(len(trace) + 1)]
most = max(range(len(states)), key=lambda i: states[i].pending_bytes)
offset = trace[most - 1]["time_us"] - trace[0]["time_us"]
told = f"{states[most].pending_bytes / MiB:.1f} MiB pending free"
text = run("report", path, "--at", f"{offset}us").stdout
check(told in text, f"the text says {told!r}: {text}")
shares = re.findall(r"([\d.]+) %  \d+ blocks? ", text)
check(shares and abs(sum(map(float, shares)) - 100) < 0.5, f"the shares add up: {shares}")
page = tmp / "page.html"
run("report", path, "--at", f"{offset}us", "--html", page)
check(told in html.unescape(page.read_text()), f"the page says {told!r}")

# A what-if names them, too, where they never end: the memory is neither in use nor in holes.
waiting = []
for slot in range(20):
    for action in ("segment_alloc", "alloc", "free_requested"):
        waiting.append({"action": action, "addr": A + slot * SLOT, "size": SLOT, "stream": 0,
                        "time_us": 1000 + len(waiting),
                        "frames": [{"name": "f", "filename": "t.py", "line": 1}]})
path.write_bytes(pickle.dumps({"segments": [], "device_traces": [waiting]}))
text = run("whatif", path, "--alloc-conf", "max_split_size_mb:64").stdout
check("304.0 MiB waits for other streams" in text and "in use, not lost" not in text, text)
check("20 blocks (320.0 MiB) that the program had freed still waited" in text, text)

# An error names them as well.
path = tmp / "history0.pickle"
failed = trace[:most] + [{"action": "oom", "device_free": 0, "size": SLOT, "stream": 0,
                          "time_us": trace[most - 1]["time_us"] + 1, "frames": []}]
path.write_bytes(pickle.dumps({"segments": [], "device_traces": [failed]}))
check_equal(report(path)["ranks"][0]["devices"][0]["oom"][0]["pending_bytes"],
            states[most].pending_bytes, "pending at the error")

# Blocks that were pending when the history began were never allocated in it.
segment = {"device": 0, "address": A, "total_size": 64 * MiB, "allocated_size": 4 * MiB,
           "active_size": 44 * MiB, "requested_size": 4 * MiB, "stream": 0, "segment_type": "large",
           "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [
               {"address": A, "size": 40 * MiB, "requested_size": 40 * MiB,
                "state": "active_pending_free", "frames": []},
               {"address": A + 40 * MiB, "size": 4 * MiB, "requested_size": 4 * MiB,
                "state": "active_allocated", "frames": []},
               {"address": A + 44 * MiB, "size": 20 * MiB, "requested_size": 0,
                "state": "inactive", "frames": []}]}
path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[
    {"action": "alloc", "addr": A + 40 * MiB, "size": 4 * MiB, "stream": 0, "time_us": 5,
     "frames": []}]]}))
device = report(path)["ranks"][0]["devices"][0]
check_equal((device["allocated_peak"]["bytes"], device["at_totals"]["pending_bytes"]),
            (4 * MiB, 40 * MiB), "pending before the history began")
for options in ([], ["--time", "0s.."]):
    base = tmp / "seeded.db"
    run("export", path, "--format", "sqlite", "--events", "-o", base, *options)
    connection = sqlite3.connect(base)
    check_equal(connection.execute("SELECT max(allocated_bytes), max(active_bytes) FROM events")
                .fetchone(), (4 * MiB, 44 * MiB), f"{options}: the table of events")
    check_equal(connection.execute("SELECT allocated_peak_bytes, allocated_peak_event FROM devices")
                .fetchone(), connection.execute(
                    "SELECT allocated_bytes, event FROM events ORDER BY 1 DESC, 2 LIMIT 1")
                .fetchone(), f"{options}: the peak")
    check_equal(connection.execute(
        "SELECT sum(block_bytes) FROM allocations WHERE release_event <= birth_event").fetchone(),
        (40 * MiB,), f"{options}: pending from the beginning")
    connection.close()
    file = tmp / "seeded.pftrace"
    run("export", path, "--format", "perfetto", "-o", file, *options)
    perfetto = PerfettoFile(file)
    highest = [max(values) for track, (_, values) in perfetto.counters().items()
               if perfetto.tracks[track].name == "allocated"]
    check_equal(highest, [4 * MiB], f"{options}: Perfetto's counter")

finish()
