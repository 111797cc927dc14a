"""Runs every program of programs.py under tidemark and compares the report with torch's statistics.

    python3 samples/torch/check.py TIDEMARK OUT [NAME …]

Needs a GPU. Each program runs with both tiers. OUT receives the traces, torch's statistics and a
table; the exit status is 1 if a number differs.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["training", "mixed_precision", "streams", "graphs", "expandable", "compiled", "inference",
         "out_of_memory", "threads"]


def record(tidemark, out, name, tier):
    folder = out / f"{name}.tier{tier}"
    truth = out / f"{name}.tier{tier}.json"
    environment = dict(os.environ, TIDEMARK_BRIDGE="1" if tier == 2 else "0")
    if name == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([tidemark, "run", "-q", "-o", folder, "--", sys.executable, HERE / "programs.py", name,
                    "--truth", truth], env=environment, check=True, stdout=subprocess.DEVNULL)
    traces = sorted(folder.glob("*.tmk"), key=lambda path: path.stat().st_size)
    report = subprocess.run([tidemark, "report", traces[-1], "--json"], check=True,
                            stdout=subprocess.PIPE).stdout
    return json.loads(truth.read_text()), json.loads(report), traces[-1]


def compare(truth, report, tier):
    device = report["ranks"][0]["devices"][0]
    names = ["allocated", "reserved"] + (["requested"] if tier == 2 else [])
    wrong = []
    for name in names:
        ours = device[f"{name}_peak"]["bytes"]
        if ours != truth[f"{name}_peak"]:
            wrong.append(f"{name} {ours} instead of {truth[f'{name}_peak']}")
    ooms = sum(1 for oom in device["oom"] if oom["layer"] == "torch")
    if ooms != truth["ooms"]:
        wrong.append(f"{ooms} out-of-memory errors instead of {truth['ooms']}")
    return wrong


def check(tidemark, out, name, tier):
    try:
        truth, report, trace = record(tidemark, out, name, tier)
        wrong, size = compare(truth, report, tier), trace.stat().st_size
    except (subprocess.CalledProcessError, OSError, KeyError, IndexError, TypeError,
            ValueError) as error:
        wrong, size = [f"{type(error).__name__}: {error}"], 0
    print(f"{name:16} tier {tier}  {size:8} bytes  {'; '.join(wrong) or 'equal to the byte'}",
          flush=True)
    return not wrong


def main():
    tidemark, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    names = sys.argv[3:] or NAMES
    check(tidemark, out, names[0], 2)  # builds the bridge
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda job: check(tidemark, out, *job),
                             [(name, tier) for name in names for tier in (2, 1)]))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
