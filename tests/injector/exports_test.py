"""What libtidemark.so exports to its host: entry points only, and nothing newer than glibc 2.34.

    exports_test.py LIBRARY NM OBJDUMP

It may export only its entry points, and need nothing newer than glibc 2.34.
"""

import re
import subprocess
import sys

ENTRY_POINTS = {"InitializeInjection", "InitializeInjectionNvtx2", "tidemark_arm",
                *(f"tidemark_{name}" for name in ("mark", "name", "range_begin", "range_end", "step")),
                *(f"ncclProfiler_v{n}" for n in range(1, 7))}
NEWEST_GLIBC = (2, 34)
# Imports that get newer versions or other names with newer glibcs: a library built there would need
# it. strtol and scanf become __isoc23_* (2.38), fmod has a new version (2.38), and so on.
BREAKS_WITH_NEWER_GLIBC = re.compile(
    r"(?:__isoc23_)?(?:strto(?:l|ul|ll|ull|imax|umax|q|uq)|wcsto\w+|v?[fsw]*scanf)(?:_l)?"
    r"|fmodf?|arc4random\w*|strlcpy|strlcat|wcslcpy|wcslcat|_dl_find_object|pidfd_\w+")
# Libraries that we must not depend on: the host may have another version, or none.
FORBIDDEN = re.compile(r"libstdc\+\+|libgcc_s|libzstd|libcuda|libcupti|libnvidia|libfmt|libproto")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library, nm, objdump = sys.argv[1:4]
    failures = []

    exported = {line.split()[-1].split("@")[0]
                for line in output(nm, "-D", "--defined-only", library).splitlines()}
    unexpected = exported - ENTRY_POINTS
    if unexpected:
        failures.append(f"exports more than entry points: {sorted(unexpected)}")
    missing = ENTRY_POINTS - exported
    if missing:
        failures.append(f"lacks entry points: {sorted(missing)}")

    headers = output(objdump, "-p", library)
    needed = re.findall(r"NEEDED\s+(\S+)", headers)
    wrong = [name for name in needed if FORBIDDEN.search(name)]
    if wrong:
        failures.append(f"needs libraries of the host: {wrong}")

    symbols = output(objdump, "-T", library)
    versions = {tuple(map(int, text.split(".")))
                for text in re.findall(r"GLIBC_([0-9.]+)", symbols + headers)}
    newer = sorted(version for version in versions if version > NEWEST_GLIBC)
    if newer:
        lines = [line for line in symbols.splitlines()
                 if any(f"GLIBC_{'.'.join(map(str, v))})" in line for v in newer)]
        failures.append(f"needs a newer glibc: {newer} {lines}")
    imported = {line.split()[-1] for line in symbols.splitlines() if "*UND*" in line}
    breaking = sorted(name for name in imported if BREAKS_WITH_NEWER_GLIBC.fullmatch(name))
    if breaking:
        failures.append(f"a build with a newer glibc would require it: {breaking}")
    if "memcpy" not in imported:
        failures.append("memcpy is not imported: did objdump change its output?")
    if not versions:
        failures.append("no glibc version found: did objdump change its output?")

    for failure in failures:
        print(f"{library}: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
