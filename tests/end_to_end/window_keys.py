#!/usr/bin/env python3
"""Opens the real window on a recorded job and types: F12 saves a picture, / searches, Ctrl+Q quits.

    xvfb-run python3 window_keys.py TIDEMARK_VIEW TRACE

Exits with 0, with 1 on failure, with 77 if libXtst is missing. The keys come from the X server
(XTEST), like those of a keyboard.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

KEYS = {"F12": 0xFFC9, "Control_L": 0xFFE3, "Escape": 0xFF1B, "slash": 0x2F, "q": 0x71, "t": 0x74}
DEADLINE_S = 90


class Keyboard:
    def __init__(self):
        self.x11 = ctypes.CDLL("libX11.so.6")
        self.xtst = ctypes.CDLL("libXtst.so.6")
        self.x11.XOpenDisplay.restype = ctypes.c_void_p
        self.x11.XKeysymToKeycode.argtypes = [ctypes.c_void_p, ctypes.c_ulong]
        self.x11.XKeysymToKeycode.restype = ctypes.c_ubyte
        self.x11.XFlush.argtypes = [ctypes.c_void_p]
        self.xtst.XTestFakeKeyEvent.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_int,
                                                ctypes.c_ulong]
        self.xtst.XTestFakeMotionEvent.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                                   ctypes.c_int, ctypes.c_ulong]
        self.display = self.x11.XOpenDisplay(None)
        if not self.display:
            raise OSError("no display")

    def point(self, x, y):
        """Without a window manager, keys go to the window under the mouse."""
        self.xtst.XTestFakeMotionEvent(self.display, -1, x, y, 0)
        self.x11.XFlush(self.display)

    def press(self, *names):
        codes = [self.x11.XKeysymToKeycode(self.display, KEYS[name]) for name in names]
        for code in codes:
            self.xtst.XTestFakeKeyEvent(self.display, code, 1, 0)
            self.x11.XFlush(self.display)
            time.sleep(0.05)
        for code in reversed(codes):
            self.xtst.XTestFakeKeyEvent(self.display, code, 0, 0)
        self.x11.XFlush(self.display)

    def type(self, *names):
        """Faster than any frame is drawn."""
        for name in names:
            code = self.x11.XKeysymToKeycode(self.display, KEYS[name])
            self.xtst.XTestFakeKeyEvent(self.display, code, 1, 0)
            self.xtst.XTestFakeKeyEvent(self.display, code, 0, 0)
        self.x11.XFlush(self.display)


def wait_until(done, again):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if done():
            return True
        again()
        time.sleep(0.5)
    return False


def main():
    program, trace = sys.argv[1:]
    try:
        keyboard = Keyboard()
    except OSError as error:
        print(f"no keys here: {error}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "tidemark-view-1.png"
        env = dict(os.environ, XDG_CONFIG_HOME=folder)
        viewer = subprocess.Popen([program, trace, "--size", "1000x700"], cwd=folder, env=env)
        try:
            keyboard.point(300, 500)
            drawn = wait_until(lambda: picture.exists() or viewer.poll() is not None,
                               lambda: keyboard.press("F12"))
            if not drawn or not picture.exists():
                print("F12 saved no picture")
                return 1
            if picture.stat().st_size < 2_000:
                print("the picture is empty")
                return 1
            # In the search, T is a letter and does not switch the theme.
            keyboard.type("slash", "t", "t", "t", "Escape")
            # Some versions of GLFW lose keys that come at once, perhaps Escape.
            ended = wait_until(lambda: viewer.poll() is not None,
                               lambda: (keyboard.press("Escape"), keyboard.press("Control_L", "q")))
            if not ended or viewer.returncode != 0:
                print(f"Ctrl+Q did not quit cleanly: {viewer.returncode}")
                return 1
            recent = (pathlib.Path(folder) / "tidemark" / "view.conf").read_text()
            if "theme=light" in recent:
                print("a typed letter became a command")
                return 1
            if trace not in recent:
                print("the trace is not among the recent ones")
                return 1
            layout = (pathlib.Path(folder) / "tidemark" / "view.ini").read_text()
            if "[Docking]" not in layout or "[Window][Memory map]" not in layout:
                print("the layout is not remembered")
                return 1
        finally:
            if viewer.poll() is None:
                viewer.kill()
                viewer.wait()
    print("the window draws, receives keys and quits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
