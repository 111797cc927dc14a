"""Checks that runs recorded on a real GPU yield exactly the expected findings.

    python3 scenarios.py TIDEMARK            the recorded scenarios of tests/data/scenarios
    python3 scenarios.py TIDEMARK --table    also prints promised and real savings

The advice must promise what the fixed program really saved. samples/scenarios has the programs.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import DATA, check, check_equal, finish, report, run  # noqa: E402

ROOT = DATA.parent.parent
RUNS = DATA / "scenarios"
EXPECTED = json.loads((ROOT / "samples" / "scenarios" / "expected.json").read_text())
WITHIN = 0.10  # of what the fix really saved


def alarms(path):
    return sorted({f["id"] for f in report(path)["findings"] if f["severity"] != "info"})


def phases(path):
    """How often the program did something other than train; every program has a first step."""
    counts = {}
    for rank in report(path)["ranks"]:
        for d in rank["devices"]:
            for phase in d.get("phases", []):
                if phase["phase"] != "first_step":
                    counts[phase["phase"]] = counts.get(phase["phase"], 0) + phase["count"]
    return counts


def peak(path):
    """The allocated peak of the highest rank."""
    return max(d["allocated_peak"]["bytes"]
               for rank in report(path)["ranks"] for d in rank["devices"])


def run_of(name, variant):
    """A file, or a directory for a job of several ranks or processes; None when not recorded."""
    for path in (RUNS / f"{name}.{variant}.tmk", RUNS / f"{name}.{variant}"):
        if path.exists():
            return path
    return None


def references(path):
    """Findings whose advice another one refers to; they stand above it, with advice of their own."""
    text = run("report", path).stdout
    for match in re.finditer(r"-> the advice of (\w+) applies here, too", text):
        told = re.search(rf"^{match[1]}\n(?:  .*\n)*?  -> (?!the advice of)", text[:match.start()], re.M)
        check(told, f"{path.name}: {match[1]} stands above with its advice")
        yield match[1]


table, referred = [], set()
for name, expected in EXPECTED.items():
    bad = run_of(name, "bad")
    if bad is None:
        check(False, f"{name}: is expected but was not recorded")
        continue
    check_equal(alarms(bad), expected["findings"], f"{name}: findings")
    referred.update(references(bad))
    told = {f["id"] for f in report(bad)["findings"]}
    check(told >= set(expected.get("notes", ())), f"{name}: notes: {told}")
    fixed = run_of(name, "fixed")
    if fixed is not None:
        check_equal(alarms(fixed), [], f"{name}, repaired: findings")
    for path in filter(None, (bad, fixed)):
        check_equal(phases(path), expected.get("phases", {}), f"{path.name}: phases")
    saving = expected.get("saving")
    if saving is None:
        continue
    whole = run_of(name, saving["trace"])
    check(whole is not None and fixed is not None, f"{name}: both runs of the saving are there")
    # On a large card there would be no reason to save anything.
    told = report(whole, "--card", str(peak(whole)))
    advice = [a for f in told["findings"] if f["id"] == saving["finding"]
              for a in f["advice"] if a["action"] == saving["action"]]
    check(len(advice) == 1, f"{name}: advises {saving['action']}")
    if not advice:
        continue
    promised, real = advice[0]["saves_bytes"], peak(whole) - peak(fixed)
    table.append((name, saving["action"], promised, real))
    check(abs(promised - real) <= WITHIN * real,
          f"{name}: {saving['action']} promises {promised}, the repair saved {real}")

if "--table" in sys.argv:
    for name, action, promised, real in table:
        print(f"| {name} | {action} | {promised / 2**20:,.1f} MiB | {real / 2**20:,.1f} MiB |")
check(referred, "advice that several findings share is referred to")
check(len(table) >= 5, "savings of at least five scenarios are compared")
finish()
