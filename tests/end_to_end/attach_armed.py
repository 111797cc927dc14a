"""Attaches to programs that run armed: checks what that costs, starts, leaves behind and survives.

    python3 attach_armed.py TIDEMARK SIMGPU_LIBRARIES INJECTOR ATTACH_HOST [TEST …]

TIDEMARK_ATTACH_CYCLES and TIDEMARK_ATTACH_PROCESSES make the long tests longer.
"""
import csv
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from control_client import Host, Refused, ask, wait_for  # noqa: E402

TIDEMARK, LIBRARIES, INJECTOR, HOST = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
CYCLES = int(os.environ.get("TIDEMARK_ATTACH_CYCLES", 20))
PROCESSES = int(os.environ.get("TIDEMARK_ATTACH_PROCESSES", 50))
MIB = 1 << 20
# After this many captures the process holds all it keeps. Later changes come from malloc and the C
# library: heaps of threads, a stack kept for the next one. A capture that is not freed would add 59
# MiB of address space.
SETTLED = min(CYCLES // 2, 20)
# A thread that finds all arenas of malloc busy makes another: 64 MiB of addresses, two mappings.
SLACK = {"resident_kib": 1024, "mappings": 6, "address_kib": 65536 + 16384}
SANITIZER = os.environ.get("SANITIZED")  # slow, and freed memory is kept


class Attach(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.control = self.path / "control"
        self.out = self.path / "out"
        self.hosts = []

    def tearDown(self):
        for host in self.hosts:
            host.process.kill()
            host.process.communicate()
        self.folder.cleanup()

    def host(self, threads=0, **environment):
        host = Host([HOST, threads], self.control, LIBRARIES, INJECTOR, **environment)
        self.hosts.append(host)
        return host

    def started(self, threads=0, **environment):
        return self.host(threads, **environment).ready()

    def report(self, trace):
        done = subprocess.run([TIDEMARK, "report", trace, "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout), done.stderr

    def plain_sum(self, threads):
        done = subprocess.run([HOST, str(threads)], input="begin\n", text=True, check=True,
                              stdout=subprocess.PIPE, env={"LD_LIBRARY_PATH": str(LIBRARIES)})
        return done.stdout.split("\n")[1]

    def test_an_armed_process_does_nothing(self):
        host = self.started()
        threads = ["attach_host"] * (2 if SANITIZER == "thread" else 1)  # it has one of its own
        self.assertEqual(host.threads(), [*threads, "tidemark-ctl"])
        for library in ("libcupti", "libnvidia-ml"):
            self.assertNotIn(library, host.maps())
        self.assertEqual([name for name in host.files() if "out" in name], [])
        self.assertEqual(oct(self.control.stat().st_mode & 0o777), "0o700")
        # `tidemark ps` of other tests contacts every process of the machine. With its directory out
        # of the way nobody can connect, so that whatever wakes the thread now comes from itself.
        hidden = self.path / "hidden"
        self.control.rename(hidden)
        time.sleep(0.1)
        before = host.switches("tidemark-ctl")
        time.sleep(1)
        self.assertEqual(host.switches("tidemark-ctl"), before)
        hidden.rename(self.control)
        self.assertEqual(host.ask("status")["state"], "armed")
        status = pathlib.Path(f"/proc/{host.pid}/status").read_text()
        task = next(t for t in pathlib.Path(f"/proc/{host.pid}/task").iterdir()
                    if (t / "comm").read_text().strip() == "tidemark-ctl")
        blocked = int([line for line in (task / "status").read_text().splitlines()
                       if line.startswith("SigBlk")][0].split()[1], 16)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
            self.assertTrue(blocked >> (number - 1) & 1, status)
        self.assertEqual(host.end(), ("sum 0", 0, ""))
        self.assertFalse(self.out.exists())
        self.assertEqual(list(self.control.iterdir()), [])

    def test_a_hanging_cupti_leaves_the_process_in_reach(self):
        host = self.started(SIMGPU_HANG="subscribe")
        started = host.ask("start", out=self.out)
        self.assertEqual(host.ask("status")["state"], "recording")
        host.ask("stop")
        report, _ = self.report(started["trace"])
        self.assertIn("did not answer within 2 s", json.dumps(report))
        with self.assertRaisesRegex(Refused, "has not answered since the last"):
            host.ask("start", out=self.out)
        self.assertEqual(host.ask("status")["state"], "armed")
        self.assertEqual(host.end()[:2], ("sum 0", 0))

    def test_a_detach_that_could_not_wait_leaves_nothing_behind(self):
        hangs = self.path / "hangs"
        host = self.started(2, SIMGPU_HANG=f"nvml@{hangs}")
        host.ask("start", out=self.out)
        hangs.write_text("")
        time.sleep(0.5)  # a reading hangs by now
        host.ask("stop")
        hangs.unlink()
        self.assertTrue(wait_for(lambda: self.starts(host)))
        time.sleep(0.5)
        report, _ = self.report(host.ask("stop")["trace"])
        self.assertNotIn("another tool", json.dumps(report))
        self.assertGreater(report["ranks"][0]["devices"][0]["driver_peak"]["bytes"], 0)
        host.end()

    def starts(self, host):
        try:
            return host.ask("start", out=self.out)
        except Refused:
            return None

    def test_a_hanging_nvml_leaves_the_process_in_reach(self):
        host = self.started(SIMGPU_HANG="nvml")
        for _ in range(2):
            with self.assertRaisesRegex(Refused, "did%20not%20answer|did not answer"):
                host.ask("live")
            self.assertEqual(host.ask("status")["state"], "armed")
        listed = subprocess.run([TIDEMARK, "ps"], text=True, check=True, stdout=subprocess.PIPE,
                                timeout=120, env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(
                                    self.control)))
        self.assertIn(str(host.pid), listed.stdout)
        self.assertEqual(host.end(), ("sum 0", 0, ""))

    def test_status_identifies_the_process(self):
        host = self.started(RANK="3", WORLD_SIZE="8", LOCAL_RANK="1", TORCHELASTIC_RUN_ID="seven")
        status = host.ask("status")
        self.assertEqual({key: status.get(key) for key in
                          ("v", "pid", "state", "captures", "rank", "local_rank", "world", "job")},
                         {"v": "1", "pid": str(host.pid), "state": "armed", "captures": "0",
                          "rank": "3", "local_rank": "1", "world": "8", "job": "seven"})
        self.assertIn("attach_host 0", status["command"])
        self.assertNotIn("trace", status)
        started = host.ask("start", out=self.out)
        self.assertEqual(pathlib.Path(started["trace"]).name[:6], "rank3-")
        self.assertEqual(host.ask("status")["state"], "recording")
        with self.assertRaisesRegex(Refused, "already recording"):
            host.ask("start", out=self.out)
        host.ask("stop")
        with self.assertRaisesRegex(Refused, "nothing is being recorded"):
            host.ask("stop")
        for words in ("begone", "", "start stacks=sideways", "start for_ms=soon"):
            verb, _, pair = words.partition(" ")
            key, _, value = pair.partition("=")
            with self.assertRaises(Refused):
                host.ask(verb, **({key: value} if key else {}))
        self.assertEqual(host.ask("status")["state"], "armed")

    def test_an_unwritable_directory_can_be_replaced(self):
        host = self.started()
        self.path.joinpath("file").write_text("")
        for _ in range(2):
            with self.assertRaisesRegex(Refused, "cannot create the directory"):
                host.ask("start", out=self.path / "file" / "out")
        host.ask("start", out=self.out)
        host.ask("stop")

    def test_many_captures_leave_the_job_and_the_process_as_they_were(self):
        threads = 16
        host = self.started(threads)
        expected = self.plain_sum(threads)
        baseline = settled = None
        whole = 0
        for cycle in range(CYCLES):
            started = host.ask("start", out=self.out)
            self.assertEqual(int(started["capture"]), cycle + 1)
            # Some are long enough for rounds of the tasks, others are not.
            time.sleep(0.15 if cycle % 5 == 0 else 0.01)
            ended = host.ask("stop")
            # On a busy machine the writer may not get the processor in time: the trace says so.
            loss = self.report(ended["trace"])[0]["ranks"][0]["loss"]
            self.assertEqual(int(ended["dropped"]), loss["events_dropped"])
            whole += ended["dropped"] == "0"
            self.assertGreater(int(ended["rows"]), 0)
            if cycle == 0:  # CUPTI has its own thread from now on
                time.sleep(0.2)
                baseline = host.threads(), host.files()
            if cycle + 1 == SETTLED:
                settled = host.memory()
            if cycle + 1 in (SETTLED, CYCLES) or (cycle + 1) % 100 == 0:
                print(cycle + 1, host.memory(), len(host.threads()), len(host.files()), flush=True)
        self.assertGreater(whole, 0)
        self.assertTrue(wait_for(lambda: (host.threads(), host.files()) == baseline),
                        f"{host.threads()} {host.files()} were {baseline}")
        if not SANITIZER:
            for what, size in host.memory().items():
                self.assertLessEqual(size, settled[what] + SLACK[what], f"{what}: was {settled}")
        self.assertEqual(len(list(self.out.glob("*.tmk"))), CYCLES)
        self.assertEqual(list(self.out.glob("*.ring")), [])
        output, status, errors = host.end()
        self.assertEqual((output, status, errors), (expected, 0, ""))

        # One process in the directory, however many captures it had.
        report, warnings = self.report(self.out)
        self.assertEqual(len(report["ranks"]), 1)
        self.assertIn("was captured again later", warnings)

    def test_what_finds_no_space_is_counted(self):
        # More threads than the smallest buffer has chunks (256), and each holds one.
        host = self.started(300, TIDEMARK_BUFFER_MB="4")
        host.ask("start", out=self.out)

        def lost_some():
            try:
                return int(host.ask("live")["lost"]) > 0
            except Refused:  # so many threads in the driver: its answer takes too long
                return False

        self.assertTrue(wait_for(lost_some))
        ended = host.ask("stop")
        self.assertEqual(host.end()[1:], (0, ""))
        lost = int(ended["dropped"])
        self.assertGreater(lost, 0)
        told = subprocess.run([TIDEMARK, "info", ended["trace"]], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        self.assertIn(f"  ! {lost:,} events dropped while recording: driver events\n", told)

    def test_cupti_is_released(self):
        host = self.started(2)
        host.ask("start", out=self.out)
        self.assertIn("libcupti", host.maps())
        host.ask("stop")
        for _ in range(2):
            host.ask("start", out=self.out)
            host.ask("stop")
        traces = sorted(self.out.glob("*.tmk"))
        for trace in traces:
            info = subprocess.run([TIDEMARK, "info", trace], stdout=subprocess.PIPE, text=True,
                                  check=True).stdout
            self.assertNotIn("holds CUPTI", info)

    def test_earlier_memory_is_in_the_ledger(self):
        host = self.started()
        host.say("alloc 100")
        host.say("alloc 200")
        host.ask("start", out=self.out)
        host.say("alloc 50")
        time.sleep(0.4)
        host.say("free")  # 50 MiB, known
        host.say("free")  # 200 MiB, from before
        time.sleep(0.5)
        host.say("alloc 30")
        time.sleep(0.4)
        trace = host.ask("stop")["trace"]
        table = self.path / "csv"
        subprocess.run([TIDEMARK, "export", trace, "--format", "csv", "-o", table], check=True,
                       stdout=subprocess.DEVNULL)
        ledger = {line["owner"]: line["bytes"] for line in
                  self.report(trace)[0]["ranks"][0]["devices"][0]["ledger_at_peak"]}
        with open(table / "samples.csv", encoding="utf-8") as file:
            used = {int(row["value"]) for row in csv.DictReader(file)
                    if row["kind"] == "device_used"}
        self.assertIn(sum(ledger.values()), used)
        self.assertEqual(max(used) - min(used), 250 * MIB)
        self.assertGreaterEqual(ledger["pre_attach"], 300 * MIB)
        self.assertNotIn("context", ledger)
        self.assertEqual(ledger.get("unexplained", 0), 0)
        self.assertTrue(all(value >= 0 for value in ledger.values()), ledger)

    def test_memory_in_a_context_of_the_programs_own_is_older_too(self):
        host = self.started(ATTACH_OWN_CONTEXT="1")
        host.say("alloc 300")
        armed = host.ask("live")
        self.assertEqual(armed["devices"], "1")
        self.assertGreaterEqual(int(armed["d0_process"]), 300 * MIB)
        host.ask("start", out=self.out)
        host.say("alloc 50")
        time.sleep(0.4)
        self.assertEqual(int(host.ask("live")["d0_by_program"]), 50 * MIB)
        trace = host.ask("stop")["trace"]
        device = self.report(trace)[0]["ranks"][0]["devices"][0]
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        self.assertGreaterEqual(ledger["pre_attach"], 300 * MIB)
        self.assertNotIn("context", ledger)
        self.assertGreaterEqual(device["driver_before_recording_bytes"], 300 * MIB)
        done = subprocess.run([TIDEMARK, "check", trace, "--max-peak", "100MiB"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 2)

    def test_a_capture_ends_when_it_was_asked_to(self):
        host = self.started()
        host.ask("start", out=self.out, for_ms=200)
        self.assertTrue(wait_for(lambda: host.ask("status")["state"] == "armed"))
        self.assertEqual(list(self.out.glob("*.ring")), [])

    def test_a_snapshot_is_a_trace_of_one_moment(self):
        host = self.started()
        host.say("alloc 64")
        ended = host.ask("snapshot", out=self.out)
        self.assertNotIn("libcupti", host.maps())
        device = self.report(ended["trace"])[0]["ranks"][0]["devices"][0]
        self.assertGreaterEqual(device["device_used_peak"]["bytes"], 64 * MIB)

    def test_live_reports_the_cards(self):
        host = self.started()
        before = host.ask("live")
        host.say("alloc 128")
        after = host.ask("live")
        self.assertEqual((after["devices"], after["d0"], after["state"]), ("1", "0", "armed"))
        for key in ("d0_used", "d0_process"):
            self.assertEqual(int(after[key]) - int(before[key]), 128 * MIB)
        self.assertGreater(int(after["d0_total"]), int(after["d0_used"]))
        self.assertFalse([name for name in host.files() if "nvidia" in name])

    def test_another_user_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to change to another user")
        # The directory keeps other users out; the server does so too, in case the directory does
        # not.
        host = self.started()
        os.chmod(self.path, 0o755)
        os.chmod(self.control, 0o755)
        os.chmod(host.socket, 0o777)
        code = ("import os,socket,sys\nos.setgid(65534); os.setuid(65534)\n"
                "s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                "print(s.recv(1000).decode())")
        done = subprocess.run([sys.executable, "-c", code, str(host.socket)],
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertIn("error only root and the user", done.stdout)
        self.assertEqual(host.ask("status")["state"], "armed")

    def test_a_directory_of_others_is_not_used(self):
        self.control.mkdir(mode=0o777)
        os.chmod(self.control, 0o777)
        host = self.host()
        self.assertEqual(host.say("begin"), "ready")
        select.select([host.process.stderr], [], [], 60)  # its thread reports this at some point
        output, status, errors = host.end()
        self.assertEqual((output, status), ("sum 0", 0))
        self.assertIn("cannot open a control socket in", errors)
        self.assertEqual(errors.count("\n"), 1)
        self.assertEqual(list(self.control.iterdir()), [])

    def test_default_directories(self):
        runtime = self.path / "run"
        runtime.mkdir(mode=0o700)
        for directory, expected in ((runtime, runtime / "tidemark"),
                                    (self.path / "none", pathlib.Path(f"/tmp/tidemark-{os.geteuid()}"))):
            host = self.host(TIDEMARK_CONTROL_DIR=None, XDG_RUNTIME_DIR=str(directory))
            host.control = expected
            host.ready()
            self.assertEqual(host.ask("status")["pid"], str(host.pid))
            self.assertEqual(host.end()[1:], (0, ""))

    def test_stale_names_and_killed_processes(self):
        host = self.started()
        host.ask("start", out=self.out)
        host.process.kill()
        host.process.wait()
        self.assertTrue(host.socket.exists())
        with self.assertRaises(ConnectionRefusedError):
            host.ask("status")
        self.assertEqual(len(self.report(self.out)[0]["ranks"]), 1)
        # A process with the same pid takes over the name.
        code = ("import os,socket,sys\ns=socket.socket(socket.AF_UNIX)\n"
                "s.bind(f'{sys.argv[1]}/{os.getpid()}.sock'); s.close()\n"
                "os.execv(sys.argv[2], sys.argv[2:])")
        heir = Host([sys.executable, "-c", code, self.control, HOST, 0], self.control, LIBRARIES,
                    INJECTOR)
        self.hosts.append(heir)
        self.assertEqual(heir.say("begin"), "ready")
        self.assertTrue(wait_for(lambda: self.works(heir)))
        self.assertEqual(heir.end()[1:], (0, ""))

    def test_forked_children(self):
        host = self.host()
        child = int(host.say("fork_first"))
        self.assertEqual(host.process.stdout.readline().strip(), "ready")
        self.assertTrue(wait_for((self.control / f"{child}.sock").exists))
        self.assertTrue(wait_for(host.socket.exists))
        for pid in (child, host.pid):
            self.assertEqual(ask(self.control / f"{pid}.sock", "status")["pid"], str(pid))
        host.ask("start", out=self.out)
        quiet = int(host.say("fork_quiet"))
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{quiet}/fd").iterdir()}
        own = set(host.files())
        self.assertFalse({name for name in links & own if name.startswith("socket:")})
        self.assertFalse([name for name in links if str(self.out) in name])
        host.ask("stop")
        ask(self.control / f"{child}.sock", "start", out=self.out)
        ask(self.control / f"{child}.sock", "stop")
        self.assertEqual(host.end()[1:], (0, ""))
        self.assertEqual(len(list(self.out.glob("*.tmk"))), 2)

    def test_clients_that_misbehave(self):
        host = self.started()
        endless = socket.socket(socket.AF_UNIX)
        endless.connect(str(host.socket))
        endless.settimeout(60)
        try:
            endless.sendall(b"x" * 40000)
            self.assertEqual(endless.recv(100), b"")
        except (BrokenPipeError, ConnectionResetError):
            pass
        idle = [socket.socket(socket.AF_UNIX) for _ in range(7)]
        for client in idle:
            client.connect(str(host.socket))
        half = idle[0]
        half.sendall(b"sta")
        self.assertEqual(host.ask("status")["state"], "armed")
        half.sendall(b"tus\nstatus\n")
        self.assertTrue(half.recv(10000).startswith(b"ok v=1"))
        more = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for client in more:
            client.connect(str(host.socket))
        self.assertTrue(wait_for(lambda: b"too many" in more[-1].recv(1000)))
        for client in idle + more + [endless]:
            client.close()
        self.assertTrue(wait_for(lambda: self.works(host)))

    @staticmethod
    def works(host):
        try:
            return host.ask("status")["state"] == "armed"
        except (Refused, OSError):
            return False

    def test_the_runtime_directory_is_removed_at_logout(self):
        runtime = self.path / "runtime"
        runtime.mkdir(mode=0o700)
        host = self.host(TIDEMARK_CONTROL_DIR=None, XDG_RUNTIME_DIR=str(runtime))
        self.assertEqual(host.say("begin"), "ready")
        first = runtime / "tidemark" / f"{host.pid}.sock"
        second = pathlib.Path(f"/tmp/tidemark-{os.geteuid()}/{host.pid}.sock")
        self.assertTrue(wait_for(first.exists))
        self.assertEqual(ask(first, "status")["pid"], str(host.pid))
        shutil.rmtree(runtime)
        self.assertTrue(wait_for(second.exists), "no second socket")
        self.assertEqual(ask(second, "status")["pid"], str(host.pid))
        listed = subprocess.run([TIDEMARK, "ps"], stdout=subprocess.PIPE, text=True,
                                check=True, env=dict(os.environ, TIDEMARK_CONTROL_DIR=""))
        self.assertRegex(listed.stdout, rf"(?m)^\s*{host.pid}\s.*armed")
        self.assertEqual(host.end()[1:], (0, ""))
        self.assertFalse(second.exists())

    def test_a_process_without_free_descriptors_waits_quietly(self):
        host = self.started()
        self.assertGreater(int(host.say("fill")), 0)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(host.socket))
            client.sendall(b"status\n")
            before = host.cpu_ticks("tidemark-ctl")
            time.sleep(1)
            used = host.cpu_ticks("tidemark-ctl") - before
            self.assertLess(used, os.sysconf("SC_CLK_TCK") / 5)
            self.assertEqual(host.say("close"), "closed")
            client.settimeout(60)
            self.assertTrue(client.recv(10000).startswith(b"ok "))
        self.assertEqual(host.end()[1:], (0, ""))

    def test_a_stopped_process_with_a_full_queue_blocks_nobody(self):
        host = self.started()
        host.process.send_signal(signal.SIGSTOP)
        self.assertTrue(wait_for(host.is_stopped))
        waiting = []
        try:
            while True:
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                waiting.append(client)
                client.connect(str(host.socket))
        except BlockingIOError:
            pass  # the queue is full
        listed = subprocess.run([TIDEMARK, "ps", "--json"], stdout=subprocess.PIPE, text=True,
                                check=True, timeout=100,
                                env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(self.control)))
        state, = (process["state"] for process in json.loads(listed.stdout)["processes"]
                  if process["pid"] == host.pid)
        self.assertEqual(state, "no answer")
        for client in waiting:
            client.close()
        told = subprocess.run([TIDEMARK, "detach", str(host.pid)], stderr=subprocess.PIPE, text=True,
                              timeout=100,
                              env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(self.control)))
        self.assertEqual(told.returncode, 2)
        self.assertIn(f"process {host.pid} does not answer", told.stderr)
        self.assertIn("is stopped", told.stderr)
        host.process.send_signal(signal.SIGCONT)
        self.assertTrue(wait_for(lambda: self.works(host)))

    def test_all_means_those_of_the_control_directory(self):
        host = self.started()
        host.ask("start", out=self.out)

        def detach_all(directory):
            return subprocess.run([TIDEMARK, "detach", "-q", "--all"], text=True, timeout=100,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(directory)))

        self.assertEqual(detach_all(self.out / "another").returncode, 2)
        self.assertEqual(host.ask("status")["state"], "recording")
        self.assertEqual(detach_all(self.control).returncode, 0)
        self.assertEqual(host.ask("status")["state"], "armed")
        self.assertEqual(host.end()[1], 0)

    def test_many_armed_processes(self):
        hosts = [self.host() for _ in range(PROCESSES)]
        for host in hosts:
            host.ready()
        for host in hosts:
            self.assertEqual(host.ask("status")["pid"], str(host.pid))
        for host in hosts:
            self.assertEqual(host.end(), ("sum 0", 0, ""))
        self.assertEqual(list(self.control.iterdir()), [])

    def test_a_library_that_comes_late(self):
        host = self.started(4, CUDA_INJECTION64_PATH=None, LD_PRELOAD=str(INJECTOR), TIDEMARK_ARM=None,
                            ATTACH_LATE="1")
        self.assertEqual(host.ask("status")["state"], "armed")
        host.say("alloc 10")
        host.ask("start", out=self.out)
        time.sleep(0.2)
        self.assertGreater(int(host.ask("stop")["rows"]), 50)
        self.assertEqual(host.end()[1:], (0, ""))

    def test_a_recorded_process_listens_too(self):
        host = self.started(1, TIDEMARK_ARM=None, TIDEMARK_OUT=str(self.out))
        self.assertEqual(host.ask("status")["state"], "recording")
        self.assertEqual(int(host.ask("stop")["dropped"]), 0)
        self.assertEqual(host.ask("status")["state"], "armed")
        host.ask("start", out=self.out)
        self.assertEqual(host.end()[1:], (0, ""))
        self.assertEqual(len(list(self.out.glob("*.tmk"))), 2)
        deaf = self.host(TIDEMARK_ARM=None, TIDEMARK_CONTROL="0", TIDEMARK_OUT=str(self.out))
        self.assertEqual(deaf.say("begin"), "ready")
        self.assertNotIn("tidemark-ctl", deaf.threads())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
