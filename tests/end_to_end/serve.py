"""tidemark serve, with programs that come and go, and with a real Prometheus where it is installed.

    python3 serve.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY INJECTOR [TEST …]

SECONDS: how long Prometheus scrapes.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "support"))
from control_client import HostTest, wait_for  # noqa: E402

TIDEMARK, LIBRARIES, TORCH, INJECTOR = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
PROGRAM = HERE.parent / "programs" / "serve_program.py"
SECONDS = float(os.environ.get("SECONDS", 8))
PROCESSES = 16
OURS = f'{{job="slurm-{os.getpid()}"}}'  # there may be other processes
SAMPLE = re.compile(r'([a-z_]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)",?')
OPEN = "application/openmetrics-text; version=1.0.0"


def samples_of(page):
    """{(name, pid, owner): value} of a page."""
    samples = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        labels = dict(LABEL.findall(labels or ""))
        key = (name, int(labels.get("pid", 0)), labels.get("owner", ""))
        assert key not in samples, line
        samples[key] = float(value)
    return samples


def documented():
    """The names in the table of metrics."""
    table = (ROOT / "docs/serve.md").read_text().partition("## Metrics\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"tidemark_[a-z_]+", row)}


def defined():
    """The names that the program can print."""
    suffix = {"kCounter": "_total", "kLabels": "_info", "kGauge": ""}
    sources = [ROOT / "cli/live_metrics.cpp", ROOT / "cli/cmd_serve.cpp"]
    found = [match for source in sources for match in re.findall(
        r'constexpr Metric \w+ = \{\s*"(\w+)", (?:Metric::)?Type::(\w+)', source.read_text())]
    return {name + suffix[kind] for name, kind in found}


# Keeps 3 MiB more in each of its steps, without PyTorch.
DRIVER_PROGRAM = """if True:
    import ctypes, sys, tidemark
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0

    def alloc(bytes):
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0
        return address

    for line in sys.stdin:
        for n in range(12 if line == "grow\\n" else 0):
            assert driver.cuMemFree_v2(alloc(30 << 20)) == 0
            alloc(3 << 20)
            tidemark.step(n)
        print("ready", flush=True)
    """


class Programs(HostTest):
    def setUp(self):
        super().setUp()
        self.environment = dict(os.environ, TIDEMARK_CONTROL_DIR=str(self.path / "control"),
                                XDG_CACHE_HOME=str(self.cache))

    def program(self, **environment):
        return self.host([sys.executable, "-B", PROGRAM, TORCH], LIBRARIES, INJECTOR,
                         **{"TIDEMARK_ARM": None, "TIDEMARK_OUT": str(self.out),
                            "PYTHONPATH": str(ROOT / "python"),
                            "WAIT_FOR": str(self.cache / "tidemark" / "*.so"), **environment})

    def serve(self, *options):
        server = subprocess.Popen([TIDEMARK, "serve", *options], env=self.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(server)
        address = server.stdout.readline().strip()
        assert address, server.communicate()
        return server, address

    def scrape(self, address, accept=OPEN, seconds="10"):
        request = urllib.request.Request(address, headers={
            "Accept": accept, "X-Prometheus-Scrape-Timeout-Seconds": seconds})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    def device_of(self, trace):
        done = subprocess.run([TIDEMARK, "report", trace, "--json", "--at", "end"], text=True,
                              capture_output=True, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        rank, = json.loads(done.stdout)["ranks"]
        return rank, rank["devices"][0]


class Serve(Programs):
    def test_every_number_is_that_of_the_report(self):
        host = self.program(RANK="3", WORLD_SIZE="4", SLURM_JOB_ID='a"b').ready()
        for line in ("bridge", "fill 800", "errors", "others", "grow 12", "virtual"):
            self.assertEqual(host.say(line), "ready", line)
        server, address = self.serve("--listen", "127.0.0.1:0")
        time.sleep(1.5)  # the writer tells its cost once per second
        page, kind = self.scrape(address)
        self.assertTrue(kind.startswith("application/openmetrics-text; version=1.0.0"), kind)
        self.assertTrue(page.endswith("\n# EOF\n"))
        self.assertIn(f'job="slurm-a\\"b",rank="3",host="{socket.gethostname()}",pid="{host.pid}",device="0",'
                      'uuid="GPU-', page)
        samples = samples_of(page)
        self.assertLessEqual({name for name, _, _ in samples}, documented())
        host.process.kill()  # the state at the end is the one that was asked for
        host.process.wait()
        trace, = self.out.glob("*.tmk")
        rank, device = self.device_of(trace)

        def number(name, owner=""):
            return samples[f"tidemark_{name}", host.pid, owner]

        self.assertEqual(number("allocated_bytes"), device["at_totals"]["allocated_bytes"])
        self.assertEqual(number("reserved_bytes"), device["at_totals"]["reserved_bytes"])
        self.assertEqual(number("largest_hole_bytes"),
                         device["fragmentation"]["largest_hole_bytes"])
        self.assertEqual(number("device_total_bytes"), device["total_bytes"])
        self.assertEqual(number("device_used_bytes"), device["ledger_device_used_bytes"])
        self.assertEqual(number("ooms_total"), device["oom_count"])
        self.assertEqual(number("alloc_retries_total"), device["alloc_retries"])
        self.assertEqual(number("steps_total"), device["steps"]["count"])
        self.assertEqual(number("step_growth_bytes"), device["steps"]["growth_bytes_per_step"])
        self.assertEqual(number("pinned_bytes"), rank["pinned"]["driver_peak"]["bytes"] - (1 << 20))
        self.assertEqual(number("events_lost_total"), rank["loss"]["events_dropped"])
        self.assertEqual((device["oom_count"], device["alloc_retries"], device["steps"]["count"],
                          device["steps"]["growth_bytes_per_step"]), (3, 1, 12, 3 << 20))
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        held = {owner: value for (name, pid, owner), value in samples.items()
                if name == "tidemark_driver_bytes" and pid == host.pid}
        torch = sum(value for owner, value in ledger.items() if owner.startswith("torch."))
        self.assertEqual(held.pop("torch"), torch)
        self.assertEqual(set(held), {"nccl.user", "program"})
        self.assertEqual(held, {owner: ledger[owner] for owner in held})
        self.assertIn(f'uuid="{device["uuid"]}"', page)
        self.assertIn(f'name="{device["name"]}"', page)

        folder = self.path / "csv"
        subprocess.run([TIDEMARK, "export", trace, "--format", "csv", "--events", "-o", folder],
                       check=True, env=self.environment, stdout=subprocess.DEVNULL)
        header, *_, last = (folder / "events.csv").read_text("utf-8").splitlines()
        last = dict(zip(header.split(","), last.split(",")))
        self.assertEqual(number("requested_bytes"), int(last["requested_bytes"]))
        self.assertGreater(number("writer_seconds_total"), 0)
        self.assertGreater(number("callback_seconds_total"), 0)
        self.assertGreater(number("recorder_memory_bytes"), 1 << 20)
        self.assertEqual((number("process_up"), number("recording")), (1, 1))

        # It is gone from the next page, and the server ends when asked.
        self.assertNotIn(f'pid="{host.pid}"', self.scrape(address)[0])
        server.terminate()
        self.assertEqual(server.communicate(), ("", ""))
        self.assertEqual(server.returncode, 0)

    def test_growth_without_pytorch(self):
        host = self.host([sys.executable, "-B", "-c", DRIVER_PROGRAM], LIBRARIES, INJECTOR,
                         TIDEMARK_ARM=None, TIDEMARK_OUT=str(self.out),
                         PYTHONPATH=str(ROOT / "python")).ready()
        self.assertEqual(host.say("grow"), "ready")
        _, address = self.serve("--listen", "127.0.0.1:0")
        samples = samples_of(self.scrape(address)[0])
        self.assertEqual((samples["tidemark_steps_total", host.pid, ""],
                          samples["tidemark_step_growth_bytes", host.pid, ""]), (12, 3 << 20))

    def test_the_asynchronous_allocator(self):
        self.program().ready().say("bridge")  # builds the bridge
        host = self.program().ready()
        self.assertEqual(host.say("async"), "ready")
        time.sleep(1.5)  # the recorder reads the pool now and then
        _, address = self.serve("--listen", "127.0.0.1:0")
        samples = samples_of(self.scrape(address)[0])
        host.process.kill()
        host.process.wait()
        trace, = self.out.glob(f"*-{host.pid}.tmk")
        _, device = self.device_of(trace)
        ledger = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        for name, number in (("allocated_bytes", 12 << 20), ("ooms_total", 1),
                             ("reserved_bytes", (12 << 20) + ledger["torch.cached"])):
            self.assertEqual(samples[f"tidemark_{name}", host.pid, ""], number, name)
        self.assertEqual(ledger["torch.allocated"], 12 << 20)
        self.assertEqual(device["oom_count"], 1)
        self.assertFalse([key for key in samples if key[1] == host.pid and key[0] in (
            "tidemark_requested_bytes", "tidemark_largest_hole_bytes",
            "tidemark_alloc_retries_total")])

    def test_an_armed_process(self):
        self.program().ready().say("bridge")  # builds the bridge
        host = self.program(TIDEMARK_ARM="1").ready()
        host.say("fill 100")
        _, address = self.serve("--listen", "localhost:0")

        def sleeps():
            before = host.switches("tidemark-ctl")
            time.sleep(1)
            return host.switches("tidemark-ctl") == before

        self.assertTrue(wait_for(sleeps, 20))  # others may ask, too; this server does not by itself
        samples = samples_of(self.scrape(address, "text/plain")[0])
        self.assertEqual(samples["tidemark_recording", host.pid, ""], 0)
        self.assertNotIn(("tidemark_steps_total", host.pid, ""), samples)
        self.assertGreater(samples["tidemark_allocated_bytes", host.pid, ""], 0)
        self.assertGreaterEqual(samples["tidemark_reserved_bytes", host.pid, ""],
                                samples["tidemark_allocated_bytes", host.pid, ""])

    def test_a_stopped_process_is_counted(self):
        host, other = self.program().ready(), self.program().ready()
        _, address = self.serve("--listen", "127.0.0.1:0")
        host.process.send_signal(signal.SIGSTOP)
        self.assertTrue(wait_for(host.is_stopped))
        began = time.monotonic()
        for asked in (1, 2):
            samples = samples_of(self.scrape(address)[0])
            self.assertEqual(samples["tidemark_process_up", host.pid, ""], 0)
            self.assertEqual(samples["tidemark_process_up", other.pid, ""], 1)
            self.assertGreaterEqual(samples["tidemark_unanswered_requests_total", 0, ""], asked)
            for _ in range(20):  # the next one cannot even connect
                with socket.socket(socket.AF_UNIX) as waiting:
                    waiting.setblocking(False)
                    waiting.connect_ex(str(host.socket))
        self.assertLess(time.monotonic() - began, 10)
        began = time.monotonic()
        self.assertIn(f'pid="{host.pid}"}} 0\n', self.scrape(address, seconds="1")[0])
        self.assertLess(time.monotonic() - began, 2)
        host.process.send_signal(signal.SIGCONT)
        self.assertTrue(wait_for(lambda: samples_of(self.scrape(address)[0]).get(
            ("tidemark_process_up", host.pid, "")) == 1))

    def test_the_table_of_metrics_is_complete(self):
        self.assertGreater(len(defined()), 20)
        self.assertEqual(documented(), defined())

    def test_addresses(self):
        for address in ("9464", "127.0.0.1:http"):
            done = subprocess.run([TIDEMARK, "serve", "--listen", address], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(address, done.stderr)
        server, _ = self.serve("--listen", "0.0.0.0:0")
        server.send_signal(signal.SIGINT)
        self.assertIn("no password", server.communicate()[1])


class Prometheus(Programs):
    def check_page(self, address):
        """promtool, and the strict parser of Prometheus's Python client where it is installed."""
        plain, _ = self.scrape(address, "text/plain")
        done = subprocess.run(["promtool", "check", "metrics"], input=plain, text=True,
                              capture_output=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        except ImportError:
            return
        page, _ = self.scrape(address)
        families = list(text_string_to_metric_families(page))
        self.assertGreater(len(families), 3)

    def query(self, port, question):
        url = f"http://127.0.0.1:{port}/api/v1/" + question
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def come_and_go(self, seconds, address, port):
        """Keeps PROCESSES programs busy, of which one ends now and then and another begins."""
        dice = random.Random(5)
        def begin(rank):
            program = self.program(RANK=str(rank), WORLD_SIZE=str(PROCESSES),
                                   SLURM_JOB_ID=str(os.getpid())).ready()
            program.say("bridge")  # blocks that wait to be freed are not known without it
            return program

        programs, gone = [begin(rank) for rank in range(PROCESSES)], []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            place = dice.randrange(PROCESSES)
            gone.append(programs[place].process)
            gone[-1].kill() if dice.random() < 0.5 else gone[-1].stdin.close()
            programs[place] = begin(place)
            for program in dice.sample(programs, 4):
                program.say(f"fill {dice.randrange(100)}")
            self.check_page(address)
            for one in self.query(port, "targets")["activeTargets"]:
                self.assertEqual(one["lastError"], "")
            time.sleep(0.2)
        for process in gone:
            self.assertIn(process.wait(60), (0, -signal.SIGKILL))
        print(f"{len(gone)} of {len(gone) + PROCESSES} programs came and went", flush=True)
        return programs

    def test_prometheus(self):
        _, address = self.serve("--listen", "127.0.0.1:0")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        target = urllib.parse.urlsplit(address).netloc
        text = (ROOT / "docs" / "serve.md").read_text("utf-8")
        config, rules = re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)
        config = config.replace("127.0.0.1:9464", target).replace("15s", "2s")
        (self.path / "prometheus.yml").write_text(config)
        (self.path / "tidemark.rules.yml").write_text(rules)
        done = subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=self.path,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 rules found", done.stdout)
        with (self.path / "log").open("w") as log:
            self.processes.append(subprocess.Popen(
                ["prometheus", f"--web.listen-address=127.0.0.1:{port}",
                 "--config.file=prometheus.yml", f"--storage.tsdb.path={self.path / 'data'}"],
                cwd=self.path, stdout=subprocess.DEVNULL, stderr=log))
        self.assertTrue(wait_for(lambda: "ready to receive" in (self.path / "log").read_text()))
        programs = self.come_and_go(SECONDS, address, port)

        target, = self.query(port, "targets")["activeTargets"]
        self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        slowest = self.query(port, "query?query=" + urllib.parse.quote(
            f"max_over_time(tidemark_serve_duration_seconds[{int(SECONDS)}s])"))["result"]
        print(f"slowest answer {slowest[0]['value'][1]} s", flush=True)
        up = self.query(port, "query?query=" + urllib.parse.quote(
            f"min_over_time(up[{int(SECONDS)}s])"))["result"]
        self.assertEqual([result["value"][1] for result in up], ["1"])
        seen = self.query(port, "query?query=" + urllib.parse.quote(
            f"last_over_time(tidemark_allocated_bytes{OURS}[{int(SECONDS) + 60}s])"))["result"]
        self.assertGreater(len(seen), PROCESSES)
        self.assertEqual({result["metric"]["rank"] for result in seen},
                         {str(rank) for rank in range(PROCESSES)})
        log = (self.path / "log").read_text().splitlines()
        self.assertEqual([line for line in log if "level=error" in line or "level=warn" in line], [])
        for rule in self.query(port, "rules")["groups"][0]["rules"]:
            self.assertEqual(rule["health"], "ok", rule)

        # At rest, Prometheus has what the programs say themselves.
        def stored(name):
            result = self.query(port, "query?query=" + urllib.parse.quote(
                f"tidemark_{name}{OURS}"))["result"]
            return {int(one["metric"]["pid"]): float(one["value"][1]) for one in result}

        for program in programs:
            program.say("fill 20")
        told = {program.pid: float(program.ask("live", torch=1)["d0_allocated"])
                for program in programs}
        self.assertTrue(wait_for(lambda: stored("allocated_bytes") == told, 20),
                        (stored("allocated_bytes"), told))
        self.compare_with_reports(programs, stored)

    def compare_with_reports(self, programs, stored):
        names = ("allocated_bytes", "reserved_bytes", "largest_hole_bytes", "ooms_total",
                 "events_lost_total")
        numbers = {name: stored(name) for name in names}
        for program in programs:
            program.process.kill()
            program.process.wait()
            trace, = self.out.glob(f"*-{program.pid}.tmk")
            rank, device = self.device_of(trace)
            totals = device["at_totals"]
            self.assertEqual(
                [numbers[name].get(program.pid, 0) for name in names],
                [totals["allocated_bytes"], totals["reserved_bytes"],
                 device["fragmentation"]["largest_hole_bytes"], device["oom_count"],
                 rank["loss"]["events_dropped"]])
        print(f"{len(names)} numbers of {len(programs)} programs equal those of their reports",
              flush=True)


if __name__ == "__main__":
    if "Prometheus" in sys.argv[5:] and not (shutil.which("prometheus") and shutil.which("promtool")):
        print("prometheus is not installed")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *(sys.argv[5:] or ["Serve"])], verbosity=2)
