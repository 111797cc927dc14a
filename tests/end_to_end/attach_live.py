"""Checks `attach --live` on a working job, and that its growing trace can be read meanwhile.

    python3 attach_live.py TIDEMARK SIMGPU_LIBRARIES INJECTOR ATTACH_HOST [VIEWER]

The report and, if given, the viewer read the trace several times while it is recorded; each time
they must see more than before.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import TIDEMARK, check, check_equal, finish, report  # noqa: E402

SIMGPU, LIBRARY, HOST = sys.argv[2:5]
VIEWER = sys.argv[5] if len(sys.argv) > 5 else None
tmp = pathlib.Path(tempfile.mkdtemp())
out = tmp / "out"
env = {**os.environ, "TIDEMARK_CONTROL_DIR": str(tmp / "control"), "LD_LIBRARY_PATH": SIMGPU}
for name in ("CUDA_INJECTION64_PATH", "TIDEMARK_ARM", "TIDEMARK_OUT"):
    env.pop(name, None)

host = subprocess.Popen([HOST, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def tell(line):
    host.stdin.write(line + "\n")
    host.stdin.flush()
    return host.stdout.readline()


def shown(line):
    """The process's bytes in a line of the view."""
    words = line.split()
    return float(words[words.index("process") + 1])


def look(number):
    """What the growing trace shows now: the driver's peak, and the viewer's picture."""
    picture = tmp / f"{number}.png"
    if VIEWER:
        drawn = subprocess.run([VIEWER, trace, "--screenshot", picture, "--panel", "timeline", "--size", "640x360"],
                               capture_output=True, text=True)
        check_equal(drawn.returncode, 0, f"look {number}: the viewer draws ({drawn.stderr})")
    peak = report(trace)["ranks"][0]["devices"][0]["driver_peak"]["bytes"]
    return peak, picture.read_bytes() if VIEWER else None


tell("begin")
live = subprocess.Popen([TIDEMARK, "attach", str(host.pid), "--library", LIBRARY, "--live", "-o", str(out)],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
first = live.stdout.readline()
check("cuda:0" in first and "card" in first, f"the view: {first!r}")
trace, = out.glob("*.tmk")
tell("alloc 100")
time.sleep(1.5)  # the trace is written once a second
before = look(1)
tell("alloc 200")
time.sleep(1.5)
after = look(2)
check(before[0] >= 100 << 20, f"the first look sees 100 MiB: {before[0]}")
check_equal(after[0] - before[0] >= 199 << 20, True, f"the second look sees 200 MiB more: {after[0]}")
if VIEWER:
    check(before[1] != after[1], "the viewer's picture has grown")
live.send_signal(signal.SIGINT)
lines, errors = live.communicate()
check_equal(live.returncode, 0, f"Ctrl-C ends it ({errors})")
check(shown(lines.splitlines()[-1]) >= shown(first) + 299, f"the view has grown: {first!r} {lines!r}")
check_equal(list(out.glob("*.ring")), [], "the trace is finished")
last = host.communicate()[0]
check_equal((host.returncode, last.startswith("sum ")), (0, True), "the job continued")

shutil.rmtree(tmp)
finish()
