"""Attaches to a PyTorch job on a real GPU, and compares the captures with the job's own statistics.

    python3 attach.py check TIDEMARK INJECTOR FOLDER [REPEATS]     all checks; exit 0 if they pass
    python3 attach.py cycles TIDEMARK INJECTOR FOLDER [60]         attaches and detaches that often
    python3 attach.py train FOLDER STEPS PAUSE,PAUSE,…             the job itself

After every step the job writes torch's memory statistics, with the time, to FOLDER/steps.jsonl. At
each PAUSE it waits until FOLDER/go-N exists, so that its statistics at that point are what a capture
that begins or ends there must contain. It prints a sum over its parameters and its last loss.
"""
import csv
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse

STEPS, PAUSES = 120, (20, 60, 100)
CYCLE_STEPS = 2000


# ---- the job --------------------------------------------------------------------------------

def stats(torch):
    now = torch.cuda.memory_stats()
    return {"time_ns": time.time_ns(), "allocated": now["allocated_bytes.all.current"],
            "reserved": now["reserved_bytes.all.current"],
            "requested": now.get("requested_bytes.all.current", 0)}


def train(folder, steps, pauses):
    import torch
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = torch.device("cuda")
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kept = []
    took = []
    with open(folder / "steps.jsonl", "w", buffering=1, encoding="utf-8") as side:
        for step in range(steps):
            began = time.perf_counter()
            x = torch.randn(8, 64 + 16 * (step % 5), 512, device=device)
            loss = model(x).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                kept.append(loss.detach().expand(1 << 16).clone())  # memory creeps up
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
            side.write(json.dumps({"step": step, **stats(torch)}) + "\n")
            if step in pauses:
                side.write(json.dumps({"pause": step, **stats(torch)}) + "\n")
                (folder / f"paused-{step}").write_text("")
                while not (folder / f"go-{step}").exists():
                    time.sleep(0.02)
    total = sum(p.double().sum().item() for p in model.parameters())
    print(json.dumps({"loss": loss.item(), "sum": total,
                      "step_ms": statistics.median(took[10:]) * 1e3,
                      "profiled_kernels": profiled_kernels(torch, device)}))


def profiled_kernels(torch, device):
    """Whether torch's own profiler can use CUPTI, after all captures."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        (torch.ones(256, 256, device=device) @ torch.ones(256, 256, device=device)).sum().item()
    return sum(1 for event in profiler.events() if "CUDA" in str(event.device_type))


# ---- the checker ----------------------------------------------------------------------------

def ask(path, verb, **values):
    line = " ".join([verb, *(f"{k}={urllib.parse.quote(str(v), safe='/')}" for k, v in values.items())])
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(180)
        client.connect(str(path))
        client.sendall(line.encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            reply += client.recv(65536) or b"\n"
    word, _, rest = reply.decode().strip().partition(" ")
    if word != "ok":
        raise SystemExit(f"{verb}: {reply.decode()}")
    return {k: urllib.parse.unquote(v) for k, _, v in (pair.partition("=") for pair in rest.split())}


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("waited in vain")
        time.sleep(0.01)


class Job:
    def __init__(self, folder, pauses, steps=STEPS, **environment):
        self.folder = folder
        folder.mkdir(parents=True)
        self.control = folder / "control"
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("TIDEMARK", "CUDA_INJECTION"))}
        variables.update(TIDEMARK_CONTROL_DIR=str(self.control), CUBLAS_WORKSPACE_CONFIG=":4096:8",
                         **environment)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "train", folder, str(steps), ",".join(map(str, pauses))],
            env=variables, stdout=subprocess.PIPE, text=True)

    def paused(self, step):
        wait_for((self.folder / f"paused-{step}").exists)

    def go_on(self, step):
        (self.folder / f"go-{step}").write_text("")

    def ask(self, verb, **values):
        path = self.control / f"{self.process.pid}.sock"
        wait_for(path.exists)
        return ask(path, verb, **values)

    def end(self):
        output = self.process.communicate()[0]
        if self.process.returncode != 0:
            raise SystemExit(f"the job failed: {output}")
        return json.loads(output.strip().split("\n")[-1])

    def told(self):
        return [json.loads(line) for line in (self.folder / "steps.jsonl").read_text().splitlines()]


class Check:
    def __init__(self, tidemark, injector, folder):
        self.tidemark, self.injector, self.folder = tidemark, injector, folder
        self.failures = 0

    def say(self, good, what):
        print(("ok    " if good else "WRONG ") + what, flush=True)
        self.failures += not good

    def armed(self):
        return {"CUDA_INJECTION64_PATH": str(self.injector), "TIDEMARK_ARM": "1"}

    def events(self, trace):
        folder = self.folder / (pathlib.Path(trace).stem + ".csv")
        subprocess.run([self.tidemark, "export", trace, "--format", "csv", "--events", "-o",
                        folder], check=True,
                       stdout=subprocess.DEVNULL)
        with open(folder / "events.csv", encoding="utf-8") as file:
            return [{key: int(row[key]) for key in
                     ("time_ns", "allocated_bytes", "reserved_bytes", "requested_bytes")}
                    for row in csv.DictReader(file)]

    def compare(self, what, event, truth):
        for name in ("allocated", "reserved", "requested"):
            good = event[f"{name}_bytes"] == truth[name]
            if name == "requested":  # torch counts a request until its free completes
                good = event["requested_bytes"] <= truth["requested"]
            self.say(good, f"{what}: {name} {event[f'{name}_bytes']}, torch {truth[name]}")

    def curve(self, what, events, told):
        """Compares the numbers of every step with the trace at that time."""
        wrong, at = 0, 0
        steps = [row for row in told if "step" in row
                 and events[0]["time_ns"] <= row["time_ns"] <= events[-1]["time_ns"]]
        for row in steps:
            while at + 1 < len(events) and events[at + 1]["time_ns"] <= row["time_ns"]:
                at += 1
            wrong += any(events[at][f"{name}_bytes"] != row[name] for name in ("allocated", "reserved"))
        self.say(steps and wrong == 0, f"{what}: {len(steps)} steps in the capture, {wrong} differ")

    def ledger(self, what, trace):
        done = subprocess.run([self.tidemark, "report", trace, "--json"], check=True,
                              stdout=subprocess.PIPE, text=True)
        device = json.loads(done.stdout)["ranks"][0]["devices"][0]
        lines = {line["owner"]: line["bytes"] for line in device["ledger_at_peak"]}
        print(f"      {what}: ledger {lines}, most used {device['device_used_peak']['bytes']}")
        self.say(lines.get("pre_attach", 0) > 0 and min(lines.values()) >= 0,
                 f"{what}: pre_attach there, nothing below zero")

    def command(self, job, *words):
        done = subprocess.run([self.tidemark, *map(str, words)], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, TIDEMARK_CONTROL_DIR=str(job.control)))
        self.say(done.returncode == 0, f"tidemark {words[0]}: exit {done.returncode}")

    def begin(self, job, out, armed):
        """Through the socket of the armed library, or with the command, which injects it."""
        if armed:
            return job.ask("start", out=out)["trace"]
        self.command(job, "attach", job.process.pid, "-o", out)
        return job.ask("status")["trace"]

    def attached(self, plain, armed):
        kind = "armed" if armed else "entered"
        print(f"   -- {kind}")
        job = Job(self.folder / f"{kind}-job", PAUSES, **(self.armed() if armed else {}))
        out = self.folder / f"{kind}-captures"
        job.paused(PAUSES[0])
        maps = pathlib.Path(f"/proc/{job.process.pid}/maps").read_text()
        print("      libtidemark is", "mapped" if "libtidemark" in maps else "not mapped",
              "and libcupti is", "mapped (by torch)" if "libcupti" in maps else "not mapped")
        first = self.begin(job, out, armed)
        # The bridge may have to be built first: the state is read once it is loaded.
        time.sleep(float(os.environ.get("BRIDGE_SECONDS", 20)))
        job.go_on(PAUSES[0])
        job.paused(PAUSES[1])
        print("      live", job.ask("live"))
        if armed:
            print("      first", job.ask("stop"))
        else:
            self.command(job, "detach", job.process.pid)
        second = self.begin(job, out, armed)
        job.go_on(PAUSES[1])
        job.paused(PAUSES[2])
        print("      second", job.ask("stop"))
        snapshot = job.ask("snapshot", out=out)["trace"]
        job.go_on(PAUSES[2])
        result = job.end()
        told = job.told()
        at = {row["pause"]: row for row in told if "pause" in row}
        for name, trace, begin, end in (("first", first, PAUSES[0], PAUSES[1]),
                                        ("second", second, PAUSES[1], PAUSES[2]),
                                        ("snapshot", snapshot, PAUSES[2], PAUSES[2])):
            events = self.events(trace)
            began = [event for event in events if event["time_ns"] == events[0]["time_ns"]][-1]
            self.compare(f"{name} at its beginning", began, at[begin])
            self.compare(f"{name} at its end", events[-1], at[end])
            if name != "snapshot":
                self.curve(name, events, told)
            self.ledger(name, trace)
        for key in ("loss", "sum"):
            self.say(result[key] == plain[key], f"{key} {result[key]}, without tidemark {plain[key]}")
        self.say(result["profiled_kernels"] > 0,
                 f"torch.profiler then saw {result['profiled_kernels']} kernels")

    def idle(self, repeats):
        """Step times, alternating plain and armed."""
        times = {"plain": [], "armed": []}
        results = []
        for i in range(repeats):
            for kind in ("plain", "armed") if i % 2 == 0 else ("armed", "plain"):
                result = Job(self.folder / f"{kind}-{i}", (), **(self.armed() if kind == "armed" else {})).end()
                times[kind].append(result["step_ms"])
                results.append((result["loss"], result["sum"]))
        self.say(len(set(results)) == 1, f"the same result {len(results)} times")
        for kind, values in times.items():
            print(f"      {kind}: median step {statistics.median(values):.3f} ms, "
                  f"{min(values):.3f} to {max(values):.3f}")
        return {"loss": results[0][0], "sum": results[0][1]}


    def cycles(self, count):
        """Attaches and detaches while the job trains; it goes on past its last step afterwards."""
        last = CYCLE_STEPS - 1
        plain = Job(self.folder / "cycles-plain", (), CYCLE_STEPS).end()
        job = Job(self.folder / "cycles-job", (last,), CYCLE_STEPS, **self.armed())
        job.ask("status")
        whole = 0
        for _ in range(count):
            trace = job.ask("start", out=self.folder / "cycles-captures")["trace"]
            time.sleep(0.05)
            ended = job.ask("stop")
            info = subprocess.run([self.tidemark, "info", trace], stdout=subprocess.DEVNULL)
            whole += info.returncode == 0 and int(ended["rows"]) > 0 and ended["dropped"] == "0"
        self.say(whole == count, f"{whole} of {count} captures are whole")
        job.paused(last)
        job.go_on(last)
        result = job.end()
        for key in ("loss", "sum"):
            self.say(result[key] == plain[key], f"{key} {result[key]}, without tidemark {plain[key]}")


def checker_of(tidemark, injector, folder):
    return Check(pathlib.Path(tidemark).resolve(), pathlib.Path(injector).resolve(),
                 pathlib.Path(folder).resolve())


def check_cycles(tidemark, injector, folder, count=60):
    checker = checker_of(tidemark, injector, folder)
    checker.cycles(int(count))
    print(f"{checker.failures} wrong")
    return 1 if checker.failures else 0


def check(tidemark, injector, folder, repeats=5):
    checker = checker_of(tidemark, injector, folder)
    plain = checker.idle(int(repeats))
    checker.attached(plain, armed=True)
    checker.attached(plain, armed=False)
    print(f"{checker.failures} wrong")
    return 1 if checker.failures else 0


def main():
    if sys.argv[1] == "train":
        pauses = [int(step) for step in sys.argv[4].split(",") if step]
        return train(pathlib.Path(sys.argv[2]), int(sys.argv[3]), pauses)
    return {"check": check, "cycles": check_cycles}[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
