"""A real Slurm on this machine alone: munge, a controller and several nodes, all in one directory.

It reads and writes nothing outside that directory and uses no system service.
"""
import os
import shutil
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue")


def missing():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class CannotRun(Exception):
    """Slurm's daemons cannot run here at all: slurmd needs a mounted cgroup file system."""


class LocalSlurm:
    def __init__(self, folder, nodes=2, tasks_per_node=4):
        self.folder = folder
        self.nodes = nodes
        self.tasks_per_node = tasks_per_node
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=os.path.join(folder, "slurm.conf"),
                                PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def __enter__(self):
        try:
            self._write_configuration()
            self._start_munge()
            self._start("slurmctld", "-D", "-c")
            for i in range(self.nodes):
                self._start("slurmd", "-D", "-N", f"node{i}", name=f"slurmd{i}")
            self._wait_until_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._wait_until_empty()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=3)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *command, **keywords):
        return subprocess.run(command, env=dict(self.environment, **keywords.pop("env", {})),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, **keywords)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), errors="replace") as f:
                    text += f"--- {name}\n" + "".join(f.readlines()[-15:])
        return text

    def _write_configuration(self):
        user = subprocess.run(["id", "-un"], stdout=subprocess.PIPE, text=True).stdout.strip()
        host = socket.gethostname().split(".")[0]
        ports = free_ports(self.nodes + 1)
        for name in ("state", "spool"):
            os.makedirs(os.path.join(self.folder, name))
        lines = [
            "ClusterName=tidemark",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.folder}/munge.socket",
            "CredType=cred/munge",
            "MpiDefault=none",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SchedulerType=sched/backfill",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SlurmdParameters=config_overrides",
            "SwitchType=switch/none",
            "ReturnToService=2",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool/%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdLogFile={self.folder}/slurmd-%n.log",
        ]
        for i in range(self.nodes):
            lines.append(f"NodeName=node{i} NodeHostname={host} NodeAddr=127.0.0.1 "
                         f"Port={ports[i + 1]} CPUs={self.tasks_per_node} State=UNKNOWN")
        lines.append(f"PartitionName=all Nodes=node[0-{self.nodes - 1}] Default=YES State=UP")
        with open(os.path.join(self.folder, "slurm.conf"), "w") as f:
            f.write("\n".join(lines) + "\n")

    def _start_munge(self):
        key = os.path.join(self.folder, "munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as f:
            f.write(os.urandom(128))
        # munged requires that nobody else owns a folder above its socket; a test's folder may not
        # comply.
        self._start("munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                    f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed")
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{self.folder}/munge.socket"):
            if time.monotonic() > deadline:
                raise RuntimeError("munged does not start\n" + self.logs())
            time.sleep(0.1)

    def _start(self, *command, name=None):
        log = open(os.path.join(self.folder, f"{name or command[0]}.out.log"), "w")
        self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log,
                                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))

    def _wait_until_empty(self):
        """Jobs must end first: the process that supervises a step outlives daemons it cannot reach."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            queue = self.run("squeue", "-h")
            if queue.returncode != 0 or not queue.stdout.strip():
                return
            time.sleep(0.2)

    def _wait_until_idle(self):
        deadline = time.monotonic() + 90
        state = ""
        while time.monotonic() < deadline:
            state = self.run("sinfo", "-h", "-N", "-o", "%t").stdout
            if state.split() == ["idle"] * self.nodes:
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                raise CannotRun("a Slurm daemon exited at startup:\n" + self.logs())
            time.sleep(0.5)
        raise RuntimeError(f"the nodes did not become idle: {state}\n" + self.logs())
