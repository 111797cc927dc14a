"""Checks a job in which one rank of four ends early and the others wait until they are killed.

    python3 stuck_ranks.py TIDEMARK NCCL_HOST SIMGPU_LIBRARIES

Afterwards files of the job are removed and truncated: the reports still work and mention it.
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

RANKS = 4
GUILTY = 2
STEP = 5  # the failing rank joins the collectives 0 to 4
EXTRA_MB = 32
COMMUNICATOR = 0xABCDEF0123456789


def arrivals(meeting):
    """How many times ranks have joined a collective; the stand-in for NCCL counts in a file."""
    try:
        with open(os.path.join(meeting, f"comm-{COMMUNICATOR}"), "rb") as f:
            return struct.unpack("<Q", f.read(8))[0]
    except (FileNotFoundError, struct.error):
        return 0


def run_job(folder, tidemark, host, simgpu):
    meeting = os.path.join(folder, "meeting")
    os.mkdir(meeting)
    ranks = []
    for rank in range(RANKS):
        environment = dict(os.environ, LD_LIBRARY_PATH=simgpu, SIMGPU_NCCL_DIR=meeting,
                           SIMGPU_MEMORY_MB="2048", TIDEMARK_BUFFER_MB="4", RANK=str(rank),
                           WORLD_SIZE=str(RANKS), TIDEMARK_JOB="stuck")
        ranks.append(subprocess.Popen(
            [tidemark, "run", "-q", "-o", os.path.join(folder, "out"), "--", host, "10", "--extra",
             str(EXTRA_MB), "--die-at", str(STEP), "--guilty", str(GUILTY)],
            env=environment, stdout=subprocess.DEVNULL))
    assert ranks[GUILTY].wait(timeout=120) == 3
    # Every rank joins each collective once and the first one twice; then all but one join the next.
    expected = RANKS * (STEP + 1) + RANKS - 1
    deadline = time.monotonic() + 120
    while arrivals(meeting) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert arrivals(meeting) == expected, arrivals(meeting)
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(signal.SIGTERM)  # tidemark run passes it on
    for i, rank in enumerate(ranks):
        code = rank.wait(timeout=60)
        assert code == (3 if i == GUILTY else -signal.SIGTERM), (i, code)


def check(report, text):
    compared = report["rank_comparison"]
    (waiting,) = compared["waiting"]
    assert waiting["ranks"] == [0, 1, 3], waiting
    assert waiting["absent"] == [GUILTY], waiting
    assert waiting["function"] == "AllReduce" and waiting["name"] == "world", waiting
    assert waiting["sequence"] == STEP, waiting
    assert waiting["communicator"] == COMMUNICATOR, waiting
    assert compared["highest"]["rank"] == GUILTY, compared
    assert compared["diverged"]["rank"] == GUILTY, compared
    extra = compared["highest"]["bytes"] - compared["typical"]["bytes"]
    assert extra == STEP * EXTRA_MB << 20, extra
    assert f"in AllReduce number {STEP} of world for rank {GUILTY}" in text, text


def check_losses(tidemark, out, merged):
    """One rank's file is missing and another's is truncated: every report continues and says so."""
    files = sorted(name for name in os.listdir(out) if name.endswith(".tmk"))
    os.remove(os.path.join(out, files[3]))
    cut = os.path.join(out, files[1])
    os.truncate(cut, os.path.getsize(cut) - 200)
    done = subprocess.run([tidemark, "merge", out, "-o", merged], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    for path in (out, merged):
        text = subprocess.check_output([tidemark, "report", path], text=True,
                                       stderr=subprocess.DEVNULL)
        report = json.loads(subprocess.check_output([tidemark, "report", path, "--json"],
                                                    stderr=subprocess.DEVNULL))
        notes = report["source"]["notes"] + [n for r in report["ranks"] for n in r["loss"]["notes"]]
        for said in (done.stdout, text, "\n".join(notes)):
            assert "1 of 4 ranks missing: 3" in said, (path, said)
            assert f"{files[1]}: truncated" in said, (path, said)
        assert [r["rank"] for r in report["ranks"]] == [0, 1, 2], path


def main():
    tidemark, host, simgpu = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="tmk-") as folder:
        run_job(folder, tidemark, host, simgpu)
        out = os.path.join(folder, "out")
        merged = os.path.join(folder, "job.tmk")
        subprocess.check_call([tidemark, "merge", out, "-o", merged], stdout=subprocess.DEVNULL)
        for path in (out, merged):
            check(json.loads(subprocess.check_output([tidemark, "report", path, "--json"])),
                  subprocess.check_output([tidemark, "report", path], text=True))
        check_losses(tidemark, out, merged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
