"""Traces recorded by tidemark 0.1 stay readable, and give the numbers they always gave.

Never record these files again: that they are old is what is tested.
"""
import csv
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish, report, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CURVES = ("allocated", "requested", "reserved", "driver")

# Path -> events, and for the first device of each process: the peaks of CURVES (None: not known),
# errors.
CAPTURED = {
    "samples/traces/all_kinds": (17, [(0, 0, 0, 95641600, 0), (0, 0, 0, 0, 0)]),
    "samples/traces/leak": (801, [(0, 0, 0, 214958080, 0)]),
    "samples/traces/run_out": (152, [(0, 0, 0, 149554200576, 10)]),
    "samples/traces/torch/training.tier2.tmk":
        (4146, [(432631296, 423192648, 509607936, 644089856, 0)]),
    "samples/traces/torch/out_of_memory.tier1.tmk":
        (106, [(1056964608, None, 1056964608, 1056964608, 2)]),
    "samples/traces/torch/expandable.tier2.tmk":
        (4315, [(508559360, 508559360, 526385152, 600049664, 0)]),
    "samples/traces/attach/entered.tmk":
        (23039, [(403005952, 392257540, 469762048, 469762048, 0)]),
    "samples/traces/ranks/guilty4":
        (18791, [(271778304, 271777796, 293601280, 444860416, 0)] * 2
         + [(930271744, 930271236, 941621248, 1092880384, 1),
            (271778304, 271777796, 293601280, 444860416, 0)]),
    "tests/data/scenarios/stray_contexts.bad":
        (1756, [(370923008, 370920520, 421527552, 556009472, 0)]
         + [(512, 4, 2097152, 2097152, 0)] * 3),
}
# Snapshots that 0.1 imported; such traces do not name its version.
IMPORTED = {
    "tests/data/scenarios/batch_too_large.bad.tmk":
        (329, [(2317468160, 2317467904, 2336227328, 0, 1)]),
    "tests/data/scenarios/graph_pools.bad.tmk": (834, [(245884416, 245358864, 434110464, 0, 0)]),
}


def versions(path):
    """The versions of tidemark that recorded the processes of a trace."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "csv"
        check_equal(run("export", path, "--format", "csv", "-o", out).returncode, 0,
                    f"{path}: exported")
        with open(out / "settings.csv", encoding="utf-8") as file:
            return {row["value"] for row in csv.DictReader(file)
                    if (row["scope"], row["key"]) == ("tool", "version")}


def opens(name, events, devices):
    path = ROOT / name
    info = run("info", path)
    check_equal(info.returncode, 0, f"{name}: info")
    listed = re.search(r"^ +([\d,]+)  processes$", info.stdout, re.M)
    check(listed and int(listed[1].replace(",", "")) >= len(devices), f"{name}: its processes")
    seen = report(path)
    check_equal(seen["source"]["events"], events, f"{name}: events")
    found = [(*((d[f"{curve}_peak"] or {}).get("bytes") for curve in CURVES), len(d["oom"]))
             for rank in seen["ranks"] for d in rank["devices"][:1]]
    check_equal(found, devices, f"{name}: peaks and errors")


for name, (events, devices) in {**CAPTURED, **IMPORTED}.items():
    opens(name, events, devices)
for name in CAPTURED:
    found = versions(ROOT / name)
    check(found and all(version.startswith("0.1.") for version in found),
          f"{name}: recorded by 0.1, not by {sorted(found)}")

# The running version is another one, from one place for all programs.
here = re.search(r"project\(tidemark VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
check(not here.startswith("0.1."), f"version {here} is not the one that recorded the files")
check_equal(run("version").stdout.split()[1], here, "tidemark version")
check_equal(run("--version").stdout.split()[1], here, "tidemark --version")

finish()
