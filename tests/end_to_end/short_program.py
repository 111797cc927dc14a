"""A program that is over in milliseconds has a ledger, and its failures know the card. One that
cannot be started ends as it does in a shell.

    python3 short_program.py TIDEMARK SIMGPU_LIBRARIES RUN_OUT

RUN_OUT is the sample program `run_out`.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402

SIMGPU, RUN_OUT = sys.argv[2:4]

with tempfile.TemporaryDirectory() as scratch:
    place = pathlib.Path(scratch)
    (place / "cards").mkdir()
    environment = {**os.environ, "LD_LIBRARY_PATH": SIMGPU, "SIMGPU_DIR": str(place / "cards"),
                   "TIDEMARK_BUFFER_MB": "4"}
    result = run("run", "-o", place / "out", "--", RUN_OUT, env=environment)
    check_equal(result.returncode, 0, result.stderr)
    said = json.loads(result.stdout)
    device = report(place / "out")["ranks"][0]["devices"][0]
    check_equal(device["driver_peak"]["bytes"], said["taken_bytes"], "peak")
    check_equal([o["requested_bytes"] for o in device["oom"]], said["failed_bytes"][-len(device["oom"]):],
                "failed requests")
    check(not device["shared_card"], "NVML distinguished the processes")
    check_equal(sum(line["bytes"] for line in device["ledger_at_peak"]),
                device["ledger_device_used_bytes"], "the ledger adds up")

    # The summary is about the program that has just run, whatever else is in the directory.
    for limit in ("1", "2"):
        result = run("run", "-o", place / "shared", "--", RUN_OUT, limit, env=environment)
        check("tidemark: 1 process," in result.stderr, f"the {limit}. run: {result.stderr}")
    newest = max((place / "shared").glob("*.tmk"), key=lambda path: path.stat().st_mtime)
    check(f"tidemark report {newest}\n" in result.stderr, f"its trace is named: {result.stderr}")
    result = run("check", place / "shared", "--max-peak", "1TiB", "--allow-oom")
    check_equal(result.returncode, 2, f"two jobs without ranks: {result.stdout}")
    check("several jobs" in result.stderr, result.stderr)
    check("complete" not in run("info", place / "shared").stdout, "info of two jobs")
    ranked = {**environment, "RANK": "0", "WORLD_SIZE": "2", "TIDEMARK_JOB": "ranked"}
    run("run", "-q", "-o", place / "ranked", "--", RUN_OUT, env=ranked)
    run("run", "-q", "-o", place / "ranked", "--", RUN_OUT,
        env={**ranked, "RANK": "1"})
    result = run("run", "-o", place / "ranked", "--", RUN_OUT, env=environment)
    check("left out" not in result.stderr and "1 process," in result.stderr, result.stderr)

    # NCCL reads these variables. They are set before the program starts: setenv() in a running
    # program races with getenv() of its threads.
    result = run("run", "-q", "-o", place / "variables", "--", "env", env=environment)
    variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    check(variables["NCCL_PROFILER_PLUGIN"].endswith("/libtidemark.so"), "NCCL_PROFILER_PLUGIN")
    check_equal(variables.get("NCCL_SET_THREAD_NAME"), "1", "NCCL_SET_THREAD_NAME")

    # A program that does not use CUDA leaves no directory, but an existing one stays.
    check(not (place / "variables").exists(), "the directory for nothing is removed")
    (place / "existing").mkdir()
    result = run("run", "-o", place / "existing", "--", "true", env=environment)
    check_equal(result.returncode, 0, result.stderr)
    check("did not use CUDA" in result.stderr, f"the summary says so: {result.stderr!r}")
    check((place / "existing").exists(), "an existing directory stays")

    # Exit codes as in a shell: 127 for a program that is not found, 126 for one that cannot run.
    plain = place / "plain.txt"
    plain.write_text("no program\n")
    for program, code in (("no-such-program", 127), (place / "none", 127), (plain, 126), (place, 126)):
        result = run("run", "-o", place / "not_started", "--", program, env=environment)
        check_equal(result.returncode, code, f"{program}: exit status")
        lines = result.stderr.splitlines()
        check_equal(len(lines), 1, f"{program}: one line on stderr, not {lines}")
        check(f"cannot run '{program}'" in result.stderr, f"{program} is named: {result.stderr!r}")
        check(not (place / "not_started").exists(), f"{program}: no empty directory is left")
finish()
