#!/usr/bin/env python3
"""Checks that includes only point down the order of the rooms.

    scripts/check_includes.py            exit 0 and a line with what was read, or 1 and each offence
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# room -> rooms it may include from (besides itself)
MAY_USE = {
    "abi": set(),
    "proto": set(),
    "bridge": set(),
    "injector": {"abi", "proto", "bridge"},
    "collector": {"proto", "bridge"},
    "analysis": {"proto"},
    "export": {"proto", "analysis"},
    "viewer": {"proto", "collector", "analysis", "export"},
    "cli": {"proto", "collector", "analysis", "export"},
    "simgpu": {"abi"},
    "samples": {"abi", "proto"},
}
# The part of proto/ that is linked into other people's processes.
WRITER_ONLY = {"rows.h", "tables.h", "wire.h", "crc32.h", "frame.h", "column_codec.h",
               "block_encoder.h", "byte_sink.h", "trace_writer.h", "version.h", "ring_layout.h", "table_names.h",
               "control.h", "pages.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def offences():
    for room, allowed in MAY_USE.items():
        for source in sorted((ROOT / room).rglob("*")):
            if source.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            for target in INCLUDE.findall(source.read_text(encoding="utf-8")):
                target_room = target.split("/")[0]
                if target_room not in MAY_USE or "/" not in target:
                    continue
                name = source.relative_to(ROOT)
                if target_room != room and target_room not in allowed:
                    yield f"{name}: {room}/ must not include {target}"
                if not (ROOT / target).exists() and not target.endswith(".pb.h"):
                    yield f"{name}: {target} does not exist"
                if (room == "injector" and target_room == "proto"
                        and target.split("/", 1)[1] not in WRITER_ONLY):
                    yield f"{name}: the injector uses only proto's writer, not {target}"


def main():
    found = list(offences())
    for text in found:
        print(text)
    print(f"includes: {len(MAY_USE)} rooms read, {len(found)} offences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
