"""Reads Perfetto traces using only the wire format: no code of the writer, no schema classes.

Field numbers are those of Perfetto's public schema.
"""
import bisect
import collections
import struct


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def fields(data):
    """Yields (number, wire type, value) of one message."""
    at = 0
    while at < len(data):
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, at - 1)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value = data[at]
            at += 1
            if value >= 0x80:
                value, at = varint(data, at - 1)
        elif kind == 1:
            (value,) = struct.unpack_from("<Q", data, at)
            at += 8
        elif kind == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise ValueError("a field reaches past its message")
            value = data[at:at + size]
            at += size
        elif kind == 5:
            (value,) = struct.unpack_from("<I", data, at)
            at += 4
        else:
            raise ValueError(f"wire type {kind}")
        yield number, kind, value


def message(data):
    out = collections.defaultdict(list)
    for number, _, value in fields(data):
        out[number].append(value)
    return out


def one(msg, number, default=None):
    values = msg.get(number)
    return values[-1] if values else default


CLEARED, NEEDS_STATE = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4

Track = collections.namedtuple("Track", "uuid parent name pid process counter axis order")
Event = collections.namedtuple("Event", "time type track name category args flows value sequence")
Heap = collections.namedtuple("Heap", "time pid name samples sequence")


class Sequence:
    def __init__(self):
        self.started = False
        self.names = {}
        self.categories = {}
        self.annotations = {}
        self.values = {}
        self.clock = None       # default clock of its packets
        self.incremental = {}   # clock -> current time


class PerfettoFile:
    """Follows the rules of trace_processor and fails where it would drop a packet."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        self.bytes = len(data)
        self.tracks = {}
        self.events = []
        self.heaps = []
        self.clocks = {}
        self.primary_clock = None
        self.sequences = collections.defaultdict(Sequence)
        self.packets = 0
        self.samples = None
        for number, kind, value in fields(data):
            assert (number, kind) == (1, 2), "a trace contains only packets"
            self.packets += 1
            self.packet(message(value))

    def packet(self, p):
        sequence_id = one(p, 10, 0)
        assert sequence_id != 0, "every packet names its sequence"
        sequence = self.sequences[sequence_id]
        flags = one(p, 13, 0)
        if flags & CLEARED:
            self.sequences[sequence_id] = sequence = Sequence()
            sequence.started = True
        if flags & NEEDS_STATE:
            assert sequence.started, "incremental state is used before it is started"
        if 59 in p:
            sequence.clock = one(message(one(p, 59)), 58)
        if 12 in p:
            assert flags & (NEEDS_STATE | CLEARED)
            self.intern(sequence, message(one(p, 12)))
        if 6 in p:
            self.snapshot(sequence, message(one(p, 6)))
        if 60 in p:
            self.track(message(one(p, 60)))
        if 11 in p:
            self.event(sequence_id, sequence, p)
        if 37 in p:
            self.profile(sequence_id, message(one(p, 37)))

    def intern(self, sequence, data):
        for number, table in ((1, sequence.categories), (2, sequence.names),
                              (3, sequence.annotations), (29, sequence.values)):
            for raw in data.get(number, []):
                entry = message(raw)
                iid = one(entry, 1, 0)
                assert iid != 0 and iid not in table, "an interned name is written once"
                table[iid] = one(entry, 2).decode()

    def snapshot(self, sequence, snap):
        for raw in snap.get(1, []):
            clock = message(raw)
            number, time = one(clock, 1), one(clock, 2)
            if number >= 64:
                assert one(clock, 3) == 1
                sequence.incremental[number] = time
            else:
                assert self.clocks.get(number, time) == time, "clocks never contradict each other"
                self.clocks[number] = time
        self.primary_clock = one(snap, 2, self.primary_clock)

    def track(self, t):
        uuid = one(t, 1)
        assert uuid not in self.tracks, "a track is described once"
        parent = one(t, 5, 0)
        assert parent == 0 or parent in self.tracks, "parents are described before their children"
        process = message(one(t, 3)) if 3 in t else None
        counter = message(one(t, 8)) if 8 in t else None
        self.tracks[uuid] = Track(
            uuid, parent, one(t, 2, b"").decode(), one(process, 1) if process else None,
            one(process, 6, b"").decode() if process else None,
            one(counter, 3) if counter is not None else None,
            one(counter, 7, b"").decode() if counter is not None else None, one(t, 12, 0))

    def time_of(self, sequence, p):
        time = one(p, 8)
        clock = one(p, 58, sequence.clock)
        if clock is not None and clock >= 64:
            sequence.incremental[clock] += time
            return sequence.incremental[clock]
        return time

    def event(self, sequence_id, sequence, p):
        assert one(p, 13, 0) & NEEDS_STATE
        e = message(one(p, 11))
        track = one(e, 11)
        assert track in self.tracks, "an event is on a described track"
        kind = one(e, 9)
        if kind == COUNTER:
            assert self.tracks[track].counter is not None
        name = sequence.names[one(e, 10)] if 10 in e else None
        assert kind in (COUNTER, END) or name is not None
        category = sequence.categories[one(e, 3)] if 3 in e else None
        args = {}
        for raw in e.get(4, []):
            a = message(raw)
            key = sequence.annotations[one(a, 1)]
            assert key not in args, "an argument is given once"
            args[key] = self.value(sequence, a)
        self.events.append(Event(self.time_of(sequence, p), kind, track, name, category, args,
                                 e.get(47, []), one(e, 30), sequence_id))

    def value(self, sequence, a):
        for number in (2, 3, 4, 7):
            if number in a:
                return one(a, number)
        if 6 in a:
            return one(a, 6).decode()
        if 17 in a:
            return sequence.values[one(a, 17)]
        if 11 in a:
            parts = [message(raw) for raw in a[11]]
            return {sequence.annotations[one(p, 1)]: self.value(sequence, p) for p in parts}
        return [self.value(sequence, message(raw)) for raw in a.get(12, [])]

    def profile(self, sequence_id, p):
        assert 4 in self.clocks, "heap dumps are timed by MONOTONIC_COARSE"
        assert one(p, 6, 0) == 0, "a dump is one packet"
        strings = {}
        for raw in p.get(1, []):
            entry = message(raw)
            strings[one(entry, 1)] = one(entry, 2, b"").decode()
        mappings = set()
        for raw in p.get(4, []):
            entry = message(raw)
            assert one(entry, 2) in strings and all(s in strings for s in entry[7])
            mappings.add(one(entry, 1))
        frames = {}
        for raw in p.get(2, []):
            entry = message(raw)
            assert one(entry, 3) in mappings
            frames[one(entry, 1)] = strings[one(entry, 2)]
        stacks = {}
        for raw in p.get(3, []):
            entry = message(raw)
            assert entry[2], "a stack has a frame"
            stacks[one(entry, 1)] = [frames[f] for f in entry[2]]
        for raw in p.get(5, []):
            dump = message(raw)
            samples = []
            for sample in dump.get(2, []):
                s = message(sample)
                samples.append((stacks[one(s, 1)], one(s, 2, 0), one(s, 5, 0)))
            self.heaps.append(Heap(one(dump, 9), one(dump, 1), one(dump, 11).decode(), samples,
                                   sequence_id))

    def process_of(self, track):
        while self.tracks[track].parent:
            track = self.tracks[track].parent
        return self.tracks[track]

    def slices(self):
        """(begin, end or None, track, event), nested as trace_processor would nest them."""
        out = []
        by_track = collections.defaultdict(list)
        for index, e in enumerate(self.events):
            if e.type in (BEGIN, END):
                by_track[e.track].append((e.time, index, e))
        for track, events in by_track.items():
            events.sort(key=lambda item: item[:2])
            open_slices = []
            for time, _, e in events:
                if e.type == BEGIN:
                    open_slices.append(e)
                else:
                    assert open_slices, "an end without a begin"
                    begun = open_slices.pop()
                    out.append((begun.time, time, track, begun))
            out.extend((e.time, None, track, e) for e in open_slices)
        return out

    def counters(self):
        """track -> (times, values) in file order, in which the times of a track never decrease."""
        if self.samples is None:
            self.samples = collections.defaultdict(lambda: ([], []))
            for e in self.events:
                if e.type == COUNTER:
                    times, values = self.samples[e.track]
                    assert not times or times[-1] <= e.time, "a counter never goes back in time"
                    times.append(e.time)
                    values.append(e.value)
        return self.samples

    def counter_at(self, track, time):
        """The value of the counter at a time; None before its first."""
        times, values = self.counters()[track]
        place = bisect.bisect_right(times, time)
        return values[place - 1] if place else None
