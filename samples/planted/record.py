#!/usr/bin/env python3
"""Records the programs of planted.py on a GPU, several at a time.

    record.py TIDEMARK OUT --seeds 0-99 [--parallel 6] [--time-limit 60] [--no-twins]

Needs PyTorch and one GPU. A seed's program runs up to three times, each in a process of its own:
unlimited, where the truth needs its peaks (to choose a limit, or to compare with its twin), then
recorded, and repaired. OUT holds, for every seed:

    seed00012/program/         the program and what it needs, as planted.py writes them
    seed00012/trace/*.tmk      recorded by `tidemark run`, or
    seed00012/snapshot/*.pickle.gz   torch's own history, one file per rank
    seed00012/truth.json       the truth, with "measured" (torch's statistics of the recorded run),
                               "unlimited", "twin" (of the repaired program), "saving" (bytes that
                               the repair really saves) and "valid" (false, and "why", if the
                               program did not do what its cause promises; then it is not scored)
    seed00012/log.txt          output of the runs
    log.txt                    a line per seed, as printed

The limits: "below_allocated" and "share" give the program 85 % of the allocated peak it would need,
"in_step" 92 %, which only the optimizer's step exceeds, and "half_of_long" half of the last large
request too little.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

from planted import DEVELOPMENT, HERE, write

sys.path.append(str(HERE.parent / "scenarios"))
from scenario import shorten_paths  # noqa: E402

MIB = 1 << 20
CARELESS = 24 << 30  # no program needs that much; protects the others on the card
LONG_REQUEST = 220 * MIB
AT_LEAST = 0.03      # of the peak; if the repair saves less, the cause had no effect
lines_lock = threading.Lock()


class Failed(Exception):
    pass


def run(command, folder, environment, limit_s, log):
    """Runs a command in a process group of its own, which is killed after `limit_s` seconds."""
    with open(log, "ab") as out:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out,
                                 stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"took longer than {limit_s} s") from None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    if status != 0:
        raise Failed(f"exit status {status}: {last_line(log)}")


def last_line(log):
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no output"


def execute(folder, truth, options, log, limit=None, share=None, recorded_by=None):
    """Runs a program once and returns torch's statistics of it."""
    statistics = folder / "statistics.json"
    for old in folder.glob("statistics.json*"):
        old.unlink()
    environment = dict(os.environ, PLANTED_STATISTICS=str(statistics), OMP_NUM_THREADS="2",
                       TORCHINDUCTOR_COMPILE_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if truth["options"]["allocator"]:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = truth["options"]["allocator"]
    if share:
        environment["GPU_SHARE"] = repr(share)
    if limit:
        environment["PLANTED_LIMIT_BYTES"] = str(int(limit))
    command = [sys.executable, truth["script"]]
    if truth["ranks"] > 1:
        command = [sys.executable, str(HERE / "launch.py"), str(truth["ranks"]), truth["script"]]
    run((recorded_by or []) + command, folder, environment, options.time_limit, log)
    for file in folder.glob("*.pt"):
        file.unlink()
    files = sorted(folder.glob("statistics.json*"))
    if not files:
        raise Failed("wrote no statistics")
    return json.loads(files[0].read_text())


def limit_of(truth, unlimited):
    """(limit in bytes, share of the card) for the recorded run."""
    kind = truth["limit"]
    if kind is None:
        real_card = truth["options"]["variant"] == "one_request"
        return (None if real_card else CARELESS), None
    allocated, reserved = unlimited["allocated_peak"], unlimited["reserved_peak"]
    if kind == "below_allocated":
        return 0.85 * allocated, None
    if kind == "share":
        return None, 0.85 * allocated / unlimited["total_memory"]
    if kind == "half_of_long":
        return reserved - LONG_REQUEST // 2, None
    return 0.92 * allocated, None  # "in_step"


def keep_snapshot(file, target, annotations):
    """Compresses a snapshot, with short file names and without annotations if so chosen."""
    with open(file, "rb") as stream:
        snapshot = pickle.load(stream)
    shorten_paths(snapshot)
    if not annotations:
        snapshot["external_annotations"] = []
    with gzip.GzipFile(target, "wb", 6, mtime=0) as stream:
        pickle.dump(snapshot, stream, protocol=4)
    file.unlink()


def difference(truth, before, after):
    """What the repair saves, in bytes of the peak that matters; None if nothing can be compared."""
    measure = truth["measure"]
    if measure is None or before is None or after is None:
        return None
    if measure == "driver":
        return truth["bytes"]
    return before[f"{measure}_peak"] - after[f"{measure}_peak"]


def objection(truth):
    """Why a recording does not show what its truth says, or None."""
    measured = truth["measured"]
    if measured["oom"] != truth["expect_oom"]:
        return "ran out of memory" if measured["oom"] else "did not run out of memory"
    if truth["cause"] in ("capacity", "fragmentation") and measured["oom"] and (
            measured["oom_verdict"] not in (None, truth["cause"])):
        return f"ran out of memory for {measured['oom_verdict']}"
    if truth["saving"] is not None and truth["measure"] not in ("driver", "pinned"):
        if truth["saving"] < AT_LEAST * measured[f"{truth['measure']}_peak"]:
            return f"the repair saves only {truth['saving'] / MIB:.1f} MiB"
    return None


def record_seed(tidemark, out, seed, options):
    folder = out / f"seed{seed:05}"
    shutil.rmtree(folder, ignore_errors=True)
    program, twin = folder / "program", folder / "twin"
    truth = write(seed, False, program)
    log = folder / "log.txt"
    chosen = truth["options"]
    unlimited = repaired = None
    if truth["limit"]:
        unlimited = execute(program, truth, options, log, limit=CARELESS)
        for stale in program.glob("*.pickle"):
            stale.unlink()
    limit, share = limit_of(truth, unlimited)
    recorder = None
    if chosen["recording"] == "trace":
        recorder = [str(tidemark), "run", "-q", "--no-kernels", "-o", str(folder / "trace"), "--"]
    truth["measured"] = execute(program, truth, options, log, limit, share, recorder)
    for file in program.glob("*.pickle"):
        (folder / "snapshot").mkdir(exist_ok=True)
        keep_snapshot(file, folder / "snapshot" / (file.name + ".gz"), chosen["annotations"])
    if truth["cause"] and truth["measure"] and not options.no_twins:
        write(seed, True, twin)
        repaired = execute(twin, truth, options, log, limit=CARELESS)
        shutil.rmtree(twin)
    truth["unlimited"], truth["twin"] = unlimited, repaired
    truth["saving"] = difference(truth, unlimited or truth["measured"], repaired)
    truth["bytes"] = truth["bytes"] or truth["saving"]
    if truth["measured"]["oom_verdict"] and truth["cause"] not in ("capacity", "fragmentation"):
        truth["also"].append(truth["measured"]["oom_verdict"])
    truth["why"] = objection(truth)
    truth["valid"] = truth["why"] is None
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def size_of(folder):
    files = list(folder.glob("trace/*.tmk")) + list(folder.glob("snapshot/*.pickle.gz"))
    return sum(file.stat().st_size for file in files)


def describe(out, seed, truth, seconds):
    if seed >= DEVELOPMENT:
        return f"{seed:5} {'recorded' if truth['valid'] else 'not valid'} {seconds:5.1f} s"
    chosen, measured = truth["options"], truth["measured"]
    saving = "" if truth["saving"] is None else f"  saves {truth['saving'] / MIB:,.0f} MiB"
    problem = "" if truth["valid"] else f"  NOT VALID: {truth['why']}"
    return (f"{seed:5} {truth['cause'] or 'healthy':22} {chosen['family']:15} "
            f"{chosen['recording']:8} {chosen['window']:6} {seconds:5.1f} s  "
            f"{measured['allocated_peak'] / MIB:7,.0f} MiB  "
            f"{size_of(out / f'seed{seed:05}') / 1024:7,.0f} KiB{saving}{problem}")


def record_and_print(tidemark, out, seed, options):
    begin = time.monotonic()
    try:
        truth = record_seed(tidemark, out, seed, options)
        line, good = describe(out, seed, truth, time.monotonic() - begin), truth["valid"]
    except Exception as error:  # one seed must never stop the others
        line, good = f"{seed:5} FAILED: {type(error).__name__}: {error}", False
        (out / f"seed{seed:05}" / "truth.json").unlink(missing_ok=True)
    with lines_lock:
        print(line, flush=True)
        with open(out / "log.txt", "a") as log:
            log.write(line + "\n")
    return good


def parse_seeds(text):
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tidemark", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-99"))
    parser.add_argument("--parallel", type=int, default=6, help="programs at a time")
    parser.add_argument("--time-limit", type=int, default=60, help="seconds for one run")
    parser.add_argument("--deadline", type=int, help="begin no further seed after so many seconds")
    parser.add_argument("--no-twins", action="store_true", help="do not run the repaired programs")
    options = parser.parse_args()
    tidemark = options.tidemark.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    out, begin = options.out.resolve(), time.monotonic()

    def one(seed):
        if options.deadline and time.monotonic() - begin > options.deadline:
            return None
        return record_and_print(tidemark, out, seed, options)

    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        results = list(pool.map(one, options.seeds))
    print(f"{results.count(True)} valid, {results.count(False)} not, "
          f"{results.count(None)} not begun, {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
