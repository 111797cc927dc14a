"""Talks to a process over its control socket (proto/control.h)."""
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse


class Refused(Exception):
    """The process answered with an error."""


def ask(path, verb, **values):
    """Sends one command; returns the values of its reply."""
    line = " ".join([verb, *(f"{key}={urllib.parse.quote(str(value), safe='/')}"
                             for key, value in values.items())])
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(120)
        client.connect(str(path))
        client.sendall(line.encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            piece = client.recv(65536)
            if not piece:
                break
            reply += piece
    word, _, rest = reply.decode().rstrip("\n").partition(" ")
    if word != "ok":
        raise Refused(rest)
    return {key: urllib.parse.unquote(value)
            for key, _, value in (pair.partition("=") for pair in rest.split())}


def wait_for(condition, seconds=60):
    """Waits until the condition is true; returns its last value."""
    end = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer


class Host:
    """An armed program that executes the commands on its stdin."""

    def __init__(self, command, control, libraries, injector, **environment):
        self.control = pathlib.Path(control)
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("TIDEMARK", "XDG_RUNTIME"))}
        variables.update(LD_LIBRARY_PATH=str(libraries), CUDA_INJECTION64_PATH=str(injector),
                         TIDEMARK_ARM="1", TIDEMARK_CONTROL_DIR=str(self.control),
                         TIDEMARK_BUFFER_MB="4")
        variables.update(environment)
        variables = {name: value for name, value in variables.items() if value is not None}
        self.process = subprocess.Popen([str(word) for word in command], env=variables, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.pid = self.process.pid

    @property
    def socket(self):
        return self.control / f"{self.pid}.sock"

    def say(self, line):
        """Writes a line to its stdin; returns the line it answers."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def ready(self):
        answer = self.say("begin")
        assert answer == "ready", answer + self.process.stderr.read()
        assert wait_for(self.socket.exists), "no socket"
        return self

    def ask(self, verb, **values):
        return ask(self.socket, verb, **values)

    def end(self):
        """Returns what it printed last, its status, and what it wrote on stderr."""
        output, errors = self.process.communicate(timeout=120)
        return output.strip(), self.process.returncode, errors

    # What /proc says about it.
    def threads(self):
        names = []
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            try:
                names.append((task / "comm").read_text().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has just ended
        return sorted(names)

    def is_stopped(self):
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
                   for task in tasks)

    def files(self):
        names = []
        for link in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                names.append(os.readlink(link))
            except FileNotFoundError:
                pass  # it has just been closed
        return sorted(names)

    def maps(self):
        return pathlib.Path(f"/proc/{self.pid}/maps").read_text()

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def memory(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return {"resident_kib": self.resident_kib(), "mappings": self.maps().count("\n"),
                "address_kib": int(re.search(r"VmSize:\s+(\d+)", status)[1])}

    def cpu_ticks(self, name):
        """Processor time of the thread of that name."""
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                return int(fields[11]) + int(fields[12])
        raise AssertionError(f"no thread {name}")

    def switches(self, name):
        """Voluntary and involuntary context switches of the thread of that name."""
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                return [int(count) for count in
                        re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())]
        raise AssertionError(f"no thread {name}")


class HostTest(unittest.TestCase):
    """A test with a folder of its own and a cache that all tests of its class share. The programs
    that it starts end with it."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.cache = pathlib.Path(cls.shared.name) / "cache"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "out"
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            if process.stdin is not None and process.stdin.closed:
                process.stdin = None  # communicate() would flush it
            process.communicate()
        self.folder.cleanup()

    def host(self, command, libraries, injector, **environment):
        host = Host(command, self.path / "control", libraries, injector,
                    **{"XDG_CACHE_HOME": str(self.cache), "CXX": None, **environment})
        self.processes.append(host.process)
        return host
