"""Source text of a generated program: indentation, names, and the lines that count as planted.

A line that ends in `#@` is a planted line: the mark is removed and the line's number is noted.
"""
MARK = "#@"


def indent(lines, levels=1):
    return [("    " * levels + line) if line else "" for line in lines]


def text(block):
    """The lines of a triple-quoted block, without its own indentation."""
    lines = block.strip("\n").rstrip().split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return [line[margin:] if line.strip() else "" for line in lines]


def named(lines, names):
    """Replaces $net and the like; $s, the prefix of what lives as long as the run, comes last."""
    changed = []
    for line in lines:
        for name in sorted(names, key=len, reverse=True):
            line = line.replace("$" + name, names[name])
        changed.append(line)
    return changed


def finish(lines, file):
    """(source, planted lines) of a program's lines."""
    planted, source = [], []
    for number, line in enumerate(lines, 1):
        if line.endswith(MARK):
            line = line[:-len(MARK)].rstrip()
            planted.append({"file": file, "line": number, "text": line.strip()})
        source.append(line.rstrip())
    return "\n".join(source) + "\n", planted
