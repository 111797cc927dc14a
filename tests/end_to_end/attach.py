"""Checks ps, attach, detach and snapshot: what they send to a process, and what they refuse.

    python3 attach.py TIDEMARK SIMGPU_LIBRARIES FAKE_GUEST

A fake guest stands in for libtidemark.so, so nothing is recorded.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import DATA, TIDEMARK, check, check_equal, finish, run  # noqa: E402

SIMGPU, GUEST = sys.argv[2:4]
tmp = pathlib.Path(tempfile.mkdtemp())
control = tmp / "control"
log = tmp / "requests"
env = {**os.environ, "TIDEMARK_CONTROL_DIR": str(control), "LD_LIBRARY_PATH": SIMGPU,
       "FAKE_GUEST_LOG": str(log), "RANK": "3", "WORLD_SIZE": "4", "TIDEMARK_JOB": "one",
       "FAKE_GUEST_TRACE": str(DATA / "scenarios" / "healthy.bad.tmk")}


def victim(code="ctypes.CDLL('libcuda.so.1')", **more):
    """A process that waits until its standard input closes."""
    program = f"import ctypes, sys; {code}; print('ready', flush=True); print(sys.stdin.read())"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True,
                               stdout=subprocess.PIPE, env={**env, **more})
    process.stdout.readline()
    return process


def ends_well(process, what):
    out, _ = process.communicate("unharmed")
    check_equal((process.returncode, out), (0, "unharmed\n"), f"{what}: the process continued")


def refuses(what, *args, says):
    result = run(*args, env=env)
    check_equal(result.returncode, 2, f"{what}: exit status")
    lines = [line for line in result.stderr.splitlines() if "warning" not in line]
    check_equal(len(lines), 1, f"{what}: one line, not {lines}")
    check(says in result.stderr, f"{what}: {result.stderr!r} says {says!r}")


def listed(pid):
    everything = json.loads(run("ps", "--json", env=env).stdout)["processes"]
    return next((p for p in everything if p["pid"] == pid), None)


for command in ("ps", "attach", "detach", "snapshot", "view"):
    result = run(command, "--help")
    check("Example" in result.stdout, f"{command} --help has an example")

# A refused request leaves the process as it was.
refuses("no process named", "attach", says="tidemark ps")
refuses("no such process", "attach", 2 ** 22 + 1, says="there is no process")
refuses("a bad time", "attach", os.getpid(), "--for", "soon", says="--for")
plain = victim("pass")
refuses("no CUDA", "attach", plain.pid, "--library", GUEST, says="does not use CUDA")
refuses("not recorded", "detach", plain.pid, says="not being recorded")
check_equal(listed(plain.pid), None, "ps lists CUDA programs only")
ends_well(plain, "no CUDA")

# A process that was started without tidemark.
process = victim()
entry = listed(process.pid)
check_equal((entry["state"], entry["rank"], entry["job"]), ("attachable", 3, "one"), "ps before")
refuses("no library there", "attach", process.pid, "--library", "/no/such.so", says="does not see")
out = tmp / "out"
result = run("attach", process.pid, "--library", GUEST, "--for", "0.2s", "-o", out,
             "--stacks", "native", "--no-kernels", env=env)
check_equal(result.returncode, 0, f"attach: exit status ({result.stderr})")
check("recording process" in result.stderr and "rank 3" in result.stderr, "attach says whom")
check(f"tidemark report {out}\n" in result.stderr, "attach says where")
requests = log.read_text().splitlines()
start = next(r for r in requests if r.startswith("start"))
check_equal(set(start.split()[1:]),
            {f"out={out}", "stacks=native", "kernels=0", "for_ms=10200"}, "start's settings")
check(any(r == "stop" for r in requests), "the capture was ended")
shutil.rmtree(out)

# Now it is armed: no ptrace needed.
entry = listed(process.pid)
check_equal((entry["state"], entry["job"]), ("armed", "a job"), "ps afterwards")
check_equal(entry["devices"][0]["process_bytes"], 500 << 20, "ps: bytes")
check("armed" in run("ps", env=env).stdout, "ps as text")
result = run("attach", process.pid, "-o", out, env=env)
check_equal(result.returncode, 0, f"attach without --for: exit status ({result.stderr})")
check(f"tidemark detach {process.pid}" in result.stderr, "attach says how to end it")
check_equal(listed(process.pid)["state"], "recording", "ps while recording")
refuses("twice", "attach", process.pid, "-o", tmp / "other", says="recorded already")
check(not (tmp / "other").exists(), "a directory that was made for nothing is removed")
(tmp / "mine").mkdir()
refuses("twice", "attach", process.pid, "-o", tmp / "mine", says="recorded already")
check((tmp / "mine").exists(), "a directory of the user stays")
result = run("detach", "--job", "a job", env=env)
check_equal((result.returncode, result.stdout), (0, f"{out}/pid{process.pid}.tmk\n"), "detach")

# The live view, ended with Ctrl-C.
shutil.rmtree(out)
viewing = subprocess.Popen([TIDEMARK, "attach", str(process.pid), "--live", "-o", str(out)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
line = viewing.stdout.readline()
for text in ("rank 3", "cuda:0", "[######====----..........]", "allocated 250.0 MiB",
             "card 600.0 MiB of 1000.0 MiB"):
    check(text in line, f"--live says {text!r}: {line!r}")
viewing.send_signal(signal.SIGINT)
_, errors = viewing.communicate()
check_equal(viewing.returncode, 0, f"--live ended by Ctrl-C ({errors})")
check_equal(listed(process.pid)["state"], "armed", "Ctrl-C ended the capture")

snapshot = tmp / "now.tmk"
beside = pathlib.Path(f"{snapshot}.partial")  # of the user
beside.mkdir()
(beside / "notes.txt").write_text("mine")
result = run("snapshot", process.pid, "-o", snapshot, env=env)
check_equal((result.returncode, result.stdout), (0, f"{snapshot}\n"), f"snapshot {result.stderr}")
check_equal(sorted(p.name for p in tmp.glob("now.tmk*")), ["now.tmk", "now.tmk.partial"],
            "only the snapshot")
check_equal([p.name for p in beside.iterdir()], ["notes.txt"], "a directory of the user stays")
before = log.read_text()
fifo = tmp / "fifo"
os.mkfifo(fifo)
refuses("a snapshot onto a FIFO", "snapshot", process.pid, "-o", fifo, says="is not a regular file")
check(fifo.is_fifo(), "the FIFO stays")
refuses("a snapshot onto a directory", "snapshot", process.pid, "-o", tmp, says="is a directory")
refuses("a snapshot into no directory", "snapshot", process.pid, "-o", tmp / "absent" / "x.tmk",
        says="No such file or directory")
check(not (tmp / "absent").exists(), "no directory is made for a snapshot")
check("snapshot" not in log.read_text()[len(before):], "the process was not asked")
ends_well(process, "attached")

# A socket that a killed process left.
gone = victim()
run("attach", gone.pid, "--library", GUEST, "-o", tmp / "gone", env=env)
check((control / f"{gone.pid}.sock").exists(), "the socket is there")
gone.kill()
gone.wait()
refuses("a killed process", "detach", gone.pid, says="there is no process")
run("ps", env=env)
check(not (control / f"{gone.pid}.sock").exists(), "ps removes the name it left")

shutil.rmtree(tmp)
finish()
