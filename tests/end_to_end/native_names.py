"""Checks names of native frames: in the trace after `run` and `recover`, on the fly in any reader.

    python3 native_names.py TIDEMARK SIMGPU_LIBRARIES INJECTOR SAMPLE SURVIVOR

SAMPLE is the sample program `leak`.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402

SIMGPU, INJECTOR, SAMPLE, SURVIVOR = sys.argv[2:6]
ENVIRONMENT = {**os.environ, "LD_LIBRARY_PATH": SIMGPU, "TIDEMARK_BUFFER_MB": "4"}


def stacks(path):
    """The frames of the report's stacks, one list per stack."""
    devices = [d for r in report(path)["ranks"] for d in r["devices"]]
    return [share["frames"] for d in devices for share in d["by_stack"]]


def named(path, what):
    found = stacks(path)
    check(found, f"{what}: there are stacks")
    for frames in found:
        check(any(f.startswith("main ") or "[inlined in main]" in f for f in frames),
              f"{what}: main is in {frames}")
        check(not any(".program+0x" in f for f in frames), f"{what}: no bare offset in {frames}")


def traced(directory, *command):
    environment = {**ENVIRONMENT, "CUDA_INJECTION64_PATH": INJECTOR, "TIDEMARK_OUT": str(directory)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


with tempfile.TemporaryDirectory() as scratch:
    place = pathlib.Path(scratch)
    program = place / "leak.program"
    shutil.copy(SAMPLE, program)

    # Written at the end of a run: the program may be gone afterwards.
    result = run("run", "-o", place / "run", "--", program, env=ENVIRONMENT)
    check_equal(result.returncode, 0, f"run: {result.stderr}")
    program.rename(place / "gone")
    named(place / "run", "after run, without the program")
    check("complete: nothing lost" in run("info", place / "run").stdout, "the trace is whole")

    # The same names everywhere a stack is shown.
    text = run("report", place / "run").stdout
    check("keep_result" in text and ".program+0x" not in text, f"the text report has names: {text}")
    run("export", place / "run", "--format", "csv", "-o", place / "csv")
    frames = "".join(p.read_text() for p in (place / "csv").glob("*frames*"))
    check("main" in frames and ".program+0x" not in frames, "the tables have names")
    (place / "gone").rename(program)

    # Without `run` the trace has no names: readers resolve them while the program exists.
    check_equal(traced(place / "plain", program).returncode, 0, "plain recording")
    named(place / "plain", "read where the program is")
    program.rename(place / "gone")
    check(any(".program+0x" in f for frames in stacks(place / "plain") for f in frames),
          "without the program there are offsets")
    (place / "gone").rename(program)
    result = run("recover", place / "plain")
    check("named" in result.stdout, f"recover says that it named frames: {result.stdout}")
    program.rename(place / "gone")
    named(place / "plain", "after recover, without the program")

    # Another program with the same name is not used.
    (place / "gone").rename(program)
    traced(place / "other", program)
    shutil.copy(SURVIVOR, program)
    for what in ("a reader", "recover"):
        check(any(".program+0x" in f for frames in stacks(place / "other") for f in frames),
              f"{what} does not ask another build")
        check_equal(run("recover", place / "other").returncode, 0, "recover")

    # `run` finishes the trace of a killed program and writes the names.
    killed = place / "killed.program"
    shutil.copy(SURVIVOR, killed)
    result = run("run", "-o", place / "killed", "--", killed, "kill", env=ENVIRONMENT)
    check(result.returncode in (-9, 137), f"run ends as its program: {result.returncode}")
    killed.unlink()
    info = run("info", place / "killed").stdout
    check("nothing that was recorded is lost" in info and "complete" not in info,
          f"the killed program's trace is whole as far as it goes: {info}")
    text = run("report", place / "killed").stdout
    check("the process was killed or did not exit normally" in text, f"the report says so: {text}")
    check("did not exit normally" in result.stderr, f"and so does run: {result.stderr}")
    run("export", place / "killed", "--format", "csv", "-o", place / "killed_csv")
    frames = "".join(p.read_text() for p in (place / "killed_csv").glob("*frames*"))
    check("main" in frames and ".program+0x" not in frames, "the killed program's frames have names")
finish()
