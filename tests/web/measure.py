#!/usr/bin/env python3
"""measure.py PAGE TRACE…: how long the page takes in a headless Chromium, with software rendering.

Per trace: ms until the curves are there and until the analysis is done, the median and the largest frame of
a tour (zooms, moves, panels), MiB of WebAssembly memory, and the longest time that the page did not answer.
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser  # noqa: E402

WATCH = """window.longest = 0; window.before = performance.now();
setInterval(() => { const now = performance.now(); longest = Math.max(longest, now - before - 10); before = now; }, 10)"""


def tour(b):
    b.evaluate("send('turns', 0)")
    for _ in range(4):
        b.wheel(700, 250, 3)
    for key in "dddaafp":
        b.press(key)
    for digit in "1234560":
        b.press(digit, "Digit" + digit)
        b.wheel(700, 250, 1)
        b.mouse("mouseMoved", 500, 650)
        b.settle()
    b.evaluate("delete state.turns; send('turns', 0)")
    b.wait("state.turns")
    return sorted(b.state()["turns"])


def main():
    page, traces = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    for trace in traces:
        with Browser(width=1440, height=900) as b:
            b.go(page.as_uri())
            b.evaluate(WATCH)
            began = time.monotonic()
            b.choose([pathlib.Path(trace).resolve()])
            b.wait("state.name || state.error", 600)
            curves = time.monotonic() - began
            b.wait("state.ready", 600)
            done = time.monotonic() - began
            longest = b.evaluate("longest")
            turns = tour(b)
            state = b.state()
            print(f"{pathlib.Path(trace).name}: {state['events']} events, curves {curves * 1000:.0f} ms, "
                  f"analysed {done * 1000:.0f} ms, frames {turns[len(turns) // 2]:.1f} (largest {turns[-1]:.1f}) ms, "
                  f"{state['heap'] >> 20} MiB, page stood still {longest:.0f} ms {state['error']}", flush=True)
            assert not b.problems, b.problems


if __name__ == "__main__":
    main()
