#!/usr/bin/env python3
"""groups.py FILE…: one line per file of the current folder, the number of its group.

Files of a group are compiled together, which takes a quarter of the time. Two files with a local name
(in an unnamed namespace) in common cannot be in one group, and one with a local type that has the name of a
type of a header is compiled alone.
"""
import pathlib
import re
import sys

MOST = 14  # files of a group
ALONE = re.compile(r"#define STB")
TYPE = re.compile(r"^(?:struct|class|enum class|using) (\w+)", re.M)
CLUTTER = re.compile(r'//.*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.M)
DECLARED = re.compile(r"\b([A-Za-z_]\w*)\s*(?=[(=;\[{:])|\busing\s+(\w+)")

HARMLESS = {"std", "fs", "filesystem", "size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "int64_t"}


def without(text, left, right):
    """The text outside of brackets, each pair replaced by an empty one."""
    out, depth = [], 0
    for c in text:
        if c == left:
            depth += 1
            out.append(left if depth == 1 else "")
        elif c == right:
            depth -= 1
            out.append(right if depth == 0 else "")
        elif depth == 0:
            out.append(c)
    return "".join(out)


def local_names(text):
    text = CLUTTER.sub(" ", text)
    names = set(re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M))
    names |= set(re.findall(r"^static\s[^;{(]*?\b(\w+)\s*[({=;]", text, re.M))
    for match in re.finditer(r"namespace\s*\{", text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        inside = without(without(text[match.end():end - 1], "{", "}"), "(", ")")
        names |= {a or b for a, b in DECLARED.findall(inside)}
    return names - HARMLESS


def main():
    public = set()
    for header in pathlib.Path().rglob("*.h"):
        public |= set(TYPE.findall(header.read_text(encoding="utf-8")))
    groups = []  # [names, count]
    for number, path in enumerate(sys.argv[1:]):
        text = open(path, encoding="utf-8").read()
        names = local_names(text)
        for i, group in enumerate(groups):
            if group[1] < MOST and not group[0] & names:
                break
        else:
            i = len(groups)
            groups.append([set(), 0])
        groups[i][0] |= names
        groups[i][1] += 1
        types = {n for n in names & public if re.search(rf"\b(struct|class|enum|using) (class )?{n}\b", text)}
        print(1000 + number if types or ALONE.search(text) else i)


if __name__ == "__main__":
    main()
