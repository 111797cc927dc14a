#!/usr/bin/env python3
"""Checks that the documentation names only what exists: paths, links, and identifiers.

    scripts/check_docs.py [ROOT]     exit 0 and a summary line, or 1 and one line per mistake

Paths are code spans that begin with a folder of this repository. Identifiers are checked only in the
pages for contributors: other pages also name functions of PyTorch and CUDA.
"""
import pathlib
import re
import shutil
import subprocess
import sys

PAGES = ("*.md", "docs/*.md", "proto/*.md", "simgpu/*.md", "simgpu/torch/*.md")
FOR_CONTRIBUTORS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
SOURCES = (".h", ".cpp", ".in", ".py", ".sh", ".txt", ".cmake", ".json", ".proto", ".map", "")
CODE_BLOCK = re.compile(r"^```.*?^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"[*<>$|…]|/(ID|NAME)\b|NAME_")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:::\w+)*")
FOREIGN = {"snake_case", "PascalCase"}  # and other words that are not of the sources


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def broken_links(page, text):
    for target in LINK.findall(text):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            yield f"link to {target}, which does not exist"
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"link to {target}: no such heading"


def missing_paths(root, folders, text):
    for span in CODE.findall(text):
        for word in span.split():
            word = word.rstrip(",;:")
            if "/" not in word or word.split("/")[0] not in folders or PLACEHOLDER.search(word):
                continue
            if not (root / word).exists():
                yield f"{word} does not exist"


def looks_like_an_identifier(span):
    if not IDENTIFIER.fullmatch(span) or span.startswith("_"):
        return False
    return "_" in span or "::" in span or re.match(r"[A-Z][a-z]+[A-Z]|k[A-Z]", span)


def unknown_identifiers(words, text):
    for span in CODE.findall(text):
        span = span.removesuffix("()")
        if looks_like_an_identifier(span):
            for part in span.split("::"):
                if part not in words and part not in FOREIGN:
                    yield f"`{span}`: {part} is nowhere in the sources"


def words_of_sources(root, files):
    words = set()
    for file in files:
        path = root / file
        if path.suffix in SOURCES and not file.startswith("tests/data") and path.is_file():
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    return words


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    root = root.resolve()
    listed = shutil.which("git") and subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if listed and listed.returncode == 0:
        files = [f for f in listed.stdout.splitlines() if not f.startswith("third_party/")]
    else:  # an unpacked archive, or no git
        files = [str(p.relative_to(root)) for top in root.iterdir()
                 if top.name not in ("build", "third_party", ".git")
                 for p in ([top] if top.is_file() else top.rglob("*")) if p.is_file()]
    folders = {f.split("/")[0] for f in files if "/" in f}
    words = words_of_sources(root, [f for f in files if not f.endswith(".md")])
    mistakes, pages = [], sorted({p for pattern in PAGES for p in root.glob(pattern)})
    for page in pages:
        text = page.read_text(encoding="utf-8")
        prose = CODE_BLOCK.sub("", text)
        found = [*broken_links(page, prose), *missing_paths(root, folders, prose)]
        if page.name in FOR_CONTRIBUTORS:
            found += unknown_identifiers(words, prose)
        mistakes += [f"{page.relative_to(root)}: {text}" for text in found]
    for text in mistakes:
        print(text)
    print(f"documentation: {len(pages)} pages, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
