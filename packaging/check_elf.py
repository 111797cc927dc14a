"""Checks that the programs and libraries of an installed tree run on any Linux of their architecture:
they need no glibc newer than 2.28, no library that is not part of every system, and no place where
they were built.

    python3 check_elf.py TREE [--list]      --list prints what each file needs

Exits with 1, and names the symbols, if a file needs more. It reads ELF itself, so that it works for
every architecture and needs no binutils.
"""
import pathlib
import struct
import sys

GLIBC = (2, 28)  # of manylinux_2_28: RHEL 8, Debian 10, Ubuntu 20.04 and whatever is newer
# glibc itself. What else is used (CUDA, OpenGL, X11, Wayland) is loaded while running.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
              "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MACHINES = {62: "x86_64", 183: "aarch64"}

PT_DYNAMIC, PT_GNU_STACK = 2, 0x6474E551
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_RPATH, DT_TEXTREL, DT_RUNPATH = 1, 5, 6, 15, 22, 29
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
SHT_DYNSYM = 11


class ElfFile:
    def __init__(self, data):
        self.data = data
        if data[4:6] != b"\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self.machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0], "unknown")
        program_at, section_at = struct.unpack_from("<QQ", data, 32)
        size, count, self.section_size, self.section_count = struct.unpack_from("<HHHH", data, 54)
        self.section_at = section_at
        self.loads = []
        self.dynamic = []
        self.executable_stack = False
        for i in range(count):
            kind, flags, offset, address, _, in_file = struct.unpack_from(
                "<IIQQQQ", data, program_at + i * size)
            if kind == 1:
                self.loads.append((address, offset, in_file))
            if kind == PT_GNU_STACK:
                self.executable_stack = bool(flags & 1)
            if kind == PT_DYNAMIC:
                for at in range(offset, offset + in_file, 16):
                    self.dynamic.append(struct.unpack_from("<qQ", data, at))

    def value(self, tag):
        return next((value for t, value in self.dynamic if t == tag), None)

    def offset(self, address):
        for start, offset, size in self.loads:
            if start <= address < start + size:
                return address - start + offset
        raise ValueError(f"address {address:#x} is in no segment")

    def text(self, at):
        start = self.offset(self.value(DT_STRTAB)) + at
        return self.data[start:self.data.index(b"\0", start)].decode()

    def texts(self, tag):
        return [self.text(value) for t, value in self.dynamic if t == tag]

    def versions(self):
        """The needed versions by their index in the symbol table: {index: (library, version)}."""
        needed = {}
        if self.value(DT_VERNEED) is None:
            return needed
        at = self.offset(self.value(DT_VERNEED))
        for _ in range(self.value(DT_VERNEEDNUM)):
            _, count, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.data, entry)
                needed[index] = (self.text(library), self.text(name))
                entry += step
            at += following
        return needed

    def symbols(self):
        """Yields (name, version index) of every undefined dynamic symbol."""
        if self.value(DT_VERSYM) is None:
            return
        for i in range(self.section_count):
            at = self.section_at + i * self.section_size
            kind, _, _, offset, size = struct.unpack_from("<IQQQQ", self.data, at + 4)
            if kind != SHT_DYNSYM:
                continue
            versions = self.offset(self.value(DT_VERSYM))
            for n in range(size // 24):
                name, _, _, section = struct.unpack_from("<IBBH", self.data, offset + n * 24)
                if name and section == 0:
                    yield self.text(name), struct.unpack_from("<H", self.data, versions + 2 * n)[0]


def number(version):
    """GLIBC_2.28 → (2, 28); None for the versions of other libraries."""
    if not version.startswith("GLIBC_") or not version[6:7].isdigit():
        return None
    return tuple(int(part) for part in version[6:].split("."))


def faults(elf):
    for library in elf.texts(DT_NEEDED):
        if library not in EVERYWHERE:
            yield f"needs {library}, which not every system has"
    for tag in (DT_RPATH, DT_RUNPATH):
        for path in elf.texts(tag):
            yield f"looks for libraries in {path}"
    if elf.executable_stack:
        yield "wants an executable stack"
    if elf.value(DT_TEXTREL) is not None:
        yield "has relocations in its code"
    versions = elf.versions()
    for name, index in sorted(elf.symbols()):
        version = versions.get(index & 0x7FFF, ("", ""))[1]
        if (number(version) or (0,)) > GLIBC:
            yield f"needs {name}@{version}"


def elf_files(tree):
    for path in sorted(pathlib.Path(tree).rglob("*")):
        if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
            yield path


def main(tree, listing):
    bad = 0
    machines = set()
    for path in elf_files(tree):
        elf = ElfFile(path.read_bytes())
        machines.add(elf.machine)
        newest = max((n for n in (number(v) for _, v in elf.versions().values()) if n), default=())
        if listing:
            print(f"{path.relative_to(tree)}: {elf.machine}, glibc {'.'.join(map(str, newest)) or 'none'}, "
                  f"{', '.join(elf.texts(DT_NEEDED))}")
        for fault in faults(elf):
            print(f"{path.relative_to(tree)} {fault}", file=sys.stderr)
            bad = 1
    if len(machines) != 1:
        print(f"{tree}: expected programs of one architecture, found {sorted(machines)}", file=sys.stderr)
        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--list" in sys.argv[2:]))
