"""The curves of a trace, computed from the rows of its tables and not from the totals of its events.

What each library holds on the card is derived from the driver calls alone: births and deaths are
found here a second time, independently, from what CUDA documents for each call.
"""
import bisect
import collections

ON_CARD = {"device", "pitched", "array", "stream_ordered", "virtual", "graph", "static"}
HOST_LOCATED, REMOTE, SEEDED = 1, 2, 8

Call = collections.namedtuple("Call", "time operation kind address size handle owner flags device")


class Curve:
    """Steps: each value holds from its time until the next."""

    def __init__(self, changes):
        self.times, self.values = [], []
        total = 0
        for time, change in sorted(changes, key=lambda c: c[0]):
            total += change
            if self.times and self.times[-1] == time:
                self.values[-1] = total
            else:
                self.times.append(time)
                self.values.append(total)

    def at(self, time):
        place = bisect.bisect_right(self.times, time)
        return self.values[place - 1] if place else 0


class DriverBooks:
    """Bytes on the card by device and owner, from the driver calls of one process."""

    def __init__(self, calls):
        self.changes = collections.defaultdict(list)
        self.by_address, self.by_handle, self.maps = {}, {}, {}
        for call in sorted(calls, key=lambda c: c.time):
            self.apply(call)

    def apply(self, c):
        key = c.handle if c.kind == "array" else c.address
        if c.operation in ("allocate", "register") or (c.operation == "import" and c.address):
            if key in self.by_address:
                self.end(self.by_address.pop(key), c.time)
            self.by_address[key] = self.begin(c)
        elif c.operation in ("free", "unregister"):
            if key in self.by_address:
                self.end(self.by_address.pop(key), c.time)
        elif c.operation in ("create", "import"):
            self.by_handle[c.handle] = [self.begin(c), 1, 0]
        elif c.operation == "retain" and c.handle in self.by_handle:
            self.by_handle[c.handle][1] += 1
        elif c.operation == "release":
            self.drop(c.handle, 1, c.time)
        elif c.operation == "map" and c.kind != "multicast" and c.handle in self.by_handle:
            self.by_handle[c.handle][2] += 1
            self.maps[c.address] = c.handle
        elif c.operation == "unmap" and c.kind != "multicast":
            for address in [a for a in self.maps if c.address <= a < c.address + max(c.size, 1)]:
                self.drop(self.maps.pop(address), 2, c.time)
            self.unmap_seeded(c)

    def unmap_seeded(self, c):
        """Ranges that were mapped before the recording began are known as one range."""
        for address, (known, size) in list(self.by_address.items()):
            cut = known.kind == "virtual" and known.flags & SEEDED
            if not cut or not address <= c.address < address + size:
                continue
            self.end(self.by_address.pop(address), c.time)
            for low, high in ((address, c.address), (c.address + c.size, address + size)):
                if low < high:
                    part = known._replace(time=c.time, address=low, size=high - low)
                    self.by_address[low] = self.begin(part)

    def drop(self, handle, place, time):
        held = self.by_handle.get(handle)
        if held is None:
            return
        held[place] -= 1
        if held[1] <= 0 and held[2] <= 0:
            self.end(self.by_handle.pop(handle)[0], time)

    def begin(self, c):
        self.count(c, c.time, c.size)
        return c, c.size

    def end(self, known, time):
        self.count(known[0], time, -known[1])

    def count(self, c, time, change):
        if c.kind in ON_CARD and not c.flags & (HOST_LOCATED | REMOTE):
            self.changes[c.device, f"driver: {c.owner or 'other'}"].append((time, change))


def curves(base):
    """Maps (rank_id, device, name) to its Curve, for a database of the whole trace."""
    changes = collections.defaultdict(list)

    def add(name, sql):
        for rank, device, size, birth, death in base.execute(sql):
            changes[rank, device, name].append((birth, size))
            if death is not None:
                changes[rank, device, name].append((death, -size))

    add("allocated", "SELECT rank_id, device, block_bytes, birth_ns, release_ns FROM allocations")
    add("requested", "SELECT rank_id, device, coalesce(requested_bytes, 0), birth_ns, death_ns"
        " FROM allocations")
    add("reserved", "SELECT rank_id, device, size_bytes, birth_ns, death_ns FROM segments")
    calls = collections.defaultdict(list)
    for rank, *row in base.execute(
            "SELECT rank_id, time_ns, operation, kind, address, size_bytes, coalesce(handle, 0),"
            " owner, flags, device FROM driver_events WHERE result = 0 ORDER BY rowid"):
        calls[rank].append(Call(*row))
    for rank, rows in calls.items():
        for (device, name), steps in DriverBooks(rows).changes.items():
            changes[rank, device, name] += steps
    out = {key: Curve(steps) for key, steps in changes.items()}
    used = collections.defaultdict(list)
    for rank, device, time, value in base.execute(
            "SELECT rank_id, device, time_ns, value FROM samples WHERE kind = 'device_used'"
            " ORDER BY time_ns, rowid"):
        used[rank, device].append((time, value))
    for (rank, device), samples in used.items():
        curve = out[rank, device, "device used"] = Curve([])
        curve.times, curve.values = map(list, zip(*samples))
    return out
