"""Records a short training on a real GPU while NVML never answers.

    python3 hung_nvml.py TIDEMARK FOLDER      exit 0 if the job ends in time and its trace is readable
    python3 hung_nvml.py train                the job itself

The library that hangs is hung_nvml.cpp, preloaded as libnvidia-ml.so.1. The job must end within 3 s
of its own end, and its trace must have torch's own peak and say what is missing.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

MOST_SECONDS = 3


def train():
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(50):
        loss = model(torch.randn(256, 2048, device="cuda")).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        time.sleep(0.02)  # long enough for readings of NVML
    torch.cuda.synchronize()
    print(json.dumps({"peak": torch.cuda.max_memory_allocated(), "end": time.time()}), flush=True)


def real_nvml():
    listed = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=False)
    paths = [line.split("=>")[1].strip() for line in listed.stdout.splitlines()
             if "libnvidia-ml.so.1" in line]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") + ["/usr/local/nvidia/lib64"]:
        paths.append(os.path.join(folder, "libnvidia-ml.so.1"))
    return next((path for path in paths if os.path.exists(path)), "libnvidia-ml.so.1")


def check(tidemark, folder):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    double, out = folder / "libnvidia-ml.so.1", folder / "out"
    subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-O2",
                    "-Wl,-soname,libnvidia-ml.so.1", "-o", double,
                    pathlib.Path(__file__).with_suffix(".cpp"), "-ldl"], check=True)
    job = subprocess.run([tidemark, "run", "-o", out, "--", "env", f"LD_PRELOAD={double}",
                          f"REAL_NVML={real_nvml()}", sys.executable, __file__, "train"],
                         stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    ended = time.time()
    told = json.loads(job.stdout.splitlines()[-1])
    report = json.loads(subprocess.run([tidemark, "report", out, "--json"], check=True,
                                       stdout=subprocess.PIPE, text=True).stdout)
    peak = report["ranks"][0]["devices"][0]["allocated_peak"]["bytes"]
    late = ended - told["end"]
    checks = {f"exit status {job.returncode}": job.returncode == 0,
              f"ended {late:.2f} s after its own end": late <= MOST_SECONDS,
              f"peak {peak}, torch says {told['peak']}": peak == told["peak"],
              "the report says that NVML did not answer": "did not answer" in json.dumps(report)}
    for what, good in checks.items():
        print("ok  " if good else "FAIL", what)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(train() if sys.argv[1] == "train" else check(*sys.argv[1:3]))
