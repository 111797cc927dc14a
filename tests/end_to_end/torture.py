"""Records a program that is hard on a guest, on a machine where everything goes wrong in turn.

    python3 torture.py TIDEMARK SIMGPU_LIBRARIES INJECTOR TORTURE_HOST PLUGIN
                       [--minutes M] [--seed N]

The program's 32 threads allocate, fork, load and unload libraries, change the environment and start
other programs (tests/programs/torture_host.cpp). Meanwhile captures start and end, NVML hangs for
random spells, and the disk fills up and empties. Checked is that

- the program prints what it prints without tidemark, and nothing on stderr but tidemark's lines;
- nothing hangs: every request and the program's end are answered, hung NVML or not;
- after a warm-up, its threads, descriptors, mappings and memory no longer grow;
- every finished trace can be read, and a capture started when all is well loses nothing.

One long run takes three quarters of the time; in the rest, short runs end in a random state. The
seed decides what happens when, not how the threads meet. Without the right to mount a small disk, a
limit on the size of files stands in for a full one.
"""
import argparse
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from control_client import Host, Refused, wait_for  # noqa: E402

DISK_MB = 24
ANSWER_S = 60  # for anything that must not hang; far more than the deadlines it may wait for
# malloc's heaps and the stacks that the C library keeps change by about this from pause to pause. A
# capture that is not freed would add 59 MiB of address space; so would a new arena of malloc, which
# is why their number is fixed: by default it depends on the machine and on how the threads meet.
ARENAS = "2"
SLACK = {"threads": 0, "descriptors": 0, "mappings": 8, "resident_kib": 4096, "address_kib": 16384}


class Disk:
    """The directory of the traces, which can be made full."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", path],
                                      stderr=subprocess.DEVNULL, check=False).returncode == 0
        self.full = False

    def fill(self, host):
        self.full = True
        if not self.mounted:
            resource.prlimit(host.pid, resource.RLIMIT_FSIZE, (16384, resource.RLIM_INFINITY))
            return
        try:
            with open(self.path / "filler", "wb", buffering=0) as file:
                while file.write(bytes(65536)) == 65536:
                    pass
        except OSError:
            pass

    def empty(self, host):
        self.full = False
        if self.mounted:
            (self.path / "filler").unlink(missing_ok=True)
        else:
            resource.prlimit(host.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    def clear(self):
        for file in self.path.iterdir():
            file.unlink(missing_ok=True)  # a recording that has just ended removes its own

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], check=True)


class Run:
    """One life of the program."""

    def __init__(self, torture, seconds):
        self.torture = torture
        self.random = torture.random
        self.hang = torture.folder / "hang"
        self.disk = torture.disk
        self.end = time.monotonic() + seconds
        self.counts = {"captures": 0, "refused": 0, "hangs": 0, "full": 0, "dropped": 0}
        options = torture.options
        self.host = Host([options.host, options.plugin], torture.folder / "control",
                         options.libraries, options.injector, SIMGPU_HANG=f"nvml@{self.hang}",
                         MALLOC_ARENA_MAX=ARENAS)
        assert self.host.process.stdout.readline() == "ready\n", self.host.process.stderr.read()
        assert wait_for(self.host.socket.exists, ANSWER_S), "no socket"

    # ---- what goes wrong ---------------------------------------------------------------------
    def hang_nvml(self):
        self.hang.touch()
        self.counts["hangs"] += 1

    def fill_disk(self):
        self.disk.fill(self.host)
        self.counts["full"] += 1

    def all_is_well(self):
        return not self.hang.exists() and not self.disk.full

    def change_weather(self):
        if self.hang.exists():
            self.hang.unlink()
        elif self.random.random() < 0.3:
            self.hang_nvml()
        if self.disk.full:
            self.disk.empty(self.host)
        elif self.random.random() < 0.3:
            self.fill_disk()

    def clear_up(self):
        self.hang.unlink(missing_ok=True)
        if self.disk.full:
            self.disk.empty(self.host)

    # ---- captures ----------------------------------------------------------------------------
    def start(self):
        """False if refused, which is only allowed while something is wrong, or right after."""
        try:
            self.host.ask("start", out=self.disk.path)
            self.counts["captures"] += 1
            return True
        except Refused as error:
            self.counts["refused"] += 1
            self.last_refusal = str(error)
            return False

    def stop(self):
        try:
            return self.host.ask("stop")
        except Refused as error:
            assert "nothing is being recorded" in str(error), error
            return {}

    def read_traces(self):
        """All that is there must be readable; then it makes room for the next."""
        for trace in sorted(self.disk.path.glob("*.tmk")):
            done = subprocess.run([self.torture.options.tidemark, "info", trace], text=True,
                                  capture_output=True, timeout=ANSWER_S, check=False)
            # A trace for which there was no room at all is empty.
            assert done.returncode == 0 or trace.stat().st_size == 0, (trace.name, done.stderr)
        self.disk.clear()

    def cycle(self):
        self.change_weather()
        if self.start():
            time.sleep(self.random.choice([0.01, 0.1, 0.3, 1.0]))
            if self.random.random() < 0.4:
                self.change_weather()
                time.sleep(self.random.uniform(0, 0.5))
            ended = self.stop()
            self.counts["dropped"] += int(ended.get("dropped", 0))
        else:
            time.sleep(0.1)
        if self.all_is_well():
            self.read_traces()

    def calm_cycle(self):
        """With everything well, a capture can be started, ends, and is complete.

        Only on a machine that is busy with other things it may not end in time.
        """
        self.clear_up()
        ended = {}

        def complete():
            nonlocal ended
            assert wait_for(self.start, ANSWER_S), f"cannot start: {self.last_refusal}"
            time.sleep(0.3)
            ended = self.stop()
            self.read_traces()
            return int(ended.get("rows", 0)) > 0 and "unfinished" not in ended

        assert wait_for(complete, ANSWER_S), f"no capture is complete; the last one: {ended}"

    # ---- the program -------------------------------------------------------------------------
    def measure(self, limits=None):
        """With its threads ended, so that only what is kept counts.

        Threads and files of a recording may take a moment to go. What leaks does not go.
        """
        assert self.host.say("pause") == "paused", self.host.process.stderr.read()
        limits = limits or {"threads": self.torture.known_threads}
        numbers = {}

        def within_limits():
            nonlocal numbers
            numbers = self.numbers()
            return all(numbers[what] <= most for what, most in limits.items())

        if not wait_for(within_limits, ANSWER_S):
            self.torture.show_stacks(self.host)
            raise AssertionError(f"grew: {numbers}; at most expected: {limits}")
        self.host.process.stdin.write("go on\n")
        self.host.process.stdin.flush()
        return numbers

    def numbers(self):
        return {"threads": len(self.host.threads()), "descriptors": len(self.host.files()),
                **self.host.memory()}

    def finish(self):
        began = time.monotonic()
        try:
            output, errors = self.host.process.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            self.torture.show_stacks(self.host)
            raise AssertionError("the program does not end") from None
        took = time.monotonic() - began
        others = [line for line in errors.splitlines() if not line.startswith("tidemark:")]
        assert (self.host.process.returncode, output, others) == (0, self.torture.expected, []), \
            f"status {self.host.process.returncode}, printed:\n{output}{errors}" \
            f"expected status 0, and:\n{self.torture.expected}"
        self.clear_up()
        return took

    def kill(self):
        self.host.process.kill()
        _, errors = self.host.process.communicate()
        if sys.exc_info()[0] is not None:
            print(f"failed after {self.counts}; the program's last lines on stderr:\n"
                  + "".join(errors.splitlines(keepends=True)[-20:]), flush=True)


class Torture:
    known_threads = 4  # main, control, tasks, CUPTI's

    def __init__(self, options, folder):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = folder
        self.disk = Disk(folder / "disk")
        self.expected = self.run_alone()

    def run_alone(self):
        done = subprocess.run([self.options.host, self.options.plugin], input="", text=True,
                              capture_output=True, timeout=ANSWER_S, check=True,
                              env={"LD_LIBRARY_PATH": self.options.libraries})
        assert done.stderr == "", done.stderr
        return done.stdout.removeprefix("ready\n")

    @staticmethod
    def show_stacks(host):
        for task in sorted(pathlib.Path(f"/proc/{host.pid}/task").iterdir()):
            try:
                print(task.name, (task / "comm").read_text().strip(),
                      (task / "wchan").read_text(), flush=True)
            except OSError:
                pass  # it has just ended
        print(*host.files(), sep="\n", flush=True)

    def long_run(self, seconds):
        run = Run(self, seconds)
        try:
            began = shown = time.monotonic()
            warm = None
            rounds = 0  # since the warm-up
            while time.monotonic() < run.end or rounds == 0:
                for _ in range(4):
                    run.cycle()
                run.calm_cycle()
                now = run.measure()
                past = time.monotonic() - began
                if warm is not None:
                    rounds += 1
                elif past > min(seconds / 2, 120):
                    warm = now
                if warm is None or time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    print(f"{past:6.0f} s {now} {run.counts}", flush=True)
            # Sanitizers keep freed memory for a while.
            limits = None if "SANITIZED" in os.environ else {
                what: warm[what] + slack for what, slack in SLACK.items()}
            last = run.measure(limits)
            print(f"long run: {run.counts}; after warm-up {warm}, at the end {last}", flush=True)
            run.finish()
        finally:
            run.kill()

    def short_run(self, seconds):
        run = Run(self, seconds)
        try:
            while time.monotonic() < run.end:
                run.cycle()
            run.clear_up()
            state = [word for word, wanted in (("recording", run.start), ("hung", run.hang_nvml),
                                               ("full", run.fill_disk))
                     if self.random.random() < 0.7 and wanted() is not False]
            time.sleep(self.random.uniform(0, 0.5))
            took = run.finish()
            print(f"short run: {run.counts}; ended {' '.join(state)} in {took:.1f} s", flush=True)
        finally:
            run.kill()
            run.clear_up()
            self.disk.clear()


def main():
    parser = argparse.ArgumentParser()
    for name in ("tidemark", "libraries", "injector", "host", "plugin"):
        parser.add_argument(name)
    parser.add_argument("--minutes", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"--seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        torture = Torture(options, pathlib.Path(folder))
        try:
            seconds = options.minutes * 60
            end = time.monotonic() + seconds
            torture.long_run(seconds * 0.75)
            while True:
                torture.short_run(3)
                if time.monotonic() > end:
                    break
        finally:
            torture.disk.remove()


if __name__ == "__main__":
    main()
