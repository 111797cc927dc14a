"""Drives a headless Chromium through its debugging pipe (the DevTools protocol). Standard library only."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time


def chromium():
    return os.environ.get("TIDEMARK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self, width=960, height=600, flags=()):
        self.folder = tempfile.TemporaryDirectory(prefix="tidemark-chromium-", ignore_cleanup_errors=True)
        command_read, self.commands = os.pipe()
        self.answers, answer_write = os.pipe()

        def take_descriptors():  # Chromium reads commands from 3 and answers on 4
            # Both ends may be 3 or 4 already: move them away first.
            source, sink = os.dup2(command_read, 103), os.dup2(answer_write, 104)
            os.dup2(source, 3)
            os.dup2(sink, 4)

        self.process = subprocess.Popen(
            [chromium(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu-watchdog",
             "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={self.folder.name}/profile", *flags, "about:blank"],
            preexec_fn=take_descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(answer_write)
        self.replies = {}
        self.changed = threading.Condition()
        self.number = 0
        self.problems = []  # errors of the console, and exceptions
        self.ended = False
        threading.Thread(target=self.listen, daemon=True).start()
        target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True},
                                 session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(domain + ".enable")
        self.call("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True})
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        self.folder.cleanup()

    # --- the protocol
    def listen(self):
        rest = b""
        while True:
            more = os.read(self.answers, 1 << 20)
            if not more:
                break
            *messages, rest = (rest + more).split(b"\0")
            for message in messages:
                self.take(json.loads(message))
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def take(self, message):
        with self.changed:
            if "id" in message:
                self.replies[message["id"]] = message
                self.changed.notify_all()
                return
        method, params = message["method"], message["params"]
        if method == "Target.attachedToTarget" and params["targetInfo"]["type"] == "worker":
            self.send("Runtime.enable", {}, params["sessionId"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    def send(self, method, params, session):
        with self.changed:
            self.number += 1
            number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        return number

    def call(self, method, params=None, session="", timeout=120):
        number = self.send(method, params or {}, self.session if session == "" else session)
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.replies or self.ended, timeout):
                raise TimeoutError(method)
            if number not in self.replies:
                raise RuntimeError("Chromium ended")
            reply = self.replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    # --- the page
    def evaluate(self, expression, timeout=120):
        result = self.call("Runtime.evaluate",
                           {"expression": expression, "awaitPromise": True, "returnByValue": True}, timeout=timeout)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition, timeout=120):
        end = time.monotonic() + timeout
        while not self.evaluate(condition, timeout):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: {self.evaluate('JSON.stringify(state)')}; {self.problems}")
            time.sleep(0.05)

    def state(self):
        return self.evaluate("Object.assign({}, state)")

    def go(self, url):
        self.call("Page.navigate", {"url": "about:blank"})
        self.call("Page.navigate", {"url": url})
        self.wait("typeof document !== 'undefined' && document.body && document.body.dataset.started === 'yes'")

    def choose(self, paths):
        """Through the file dialog of the page."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", {"nodeId": root, "selector": "#pick"})["nodeId"]
        self.call("DOM.setFileInputFiles", {"files": [str(p) for p in paths], "nodeId": node})

    def drop(self, paths, shift=False, wait=120):
        data = {"items": [], "files": [str(p) for p in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent",
                      {"type": kind, "x": 400, "y": 300, "data": data, "modifiers": 8 if shift else 0}, timeout=wait)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def click(self, x, y, button="left"):
        self.mouse("mouseMoved", x, y)
        self.settle()
        self.mouse("mousePressed", x, y, button=button, clickCount=1)
        self.mouse("mouseReleased", x, y, button=button, clickCount=1)
        self.settle()

    def wheel(self, x, y, notches):
        self.mouse("mouseMoved", x, y)
        self.settle()
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100 * notches)
        self.settle()

    def press(self, key, code=None, text=None):
        more = {"text": text or key} if len(key) == 1 else {}
        code = code or ("Key" + key.upper() if key.isalpha() and len(key) == 1 else key)
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, "code": code, **more})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", "key": key, "code": code})
        self.settle()

    def settle(self):
        time.sleep(0.3)

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", {"format": "png"})["data"])

    # Squares of `cell` pixels whose mean colour differs by more than `tolerance`, as the reference
    # pictures of the window are compared; -1: not of the same size.
    def difference(self, png, other, cell=8, tolerance=14):
        script = """(async (a, b, cell, tolerance) => {
          const pixels = async (text) => {
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
            const canvas = new OffscreenCanvas(image.width, image.height);
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            return context.getImageData(0, 0, image.width, image.height);
          };
          const [p, q] = [await pixels(a), await pixels(b)];
          if (p.width !== q.width || p.height !== q.height) return -1;
          let cells = 0;
          for (let y = 0; y < p.height; y += cell) {
            for (let x = 0; x < p.width; x += cell) {
              const sum = [0, 0, 0];
              let count = 0;
              for (let j = y; j < Math.min(y + cell, p.height); ++j) {
                for (let i = x; i < Math.min(x + cell, p.width); ++i, ++count) {
                  for (let c = 0; c < 3; ++c) {
                    const at = 4 * (j * p.width + i) + c;
                    sum[c] += p.data[at] - q.data[at];
                  }
                }
              }
              if (sum.some((s) => Math.abs(s) / count > tolerance)) ++cells;
            }
          }
          return cells;
        })""" + "(" + json.dumps(base64.b64encode(png).decode()) + "," + \
            json.dumps(base64.b64encode(other).decode()) + f",{cell},{tolerance})"
        return self.evaluate(script)
