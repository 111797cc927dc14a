"""The flight recorder on a real GPU: `tidemark run --keep`, compared with torch's own statistics.

    python3 flight.py check TIDEMARK INJECTOR FOLDER [--seconds 40] [--keep 10s] [--rounds 12]

1. oom: a training runs out of memory after so many seconds. Allocated, requested and reserved of the
   sealed window at the error, and of the last window at the end, must equal torch's to the byte.
2. cost: in one process, blocks of steps without recording, with plain recording and with --keep take
   turns.
3. ranks: four ranks on this GPU train under real NCCL, and one of them runs out of memory: four
   sealed windows under one name, all of which contain that instant, and the report names the rank.

Exit status 1 if something is wrong. `flight.py train|cost|rank …` are the programs themselves.
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "python"))
RANKS, GUILTY = 4, 2


# ---- the programs -------------------------------------------------------------------------------

def stats(torch):
    now = torch.cuda.memory_stats()
    return {"time_ns": time.time_ns(), **{
        name: now.get(f"{name}_bytes.all.current", 0)
        for name in ("allocated", "requested", "reserved")}}


class Training:
    def __init__(self, torch):
        self.torch = torch
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        self.model = torch.nn.TransformerEncoder(layer, 4).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.steps = 0

    def step(self):
        x = self.torch.randn(8, 64 + 16 * (self.steps % 5), 512, device="cuda")
        self.optimizer.zero_grad(set_to_none=True)
        self.model(x).square().mean().backward()
        self.optimizer.step()
        self.steps += 1


def train(folder, seconds):
    """Runs out of memory after so many seconds, and goes on for a quarter of them."""
    import torch
    job = Training(torch)
    kept, told = [], {}
    begin = time.monotonic()
    while time.monotonic() < begin + seconds * 1.25:
        job.step()
        if job.steps % 50 == 0:
            kept.append(torch.ones(1 << 18, device="cuda"))  # creeps: 1 MiB
        if "oom" not in told and time.monotonic() > begin + seconds:
            torch.cuda.synchronize()
            try:
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                told["oom"] = stats(torch)
    torch.cuda.synchronize()
    told["end"] = stats(torch)
    told["steps"] = job.steps
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    import tidemark
    tidemark.stop()  # before Python frees anything: its last totals are those told


def cost(folder, keep, rounds):
    """Prints the milliseconds per step of each mode, in alternation."""
    import torch
    import tidemark
    job = Training(torch)
    for _ in range(30):
        job.step()
    took = {"off": [], "plain": [], "keep": []}
    for number in range(rounds):
        order = list(took)
        for mode in order[number % 3:] + order[:number % 3]:
            if mode != "off":
                tidemark.start(folder / f"{mode}{number}", **({"keep": keep} if mode == "keep" else {}))
            for _ in range(5):
                job.step()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(40):
                job.step()
            torch.cuda.synchronize()
            took[mode].append((time.perf_counter() - began) / 40 * 1e3)
            if mode != "off":
                tidemark.stop()
                shutil.rmtree(folder / f"{mode}{number}")
    print(json.dumps(took))


def rank(seconds):
    """One rank of a job; NCCL refuses two ranks on one GPU unless they seem to be on two hosts."""
    number = int(os.environ["RANK"])
    os.environ.update(NCCL_HOSTID=f"rank-{number}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    net = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda(), device_ids=[0])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    kept = []
    end = torch.tensor([0], device="cuda")
    begin = time.monotonic()
    failed = False
    while int(end.item()) == 0:
        if number == GUILTY and time.monotonic() > begin + seconds and not failed:
            failed = True
            kept.extend(torch.ones(64 << 18, device="cuda") for _ in range(8))
            try:
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                print(json.dumps(stats(torch)), flush=True)
        net(torch.randn(256, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        over = time.monotonic() > begin + seconds + 4
        end = torch.tensor([int(over)], device="cuda")
        dist.all_reduce(end)
    dist.destroy_process_group()


# ---- the checker --------------------------------------------------------------------------------

class Check:
    def __init__(self, args):
        self.args = args
        self.tidemark = args.tidemark.resolve()
        self.folder = args.folder.resolve()
        self.failures = 0

    def say(self, good, what):
        print(("ok    " if good else "WRONG ") + what, flush=True)
        self.failures += not good

    def run(self, *words, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("TIDEMARK", "CUDA_INJECTION"))}
        return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                              check=True, env=dict(environment, **variables)).stdout

    def report(self, path, *words):
        return json.loads(self.run(self.tidemark, "report", path, "--json", *words))

    def totals_at(self, trace, time_ns):
        """After the last event up to that time."""
        folder = self.folder / f"{trace.parent.name}.csv"
        self.run(self.tidemark, "export", trace, "--format", "csv", "--events", "-o", folder)
        last = None
        with open(folder / "events.csv", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if int(row["time_ns"]) > time_ns:
                    break
                last = row
        shutil.rmtree(folder)
        return {name: int(last[f"{name}_bytes"]) for name in ("allocated", "requested", "reserved")}

    def compare(self, what, trace, time_ns, truth):
        ours = self.totals_at(trace, time_ns)
        truth = {name: truth[name] for name in ours}
        self.say(ours == truth, f"{what}: {ours}" + ("" if ours == truth else f", torch: {truth}"))

    def oom(self):
        folder = self.folder / "oom"
        folder.mkdir(parents=True)
        self.run(self.tidemark, "run", "-q", "--keep", self.args.keep, "-o", folder / "out", "--",
                 sys.executable, HERE, "train", folder, self.args.seconds)
        told = json.loads((folder / "told.json").read_text())
        sealed = list((folder / "out").glob("oom-*/*.tmk"))
        last = list((folder / "out").glob("*.tmk"))
        self.say(len(sealed) == 1 and len(last) == 1, f"{len(sealed)} sealed window, {len(last)} last")
        device = self.report(sealed[0])["ranks"][0]["devices"][0]
        ooms = [oom for oom in device["oom"] if oom["layer"] == "torch"]
        self.say(len(ooms) == 1, f"{len(ooms)} out-of-memory error in the sealed window")
        self.compare("at the error", sealed[0], ooms[0]["time_ns"], told["oom"])
        self.compare("at the end", last[0], told["end"]["time_ns"], told["end"])
        report = self.report(last[0])
        run = report["ranks"][0]["devices"][0].get("whole_run")
        length = (report["source"]["end_ns"] - report["source"]["start_ns"]) / 1e9
        self.say(run is not None, f"window of {length:.1f} s with a curve of "
                 f"{((run or {}).get('end_ns', 0) - (run or {}).get('start_ns', 0)) / 1e9:.1f} s, "
                 f"{last[0].stat().st_size >> 10} KiB, {told['steps']} steps")
        for finding in report["findings"]:
            print(f"      {finding['id']}: {finding['summary']}")

    def cost(self):
        folder = self.folder / "cost"
        folder.mkdir(parents=True)
        took = json.loads(self.run(
            sys.executable, HERE, "cost", folder, self.args.keep, self.args.rounds,
            CUDA_INJECTION64_PATH=str(self.args.injector.resolve()), TIDEMARK_ARM="1").splitlines()[-1])
        medians = {mode: statistics.median(times) for mode, times in took.items()}
        more = [100 * (k / p - 1) for k, p in zip(took["keep"], took["plain"])]
        print("      ms per step: " + ", ".join(f"{m} {t:.3f}" for m, t in medians.items()))
        print(f"      --keep against plain: {statistics.median(more):+.2f} % (median of {len(more)} "
              f"pairs, {min(more):+.2f} to {max(more):+.2f} %)")
        self.say(statistics.median(more) < 2, "--keep costs the job no more than plain recording")

    def ranks(self):
        folder = self.folder / "ranks"
        folder.mkdir(parents=True)
        out = self.run(self.tidemark, "run", "-q", "--keep", self.args.keep, "-o", folder / "out", "--",
                       sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS,
                       "--master-port", 29611, HERE, "rank", max(8, self.args.seconds // 4))
        truth = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
        folders = [path for path in (folder / "out").glob("oom-*") if path.is_dir()]
        self.say(len(folders) == 1, f"sealed as {[path.name for path in folders]}")
        traces = sorted(folders[0].glob("*.tmk"))
        self.say(len(traces) == RANKS, f"{len(traces)} windows")
        job = self.report(folders[0])
        failed = [rank["rank"] for rank in job["ranks"] if rank["devices"] and rank["devices"][0]["oom"]]
        self.say(failed == [GUILTY], f"out of memory: {failed}")
        errors = {finding["rank"] for finding in job["findings"] if finding["severity"] == "error"}
        self.say(errors == {GUILTY}, f"the report blames {errors}")
        self.say(job["rank_comparison"]["highest"]["rank"] == GUILTY, "and finds it the highest")
        guilty = next(rank for rank in job["ranks"] if rank["rank"] == GUILTY)
        oom = guilty["devices"][0]["oom"][-1]
        # That of the rank itself is copied before torch raises its exception.
        for trace in traces:
            source = self.report(trace)["source"]
            self.say(source["start_ns"] < oom["time_ns"] <= source["end_ns"],
                     f"{trace.name}: from {(source['start_ns'] - oom['time_ns']) / 1e9:+.2f} s to "
                     f"{(source['end_ns'] - oom['time_ns']) / 1e9:+.2f} s around the error")
        self.say(oom["allocated_bytes"] == truth["allocated"] and
                 oom["reserved_bytes"] == truth["reserved"], "its totals equal torch's")


def main():
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(dest="part", required=True)
    check = parts.add_parser("check")
    check.add_argument("tidemark", type=pathlib.Path)
    check.add_argument("injector", type=pathlib.Path)
    check.add_argument("folder", type=pathlib.Path)
    check.add_argument("--seconds", type=int, default=40)
    check.add_argument("--keep", default="10s")
    check.add_argument("--rounds", type=int, default=12)
    check.add_argument("--only", choices=["oom", "cost", "ranks"])
    program = parts.add_parser("train")
    program.add_argument("folder", type=pathlib.Path)
    program.add_argument("seconds", type=float)
    program = parts.add_parser("cost")
    program.add_argument("folder", type=pathlib.Path)
    program.add_argument("keep")
    program.add_argument("rounds", type=int)
    program = parts.add_parser("rank")
    program.add_argument("seconds", type=float)
    args = parser.parse_args()
    if args.part == "train":
        return train(args.folder, args.seconds)
    if args.part == "cost":
        return cost(args.folder, args.keep, args.rounds)
    if args.part == "rank":
        return rank(args.seconds)
    check = Check(args)
    for name in [args.only] if args.only else ["oom", "cost", "ranks"]:
        print(name, flush=True)
        getattr(check, name)()
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
