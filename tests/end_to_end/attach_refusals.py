"""Checks processes that tidemark must not or cannot inject into.

    python3 attach_refusals.py TIDEMARK SIMGPU_LIBRARIES INJECTOR ATTACH_HOST VICTIM NAMED_CUDA

Each gives one clear line and exit status 2, and the process continues undisturbed. Cases this
machine cannot show (no other user, no mount namespace, no musl) are skipped with a message.
"""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import TIDEMARK, check, check_equal, finish  # noqa: E402

SIMGPU, LIBRARY, HOST, VICTIM, CUDA = (str(pathlib.Path(path).resolve())
                                       for path in sys.argv[2:7])
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
tmp = pathlib.Path(tempfile.mkdtemp())
tmp.chmod(0o755)
OUT = tmp / "anyone" / "out"  # Another user, too, may write beside it.
OUT.parent.mkdir()
OUT.parent.chmod(0o777)
env = {**os.environ, "TIDEMARK_CONTROL_DIR": str(tmp / "control"), "LD_LIBRARY_PATH": SIMGPU}
for name in ("CUDA_INJECTION64_PATH", "TIDEMARK_ARM", "TIDEMARK_OUT"):
    env.pop(name, None)
libc = ctypes.CDLL(None, use_errno=True)


def victim(*args, program=VICTIM, before=(), **more):
    """Loads what seems to be the CUDA driver, prints "ready", and "fine" when its input closes."""
    variables = {**env, "LD_PRELOAD": CUDA, **more}
    process = subprocess.Popen([*before, program, *args], stdin=subprocess.PIPE, text=True,
                               stdout=subprocess.PIPE, env=variables)
    process.stdout.readline()
    return process


def ends_well(process, what):
    out, _ = process.communicate()
    check_equal((process.returncode, out), (0, "fine\n"), f"{what}: the process continued")


def refuses(what, pid, says, before=(), library=LIBRARY):
    command = [*before, TIDEMARK, "attach", str(pid), "--library", library, "-o", str(OUT)]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    check_equal(result.returncode, 2, f"{what}: exit status ({result.stderr})")
    check_equal(len(result.stderr.splitlines()), 1, f"{what}: one line, not {result.stderr!r}")
    check(says in result.stderr, f"{what}: {result.stderr!r} says {says!r}")
    check(not OUT.exists(), f"{what}: no directory")


def skip(what, why):
    print(f"passed over: {what}: {why}")


def works(command):
    return subprocess.run(command, capture_output=True).returncode == 0


process = victim("idle")
check(libc.ptrace(0x4206, process.pid, None, None) == 0, "this test traces it")  # PTRACE_SEIZE
refuses("traced", process.pid, "is already traced by")
libc.ptrace(0x4207, process.pid, None, None)  # PTRACE_INTERRUPT
os.waitpid(process.pid, 0x40000000)  # __WALL
libc.ptrace(17, process.pid, None, None)  # PTRACE_DETACH
ends_well(process, "traced")

# A process that computes is examined until a thread reaches a safe system call.
process = victim("compute")
attaching = subprocess.Popen([TIDEMARK, "attach", str(process.pid), "--library", LIBRARY, "-o", str(OUT)],
                             env=env, stderr=subprocess.PIPE, text=True)
time.sleep(0.5)
process.kill()
process.wait()
_, said = attaching.communicate()
check_equal((attaching.returncode, said.count("\n")), (2, 1), f"exits meanwhile: {said!r}")
check("has ended" in said, f"exits meanwhile: {said!r} says so")

process = victim("idle", LD_PRELOAD="")
refuses("no CUDA", process.pid, "does not use CUDA")
ends_well(process, "no CUDA")

for how, says in (("trap", "seccomp"), ("errno", "executable memory")):
    process = victim("seccomp", how)
    refuses(f"seccomp: {how}", process.pid, says)
    ends_well(process, f"seccomp: {how}")

if os.geteuid() == 0 and works([*NOBODY, TIDEMARK, "version"]) and works([*NOBODY, "test", "-x", VICTIM]):
    process = victim("idle")
    refuses("another user", process.pid, "belongs to user root", before=NOBODY)
    ends_well(process, "another user")
    process = victim("undumpable", before=NOBODY)
    refuses("not dumpable", process.pid, "is not dumpable", before=NOBODY)
    ends_well(process, "not dumpable")
else:
    skip("another user, not dumpable", "needs root, setpriv, and files that others may run")

# A container: it cannot see the folder tidemark is installed in.
if os.geteuid() == 0 and works(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]):
    installed = tmp / "installed"
    installed.mkdir()
    shutil.copy(TIDEMARK, installed / "tidemark")
    shutil.copy(LIBRARY, installed / "libtidemark.so")
    process = subprocess.Popen(["unshare", "-m", "sh", "-c",
                                f'mount -t tmpfs none "{installed}" && exec "{HOST}" 2'],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    process.stdin.write("begin\n")
    process.stdin.flush()
    process.stdout.readline()
    refuses("a container", process.pid, "does not see", library=str(installed / "libtidemark.so"))
    out = tmp / "container"
    result = subprocess.run([installed / "tidemark", "attach", str(process.pid), "-q", "--for", "0.2s", "-o", out],
                            env=env, capture_output=True, text=True)
    check_equal((result.returncode, result.stderr), (0, ""), "a container: a copy is brought along")
    check_equal(len(list(out.glob("*.tmk"))), 1, "a container: the trace")
    copies = list(pathlib.Path(f"/tmp/tidemark-{os.geteuid()}").glob("libtidemark-*.so"))
    check(copies, "a container: the copy is where only its user may write")
    out_, _ = process.communicate()
    check_equal(process.returncode, 0, f"a container: the process continued ({out_})")
    for copy in copies:
        copy.unlink()
else:
    skip("a container", "needs root and mount namespaces")

musl = shutil.which("musl-gcc")
if musl:
    source = tmp / "program.c"
    source.write_text('#include <stdio.h>\nint main(void) {\n  puts("ready");\n  fflush(stdout);\n'
                      '  while (getchar() != EOF) {}\n  puts("fine");\n  return 0;\n}\n')
    for name, options, says in (("dynamic", [], "uses musl"), ("static", ["-static"], "statically linked")):
        program = tmp / f"musl-{name}"
        if not works([musl, *options, str(source), "-o", str(program)]) or not works([str(program)]):
            skip(f"musl, {name}", "such a program cannot be built or run here")
            continue
        process = victim(program=str(program), LD_PRELOAD="")
        refuses(f"musl, {name}", process.pid, says)
        ends_well(process, f"musl, {name}")
else:
    skip("musl", "there is no musl-gcc")

shutil.rmtree(tmp)
finish()
