"""Runs the examples of a Markdown file as doctests, in the current directory.

    python3 run_examples.py FILE        with STANDIN_TORCH
"""
import doctest
import pathlib
import re
import sys

import standin_torch  # noqa: F401

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S)
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
names = {}
for number, block in enumerate(blocks, 1):
    test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", sys.argv[1], 0)
    runner.run(test, clear_globs=False)
    names = test.globs
failed, tried = runner.summarize()
print(f"{tried} examples")
sys.exit(1 if failed or tried == 0 else 0)
