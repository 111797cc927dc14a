#!/usr/bin/env python3
"""measure.py [--page PAGE] [--pytorch MemoryViz.js --d3 d3.min.js] [--rounds N] TRACE…

How long the page takes in a headless Chromium with software rendering. Per trace, of the best of N rounds: ms
until the curves are there and until the analysis is done; median, p99 and largest frame of a tour (zooms, moves,
panels), and the same without the calls that draw; MiB of WebAssembly memory and of the browser's process; the
longest time that the page did not answer. With PyTorch's memory page beside it (torch/utils/viz/MemoryViz.js, and
dist/d3.min.js of npm's d3@5): ms until its timeline of a .pickle is there.

    measure.py --snapshot 360626 FILE      writes a snapshot of so many entries, to measure
"""
import argparse
import pathlib
import pickle
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
WATCH = """window.longest = 0; window.before = performance.now();
setInterval(() => { const now = performance.now(); longest = Math.max(longest, now - before - 10); before = now; }, 10)"""


def renderer_mib(browser):
    """The most memory that a process of this browser with a page in it had."""
    most = 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_text()
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        if "--type=renderer" in command and browser.folder.name in command:
            most = max(most, int(fields["VmHWM"].split()[0]) >> 10)
    return most


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
    return b.state()["turns"]


def of_frames(ms):
    ms = sorted(ms)
    return f"{ms[len(ms) // 2]:.1f}, p99 {ms[len(ms) * 99 // 100]:.1f}, largest {ms[-1]:.1f}"


def ours(page, trace):
    with Browser(width=1440, height=900) as b:
        b.go(page.as_uri())
        b.evaluate(WATCH)
        began = time.monotonic()
        b.choose([trace])
        b.wait("state.name || state.error", 600)
        curves = time.monotonic() - began
        b.wait("state.ready", 600)
        done = time.monotonic() - began
        longest = b.evaluate("longest")
        turns = tour(b)
        state = b.state()
        text = (f"{state['events']} events, curves {curves * 1000:.0f} ms, analysed {done * 1000:.0f} ms, "
                f"frames {of_frames([t[0] for t in turns])} ms (without drawing "
                f"{of_frames([t[0] - t[1] for t in turns])} ms), {state['heap'] >> 20} MiB of WebAssembly, "
                f"{renderer_mib(b)} MiB in all, page stood still {longest:.0f} ms {state['error']}")
        assert not b.problems, b.problems
    return curves, text


def theirs(script, d3, trace):
    code = re.sub(r"^import .*$", "", script.read_text(), flags=re.M)
    names = "const {axisLeft, scaleLinear, zoom, zoomIdentity, brushX} = d3;"
    with tempfile.TemporaryDirectory() as folder, Browser(width=1440, height=900) as b:
        page = pathlib.Path(folder) / "theirs.html"
        page.write_text(f"<!doctype html><body><script>{d3.read_text()}</script>"
                        f"<script type=module>{names}\n{code}</script>")
        b.call("Page.navigate", {"url": page.as_uri()})
        b.wait("document.body && document.body.innerText.includes('Drag and drop')")
        began = time.monotonic()
        b.drop([trace], wait=1200)
        b.wait("document.querySelector('svg path, svg polygon')", 1200)
        first = time.monotonic() - began
        text = f"timeline of the 15,000 largest blocks {first * 1000:.0f} ms"
        # Its slider for detail, to the end: the timeline of all blocks.
        began = time.monotonic()
        try:
            b.evaluate("""(input => { input.value = input.max; input.dispatchEvent(new Event('change')); })
                          (document.querySelector('input[type=range]'))""", 600)
            text += f", of all blocks {(first + time.monotonic() - began) * 1000:.0f} ms"
        except (RuntimeError, TimeoutError) as error:
            text += f", of all blocks: {error} after {time.monotonic() - began:.0f} s"
        return first, f"{text}, {renderer_mib(b)} MiB in all"


def write_snapshot(path, entries):
    """As of a training job: 4,000 live tensors, 2,000 call paths, frees in any order."""
    rng = random.Random(11)
    frames = [{"filename": f"/srv/train/part{i % 40}.py", "line": i, "name": f"function_{i}"} for i in range(800)]
    stacks = [rng.sample(frames, rng.randrange(8, 40)) for _ in range(2000)]
    live, trace, free_addresses, now = [], [], [], 1794702468000000
    while len(trace) < entries:
        now += rng.randrange(1, 40)
        common = {"stream": 0, "time_us": now, "compile_context": "N/A", "user_metadata": ""}
        if len(live) < 4000 or rng.random() < 0.5:
            size = 512 * rng.choice((1, 8, 128, 2048, rng.randrange(1, 1 << 15)))
            block = {"addr": free_addresses.pop() if free_addresses else 0x7F0000000000 + (len(live) << 25), "size": size}
            live.append(block)
            trace.append({"action": "alloc", **block, **common, "frames": rng.choice(stacks)})
            continue
        block = live.pop(rng.randrange(len(live)))
        free_addresses.append(block["addr"])
        for action in ("free_requested", "free_completed"):
            trace.append({"action": action, **block, **common, "frames": rng.choice(stacks)})
    snapshot = {"segments": [], "device_traces": [trace[:entries]], "external_annotations": [],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1}}
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "build/web/tidemark-view.html")
    parser.add_argument("--pytorch", type=pathlib.Path)
    parser.add_argument("--d3", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--snapshot", type=int)
    parser.add_argument("traces", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    if options.snapshot:
        return write_snapshot(options.traces[0], options.snapshot)
    for trace in map(pathlib.Path.resolve, options.traces):
        print(f"{trace.name}: {min(ours(options.page.resolve(), trace) for _ in range(options.rounds))[1]}", flush=True)
        if options.pytorch and trace.suffix == ".pickle":
            print(f"  PyTorch's page: {theirs(options.pytorch, options.d3, trace)[1]}", flush=True)


if __name__ == "__main__":
    main()
