#!/usr/bin/env python3
"""make_page.py PROGRAM.js PROGRAM.wasm OUT.html: the page, with everything inside."""
import base64
import gzip
import pathlib
import sys


def packed(data):
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def main():
    program_js, program_wasm, out = map(pathlib.Path, sys.argv[1:])
    here = pathlib.Path(__file__).parent
    code = program_js.read_bytes() + b"\n" + (here / "worker.js").read_bytes()
    page = (here / "page.html").read_text()
    for mark, text in (("@PAGE_JS@", (here / "page.js").read_text()),
                       ("@PROGRAM_JS@", packed(code)),
                       ("@PROGRAM_WASM@", packed(program_wasm.read_bytes()))):
        assert page.count(mark) == 1, mark
        page = page.replace(mark, text)
    out.write_text(page)
    print(f"{out}: {len(page):,} bytes, {len(gzip.compress(page.encode(), 9)):,} compressed")


if __name__ == "__main__":
    main()
