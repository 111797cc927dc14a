#!/usr/bin/env python3
"""Measures the flight recorder and live numbers, on the simulated driver.

    bench/keep_bench.py BUILD_DIRECTORY [ROUNDS]

1. Recording with `--keep` against plain recording. In one process, recordings of both kinds take
   turns while it allocates and frees. Per call: the time of the thread that makes it, and the
   processor time of the writer thread. The limit is small, so that the file is replaced all the
   time. The simulated driver does almost nothing, so both are upper limits.
2. Live numbers of 16 armed processes: the time of one scrape of `tidemark serve`, the processor time
   of a process per scrape, and how often a process wakes up while nobody asks.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from control_client import Host  # noqa: E402

COUNT = 200_000
PROCESSES = 16
SCRAPES = 50
IDLE_SECONDS = 5


def host_in(build, folder):
    return Host([build / "tests/programs/attach_host", "0"], folder / "control",
                build / "simgpu/lib", build / "injector/libtidemark.so").ready()


def processor_ns(host, name):
    """Of the threads of that name, from the scheduler."""
    total = 0
    for task in pathlib.Path(f"/proc/{host.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            total += int((task / "schedstat").read_text().split()[0])
    return total


def record(host, folder, keep):
    """Nanoseconds per call: of the thread that calls, and of the writer."""
    values = {"keep": keep} if keep else {}
    host.ask("start", out=folder, buffer_mb=64, stacks="none", **values)
    host.say("time 2000 alloc")
    before = processor_ns(host, "tidemark")
    calls = float(host.say(f"time {COUNT} alloc"))
    time.sleep(0.3)  # the writer catches up
    writer = (processor_ns(host, "tidemark") - before) / COUNT
    dropped = int(host.ask("stop")["dropped"])
    return calls, writer, dropped


def compare_keep(build, rounds):
    modes = {"plain": None, "keep 1 MiB": "1MiB", "keep 1 s": "1s"}
    results = {mode: [] for mode in modes}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        host = host_in(build, folder)
        for number in range(rounds):
            names = list(modes)
            for mode in names[number % 3:] + names[:number % 3]:
                results[mode].append(record(host, folder / f"{mode}{number}", modes[mode]))
        host.process.kill()
        host.end()
    print(f"{'':12} {'call, ns':>9} {'ratio':>6} {'writer, ns':>11} {'ratio':>6} {'dropped':>8}")
    for mode, rows in results.items():
        calls, writer = (statistics.median(row[i] for row in rows) for i in (0, 1))
        ratios = [statistics.median(row[i] / plain[i] for row, plain in zip(rows, results["plain"]))
                  for i in (0, 1)]
        print(f"{mode:12} {calls:9.0f} {ratios[0]:6.2f} {writer:11.0f} {ratios[1]:6.2f} "
              f"{sum(row[2] for row in rows):8}")


def switches(hosts):
    return [sum(host.switches("tidemark-ctl")) for host in hosts]


def live_numbers(build):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        hosts = [host_in(build, folder) for _ in range(PROCESSES)]
        server = subprocess.Popen(
            [build / "tidemark", "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
            text=True, env={"TIDEMARK_CONTROL_DIR": str(folder / "control"), "PATH": "/usr/bin:/bin"})
        try:
            address = server.stdout.readline().strip()
            urllib.request.urlopen(address).read()  # the first one loads libraries
            time.sleep(1)
            before = switches(hosts)
            time.sleep(IDLE_SECONDS)
            woken = sum(switches(hosts)) - sum(before)
            used = [processor_ns(host, "tidemark-ctl") for host in hosts]
            took = []
            for _ in range(SCRAPES):
                began = time.perf_counter()
                page = urllib.request.urlopen(address).read()
                took.append(1e3 * (time.perf_counter() - began))
            used = [processor_ns(host, "tidemark-ctl") - b for host, b in zip(hosts, used)]
            print(f"scrape of {PROCESSES} processes: median {statistics.median(took):.2f} ms, "
                  f"best {min(took):.2f}, worst {max(took):.2f}; {len(page)} bytes\n"
                  f"in each process: {statistics.median(used) / SCRAPES / 1e3:.0f} us of processor "
                  f"time per scrape\n"
                  f"idle for {IDLE_SECONDS} s: {woken} wake-ups of {PROCESSES} processes")
        finally:
            server.kill()
            server.communicate()
            for host in hosts:
                host.process.kill()
                host.end()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    compare_keep(build, int(sys.argv[2]) if len(sys.argv) > 2 else 9)
    live_numbers(build)


if __name__ == "__main__":
    main()
