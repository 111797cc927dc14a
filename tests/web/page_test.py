#!/usr/bin/env python3
"""The viewer as a page, in a headless Chromium: page_test.py BUILD [TEST…]

BUILD has tidemark and tidemark-view; the page is that of `tidemark export --format html`. Exits with 77,
which ctest counts as skipped, where there is no page or no Chromium.
"""
import contextlib
import gzip
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser, chromium  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACES = ROOT / "samples/traces"
SNAPSHOTS = ROOT / "tests/data/snapshots"
CELLS_ALLOWED = 10  # of 9,000, as for the reference pictures of the window

# trace, panel ("": the whole window), theme. Every kind of input, and every panel.
PICTURES = [
    (TRACES / "torch/training.tier2.tmk", "", "dark"),
    (TRACES / "torch/training.tier2.tmk", "timeline:stacked:events", "dark"),
    (TRACES / "torch/out_of_memory.tier2.tmk", "", "light"),
    (TRACES / "torch/out_of_memory.tier2.tmk", "findings", "light"),
    (TRACES / "torch/streams.tier2.tmk", "timeline", "dark"),
    (TRACES / "torch/out_of_memory.tier1.tmk", "map", "dark"),
    (TRACES / "torch/mixed_precision.tier2.tmk", "flame", "light"),
    (TRACES / "torch/mixed_precision.tier2.tmk", "tables:kernels", "dark"),
    (TRACES / "torch/compiled.tier2.tmk", "tables", "dark"),
    (TRACES / "torch/expandable.tier2.tmk", "moment", "dark"),
    (TRACES / "ranks/guilty4", "findings", "dark"),
    (TRACES / "ranks/ddp4", "ranks", "light"),
    (TRACES / "torch/graphs.tier2.tmk", "stack:block:events", "dark"),
    (TRACES / "train/gpu-host-1196.tmk", "timeline", "light"),
    (SNAPSHOTS / "annotated.pickle.gz", "timeline", "light"),
    (SNAPSHOTS / "oom_fraction.pickle.gz", "map:age", "dark"),
    (SNAPSHOTS / "streams.pickle.gz", "stack:category", "light"),
]


class Tests:
    def __init__(self, build, work):
        self.build = build
        self.work = work
        self.page = ROOT / "build/web/tidemark-view.html"

    def run(self, *words):
        return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout

    @contextlib.contextmanager
    def browser(self, **how):
        with Browser(**how) as b:
            yield b
            assert not b.problems, b.problems

    def open(self, b, trace, fragment=""):
        b.go(self.page.as_uri() + fragment)
        b.choose(sorted(trace.glob("*.tmk")) if trace.is_dir() else [trace])
        b.wait("state.ready && state.name")
        b.settle()

    def test_pictures(self):
        different = []
        with self.browser() as b:
            for trace, panel, theme in PICTURES:
                native = self.work / "native.png"
                alone = ("--panel", panel) if panel else ()
                self.run(self.build / "tidemark-view", trace, "--screenshot", native, "--size", "960x600",
                         "--theme", theme, *alone)
                self.open(b, trace, f"#theme={theme}" + (f"&panel={panel}&alone=1" if panel else ""))
                seen = b.picture()
                apart = b.difference(seen, native.read_bytes())
                print(f"  {trace.name} {panel or 'window'}: {apart} cells", flush=True)
                if not 0 <= apart <= CELLS_ALLOWED:
                    name = f"{trace.name}.{panel.replace(':', '-')}"
                    (self.work.parent / f"seen_{name}.png").write_bytes(seen)
                    (self.work.parent / f"native_{name}.png").write_bytes(native.read_bytes())
                    different.append((name, apart))
        assert not different, different

    def test_input(self):
        trace = TRACES / "torch/out_of_memory.tier2.tmk"
        with self.browser(width=1280, height=800) as b:
            b.go(self.page.as_uri())
            b.drop([trace])
            b.wait("state.ready && state.name")
            b.settle()
            assert b.state()["name"] == trace.name, b.state()
            error = b.state()["link"]  # a trace opens on its error
            b.press("ArrowLeft")
            b.wait(f"state.link !== {error!r}")
            b.press("n")
            b.wait(f"state.link === {error!r}")
            b.wheel(640, 200, 5)
            b.wait("state.link.includes('view=')")
            b.press("f")
            b.wait("!state.link.includes('view=')")
            b.press("2", "Digit2")  # the map
            b.click(400, 640)
            b.wait("state.block")
            b.press("/", "Slash")
            for c in "conv":
                b.press(c)
            b.press("Enter")
            b.wait("state.link.includes('search=conv')")
            b.press("Escape")
            b.drop([TRACES / "torch/mixed_precision.tier2.tmk"], shift=True)
            b.wait("state.ready && state.other")
            assert b.state()["other"] == "mixed_precision.tier2.tmk", b.state()
            assert b.state()["name"] == trace.name, b.state()
            b.press("F12")
            b.wait("(state.saved || []).includes('tidemark-view.png')")

    def test_clipboard(self):
        """The stack of a table's row, by its menu."""
        with self.browser() as b:
            b.call("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
                   session=None)
            self.open(b, TRACES / "torch/out_of_memory.tier2.tmk", "#panel=tables&alone=1")
            b.click(500, 95, "right")
            b.click(550, 107)
            b.wait("state.copied")
            copied = b.evaluate("state.copied")
            assert "out_of_memory programs.py:137" in copied.replace("  ", " "), copied
            b.call("Page.bringToFront")
            assert b.evaluate("navigator.clipboard.readText()") == copied

    def test_cancel(self):
        """A load can be left while it runs; the page answers all the while."""
        parts = []
        for i in range(8):
            parts.append(self.work / f"rank{i}.pickle.gz")
            parts[-1].write_bytes((SNAPSHOTS / "long.pickle.gz").read_bytes())
        with self.browser() as b:
            b.go(self.page.as_uri())
            # In the page, at the first sign of progress: a fast machine is done before a click comes from here.
            b.evaluate("""new MutationObserver((_, observer) => {
                if ($('busy').hidden || !($('bar').value > 0)) return;
                observer.disconnect();
                state.left_at = $('bar').value;
                $('cancel').click();
              }).observe($('busy'), {attributes: true, subtree: true}), true""")
            b.choose(parts)
            b.wait("state.cancelled && $('busy').hidden && !state.name")
            assert 0 < b.state()["left_at"] < 1, b.state()
            b.choose([TRACES / "torch/training.tier2.tmk"])
            b.wait("state.ready && state.name === 'training.tier2.tmk'")

    def test_link(self):
        """The address restores view and cursor."""
        trace = TRACES / "torch/training.tier2.tmk"
        with self.browser() as b:
            self.open(b, trace)
            b.press("ArrowLeft")
            b.wheel(700, 240, 5)
            b.wait("location.hash.includes('view=') && location.hash.slice(1) === state.link")
            link = b.state()["link"]
            self.open(b, trace, "#" + link)
            b.wait(f"state.link === {link!r}")

    def test_several_files(self):
        with self.browser() as b:
            self.open(b, TRACES / "ranks/ddp4")
            assert b.state()["lanes"] == 4, b.state()
            # Two files that are no ranks are compared.
            b.go(self.page.as_uri())
            b.choose([TRACES / "torch/training.tier1.tmk", TRACES / "torch/training.tier2.tmk"])
            b.wait("state.ready && state.other")
            assert b.state()["other"] == "training.tier1.tmk", b.state()

    def test_exported_page(self):
        with self.browser() as b:
            page = self.work / "run.html"
            for trace in (TRACES / "torch/training.tier2.tmk", TRACES / "ranks/ddp2", SNAPSHOTS / "long.pickle.gz"):
                self.run(self.build / "tidemark", "export", trace, "--format", "html", "-o", page)
                b.go(page.as_uri())
                b.wait("state.ready && state.name")
                assert b.state()["name"] == trace.name, b.state()
                assert not b.state()["error"], b.state()
            self.run(self.build / "tidemark", "export", TRACES / "ranks/ddp2", "--format", "html", "-o", page,
                     "--ranks", "1")
            b.go(page.as_uri())
            b.wait("state.ready && state.name")
            assert b.state()["lanes"] == 1 and b.state()["name"].startswith("rank1-"), b.state()
            self.run(self.build / "tidemark", "export", TRACES / "torch/training.tier2.tmk", "--format", "html",
                     "-o", page, "--time", "4s..5s")
            b.go(page.as_uri())
            b.wait("state.ready && state.link.includes('view=4000000000ns-5000000000ns')")

    def damaged(self):
        dice = random.Random(21)
        for source in (TRACES / "torch/training.tier2.tmk", SNAPSHOTS / "streams.pickle.gz", TRACES / "train/gpu-host-1196.tmk"):
            whole = source.read_bytes()
            if source.suffix == ".gz":  # damage behind the checksum
                whole, source = gzip.decompress(whole), source.with_suffix("")
            for _ in range(8):
                data = bytearray(whole)
                for _ in range(dice.choice((1, 20, 400))):
                    data[dice.randrange(len(data))] = dice.randrange(256)
                yield source.name, bytes(data[:dice.choice((len(data), dice.randrange(len(data))))])
        yield "empty.tmk", b""
        yield "text.pickle", b"not a pickle"
        yield "huge.pickle", b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little")
        yield "page.html.pickle.gz", b"\x1f\x8b" + bytes(100)

    def test_damaged_files(self):
        good = TRACES / "torch/training.tier2.tmk"
        with self.browser() as b:
            b.go(self.page.as_uri())
            for i, (name, data) in enumerate(self.damaged()):
                path = self.work / f"{i}-{name}"
                path.write_bytes(data)
                b.choose([path])
                b.wait(f"state.ready && (state.error.includes({str(path.name)!r}) || state.name === {str(path.name)!r})"
                       " || state.fatal")
                assert "fatal" not in b.state(), (name, b.state())
            b.choose([good])
            b.wait(f"state.ready && state.name === {good.name!r}")

    def test_short_memory(self):
        """A page that gets no more memory says so, and can open another file."""
        trace = self.work / "large.pickle"
        # 600 MB in one string of a pickle: more than the browser gives here.
        with trace.open("wb") as f:
            f.write(b"\x80\x04\x8e" + (600 << 20).to_bytes(8, "little"))
            f.truncate((600 << 20) + 11)
            f.seek(0, 2)
            f.write(b".")
        with self.browser(flags=["--js-flags=--wasm-max-mem-pages=4096"]) as b:
            b.go(self.page.as_uri())
            b.choose([trace])
            b.wait("state.fatal || state.ready && state.error")
            said = b.state().get("fatal") or b.state()["error"]
            assert "memory" in said and "large.pickle" in said, said
            b.choose([TRACES / "torch/training.tier2.tmk"])
            b.wait("state.ready && state.name === 'training.tier2.tmk'")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if chromium() is None or not (ROOT / "build/web/tidemark-view.html").exists():
        print("no Chromium, or no page (scripts/web builds it)")
        return 77
    chosen = sys.argv[2:] or [name[5:] for name in dir(Tests) if name.startswith("test_")]
    with tempfile.TemporaryDirectory(prefix="tidemark-page-") as work:
        tests = Tests(build, pathlib.Path(work))
        for name in chosen:
            began = time.monotonic()
            print(name, flush=True)
            getattr(tests, "test_" + name)()
            print(f"{name}: passed in {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
