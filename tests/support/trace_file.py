"""Writes .tmk files, also such as no recorder writes. The columns come from proto/tidemark.proto."""
import pathlib
import re
import struct
import zlib

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "proto" / "tidemark.proto"
KINDS = {"Processes": 1, "Devices": 2, "Settings": 3, "Strings": 4, "Modules": 5, "Frames": 6,
         "Stacks": 7, "Threads": 8, "Pools": 9, "NnModules": 10, "DriverEvents": 16, "FrameworkEvents": 17,
         "OutOfMemory": 18, "SegmentStates": 19, "BlockStates": 20, "Counters": 21, "Kernels": 22,
         "Copies": 23, "Communicators": 24, "NcclOperations": 25, "Marks": 26, "TensorTags": 27,
         "ClockSamples": 28, "Alignments": 29, "Health": 30, "Index": 63}
FRAME_MAGIC = 0x464B4D54
TRAILER_MAGIC = 0x454B4D54


def read_schema():
    tables, message = {}, None
    for line in SCHEMA.read_text().splitlines():
        if begin := re.match(r"message (\w+)", line):
            message = tables.setdefault(begin.group(1), [])
        column = re.match(r"\s+repeated (\w+) (\w+) = (\d+)( \[\(coding\) = DELTA\])?", line)
        if column and message is not None:
            message.append((column[2], int(column[3]), column[1], bool(column[4])))
    return tables


TABLES = read_schema()


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number):
    number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return (number << 1) ^ (number >> 63)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def column_bytes(values, kind, delta):
    if delta:
        values = [zigzag(v - p) for v, p in zip(values, [0, *values])]
    elif kind == "sint64":
        values = [zigzag(v) for v in values]
    return b"".join(map(varint, values))


class TraceFile:
    """`table` adds one block of rows, given as dicts; a column that is missing is 0."""

    def __init__(self):
        self.bytes = bytearray(b"TIDEMARK" + struct.pack("<HHI", 1, 0, 0))
        self.sequence = {}
        self.texts = {}
        self.index = []

    def table(self, process, name, rows):
        message = b"\x08" + varint(len(rows))
        for i, (column, number, kind, delta) in enumerate(TABLES[name]):
            values = [row.get(column, 0) for row in rows]
            if i == 0 or any(values):
                message += field(number, column_bytes(values, kind, delta))
        times = [row.get("time_ns", row.get("start_ns", 0)) for row in rows]
        self._frame(process, name, message, len(rows), min(times), max(times))

    def string(self, process, text):
        known = self.texts.setdefault(process, {})
        return known.setdefault(text, len(known) + 1)

    def save(self, path, finished=True):
        for process, texts in self.texts.items():
            ids = column_bytes(list(texts.values()), "uint32", True)
            message = b"\x08" + varint(len(texts)) + field(2, ids)
            message += b"".join(field(3, text.encode()) for text in texts)
            self._frame(process, "Strings", message, len(texts), 0, 0)
        if finished:
            offset = struct.pack("<Q", len(self.bytes))
            self.table(0, "Index", self.index)
            self.bytes += offset + struct.pack("<II", zlib.crc32(offset), TRAILER_MAGIC)
        pathlib.Path(path).write_bytes(self.bytes)
        return path

    def _frame(self, process, name, message, rows, first_ns, last_ns):
        sequence = self.sequence.get(process, 0)
        self.sequence[process] = sequence + 1
        self.index.append({"offset": len(self.bytes), "stored_bytes": len(message),
                           "first_ns": first_ns, "last_ns": last_ns, "block_rows": rows,
                           "process": process, "block_kind": KINDS[name]})
        header = struct.pack("<IHHIIIIqqQI", FRAME_MAGIC, KINDS[name], 0, len(message),
                             len(message), rows, process, first_ns, last_ns, sequence,
                             zlib.crc32(message))
        self.bytes += header + struct.pack("<I", zlib.crc32(header)) + message
