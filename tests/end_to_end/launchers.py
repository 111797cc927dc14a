"""Records jobs of eight ranks on simulated cards, started by common launchers.

    python3 launchers.py slurm|mpirun TIDEMARK NCCL_HOST SIMGPU_LIBRARIES MAKE_JOB

The same launchers then prepare a generated job on two tasks.

Exits with status 77, and says why, if the launcher is not installed.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import local_slurm  # noqa: E402

SKIPPED = 77
RANKS = 8
STEPS = 12
GUILTY = 5
EXTRA_MB = 16
HOSTS = 6


class Job:
    def __init__(self, folder, tidemark, host, simgpu, make_job):
        self.out = os.path.join(folder, "out")
        self.merged = os.path.join(folder, "job.tmk")
        self.tidemark = tidemark
        self.large = os.path.join(folder, "large")
        subprocess.run([make_job, self.large, str(HOSTS), "2000", "1", "-1", "1"], check=True)
        meeting = os.path.join(folder, "meeting")
        os.mkdir(meeting)
        self.program = [host, str(STEPS), "--extra", str(EXTRA_MB), "--guilty", str(GUILTY)]
        self.environment = {"LD_LIBRARY_PATH": simgpu, "SIMGPU_NCCL_DIR": meeting,
                            "SIMGPU_MEMORY_MB": "2048", "TIDEMARK_BUFFER_MB": "4"}

    def check(self):
        files = sorted(name for name in os.listdir(self.out) if name.endswith(".tmk"))
        assert len(files) == RANKS, files
        merge = subprocess.run([self.tidemark, "merge", self.out, "-o", self.merged],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert merge.returncode == 0, merge.stdout
        assert "missing" not in merge.stdout and "left out" not in merge.stdout, merge.stdout
        # The directory and the merged file give the same report.
        for path in (self.out, self.merged):
            self.check_report(json.loads(subprocess.check_output(
                [self.tidemark, "report", path, "--json"])))

    def check_report(self, report):
        assert report["source"]["kind"] == "job"
        assert [r["rank"] for r in report["ranks"]] == list(range(RANKS)), report["ranks"]
        assert all(r["world_size"] == RANKS for r in report["ranks"])
        compared = report["rank_comparison"]
        assert compared["highest"]["rank"] == GUILTY, compared["highest"]
        extra = compared["highest"]["bytes"] - compared["typical"]["bytes"]
        assert extra == STEPS * EXTRA_MB << 20, extra
        assert compared["diverged"]["rank"] == GUILTY
        assert compared["waiting"] == []
        assert len(compared["nccl"]) == RANKS
        assert {n["peak_bytes"] for n in compared["nccl"]} == {10 << 20}
        assert {n["user_bytes"] for n in compared["nccl"]} == {3 << 20}
        assert compared["clocks_checked"], "the ranks have collectives in common"

    def check_prepared(self, output):
        """Two tasks have prepared the hosts of the generated job, each its own."""
        lines = sorted(line for line in output.splitlines() if line.startswith("task "))
        assert lines == [f"task {i} of 2: {self.large}: {HOSTS // 2} traces prepared" for i in (0, 1)], output
        report = subprocess.run([self.tidemark, "report", self.large, "--detail", "1"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert report.returncode == 0 and "without a summary" not in report.stdout, report.stdout


def run_slurm(job, folder):
    absent = local_slurm.missing()
    if absent:
        print(f"skipped: no {', '.join(absent)}: install slurmctld, slurmd, slurm-client and munge")
        return SKIPPED
    slurm_folder = os.path.join(folder, "slurm")
    os.mkdir(slurm_folder)
    try:
        slurm = local_slurm.LocalSlurm(slurm_folder).__enter__()
    except local_slurm.CannotRun as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    with contextlib.ExitStack() as stack:
        stack.push(slurm)
        done = slurm.run(job.tidemark, "run", "-q", "-o", job.out, "--", "srun", "-n", str(RANKS),
                         *job.program, env=job.environment)
        assert done.returncode == 0, done.stdout + slurm.logs()
        assert done.stdout.count(f"of {RANKS}, profiler v6") == RANKS, done.stdout
        done = slurm.run("srun", "-n", "2", job.tidemark, "prepare", job.large)
        assert done.returncode == 0, done.stdout + slurm.logs()
        job.check_prepared(done.stdout)
    return 0


def run_mpirun(job, _):
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun: install openmpi-bin")
        return SKIPPED
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_plm="isolated",
                       OMPI_MCA_btl="self,vader",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",  # Open MPI 5
                       **job.environment)
    done = subprocess.run(["mpirun", "-n", str(RANKS), job.tidemark, "run", "-q", "-o", job.out,
                           "--", *job.program], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(f"of {RANKS}, profiler v6") == RANKS, done.stdout
    done = subprocess.run(["mpirun", "-n", "2", job.tidemark, "prepare", job.large], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    job.check_prepared(done.stdout)
    return 0


def main():
    launcher, tidemark, host, simgpu, make_job = sys.argv[1:6]
    # A short path: the address of a socket is limited to 108 bytes.
    with tempfile.TemporaryDirectory(prefix="tmk-", dir="/tmp") as folder:
        job = Job(folder, tidemark, host, simgpu, make_job)
        code = {"slurm": run_slurm, "mpirun": run_mpirun}[launcher](job, folder)
        if code == 0:
            job.check()
    return code


if __name__ == "__main__":
    sys.exit(main())
