#!/usr/bin/env python3
"""Compares the reports of recorded programs (record.py) with what was planted in them.

    score.py TIDEMARK OUT [--seeds 0-99] [--details] [--parallel 4] [--json FILE]

Prints the confusion matrix, recall and precision of each finding, false statements, how many
findings name the planted line, step counts, categories, and predicted against real savings.
--details adds a line per seed that is not entirely right, for seeds below 1,000 only: the others
are for scoring, and nobody looks into them. Always exits with 0.
"""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys

from planted import DEVELOPMENT
from record import parse_seeds

NEAR = 0.02         # peaks that differ by less are the same instant
WITHIN = 0.15
# What the repaired twin does, where the truth does not name it; other advice has another effect.
REPAIRS = {"shape_variance": ("pad_shapes",)}
# True of every recording made while other programs use the same card.
AROUND = {"other_process", "stray_context"}


@dataclasses.dataclass
class Judgement:
    """What a report got right and wrong about one program."""
    seed: int
    cause: str | None
    family: str
    findings: dict                # id -> highest severity
    false_alarms: list            # warnings and errors that are not true
    false_notes: list
    found: bool = False           # the cause is among the findings
    names_line: bool | None = None  # None: there is no line to name, or the cause was not found
    steps_expected: object = "unknown"
    steps_found: int | None = None
    steps_source: str = ""
    labelled: dict = dataclasses.field(default_factory=dict)  # category -> (right, all) bytes
    saving: tuple | None = None   # predicted, real


SEVERITIES = ["info", "warning", "error"]


def findings_of(report):
    found = {}
    for finding in report["findings"]:
        before = found.get(finding["id"], "info")
        found[finding["id"]] = max(before, finding["severity"], key=SEVERITIES.index)
    return found


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings_of(part)


def names_line(finding, lines):
    """Whether a finding's frames or texts hold one of the planted lines as FILE:LINE."""
    wanted = re.compile("|".join(rf"(?:^|[\s/(]){re.escape(line['file'])}:{line['line']}(?!\d)"
                                 for line in lines))
    return any(wanted.search(text) for text in strings_of(finding))


def devices_of(report):
    return [device for rank in report["ranks"] for device in rank["devices"]]


def busiest(report):
    """The device that the truth describes: of the first rank that used any memory."""
    used = [d for d in devices_of(report) if d["allocated_peak"]["bytes"] > 0]
    return used[0] if used else None


def steps_of(device):
    steps = device.get("steps") if device else None
    if not steps or steps.get("count", 0) <= 1:
        return None, ""
    return steps["count"], steps.get("source", "")


def same(one, other):
    return abs(one - other) <= NEAR * max(one, other, 1)


def labels_of(truth, device):
    """category -> (bytes that are right, bytes labelled or reported) at the peak."""
    measured = truth["measured"]
    if device is None or not same(device["allocated_peak"]["bytes"], measured["allocated_peak"]):
        return {}
    reported = collections.Counter()
    for row in device.get("by_category", []):
        reported[row["category"]] += row["bytes"]
    return {name: (min(reported[name], size), max(reported[name], size))
            for name, size in measured.get("labels", {}).items() if size > 0}


def saving_of(truth, report, device):
    """(predicted, real) bytes of the advice for the cause, or None."""
    real = truth.get("saving")
    if not real or real <= 0 or device is None:
        return None
    reference = truth.get("unlimited") or truth["measured"]
    if truth["measure"] == "allocated" and not same(
            device["allocated_peak"]["bytes"], reference["allocated_peak"]):
        return None  # the recording does not hold the peak
    advice = [a for f in report["findings"] if f["id"] == truth["cause"] for a in f["advice"]]
    repair = truth["advice"] or REPAIRS.get(truth["cause"], ())
    wanted = [a for a in advice if a["action"] in repair] or advice
    predicted = max((a.get("saves_bytes", 0) for a in wanted), default=0)
    return (predicted, real) if advice else None


def judge(truth, report):
    found = findings_of(report)
    cause, allowed = truth["cause"], {truth["cause"], *truth["also"], *AROUND}
    false = [(name, severity) for name, severity in found.items() if name not in allowed]
    result = Judgement(
        truth["seed"], cause, truth["options"]["family"], found,
        [name for name, severity in false if severity != "info"],
        [name for name, severity in false if severity == "info"])
    device = busiest(report)
    result.found = cause in found if cause else False
    if result.found and truth["lines"]:
        result.names_line = any(names_line(f, truth["lines"]) for f in report["findings"]
                                if f["id"] == cause)
    result.steps_expected = truth["steps"]
    result.steps_found, result.steps_source = steps_of(device)
    result.labelled = labels_of(truth, device)
    if result.found:
        result.saving = saving_of(truth, report, device)
    for group in ("compiled", "parallel"):
        if truth["options"].get(group) not in (None, False, "none"):
            result.family = f"{group if group == 'compiled' else truth['options'][group]}"
    return result


def share(part, whole):
    return part / whole if whole else None


def percent(value):
    return "    –" if value is None else f"{100 * value:4.0f} %"


def confusion(judgements):
    """cause -> Counter of what was said instead (the cause itself if it was found)."""
    matrix = collections.defaultdict(collections.Counter)
    for j in judgements:
        said = j.cause if j.found else (j.false_alarms or j.false_notes or ["nothing"])[0]
        if j.cause is None and not j.false_alarms and not j.false_notes:
            said = "nothing"
        matrix[j.cause or "healthy"][said] += 1
    return matrix


def scores(judgements):
    """finding -> counts, recall and precision."""
    names = {j.cause for j in judgements if j.cause}
    names |= {name for j in judgements for name in j.false_alarms + j.false_notes}
    table = {}
    for name in sorted(names):
        cases = [j for j in judgements if j.cause == name]
        found = [j for j in cases if j.found]
        false = sum(name in j.false_alarms for j in judgements)
        lines = [j.names_line for j in found if j.names_line is not None]
        table[name] = {
            "cases": len(cases), "found": len(found),
            "only_note": sum(j.findings[name] == "info" for j in found),
            "false_alarms": false, "false_notes": sum(name in j.false_notes for j in judgements),
            "recall": share(len(found), len(cases)),
            "precision": share(len(found), len(found) + false),
            "lines_named": sum(lines), "lines_possible": len(lines)}
    return table


def step_score(judgements):
    known = [j for j in judgements if j.steps_expected != "unknown"]

    def off(j):
        return abs((j.steps_found or 0) - (j.steps_expected or 0))

    groups = {"none": [j for j in known if j.steps_expected is None],
              "counted": [j for j in known if j.steps_expected is not None]}
    return {"known": len(known), "exact": sum(off(j) == 0 for j in known),
            "within_one": sum(off(j) <= (1 if j.steps_expected else 0) for j in known),
            "none_right": sum(off(j) == 0 for j in groups["none"]), "none": len(groups["none"]),
            "counted_within_one": sum(off(j) <= 1 for j in groups["counted"]),
            "counted": len(groups["counted"])}


def category_score(judgements):
    """family -> category -> (right, all) bytes, and of all categories together."""
    table = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    for j in judgements:
        for category, (right, whole) in j.labelled.items():
            for name in (category, "all"):
                table[j.family][name][0] += right
                table[j.family][name][1] += whole
    return {family: {name: tuple(pair) for name, pair in row.items()}
            for family, row in table.items()}


def saving_score(judgements):
    errors = [abs(predicted - real) / real for predicted, real in
              (j.saving for j in judgements if j.saving)]
    return {"compared": len(errors), "median_error": statistics.median(errors) if errors else None,
            "within": share(sum(e <= WITHIN for e in errors), len(errors))}


def summarise(judgements):
    healthy = [j for j in judgements if j.cause is None]
    return {
        "programs": len(judgements), "healthy": len(healthy),
        "healthy_with_alarm": sum(bool(j.false_alarms) for j in healthy),
        "healthy_with_note": sum(bool(j.false_notes) for j in healthy),
        "confusion": {row: dict(counts) for row, counts in sorted(confusion(judgements).items())},
        "findings": scores(judgements), "steps": step_score(judgements),
        "categories": category_score(judgements), "savings": saving_score(judgements)}


def print_summary(s):
    print(f"{s['programs']} programs, {s['healthy']} of them healthy\n\nplanted: what was found")
    for row, counts in s["confusion"].items():
        said = sorted(counts.items(), key=lambda item: (item[0] != row, -item[1]))
        print(f"  {row:22} {sum(counts.values()):3}: " + ", ".join(f"{n} {c}" for n, c in said))
    print("\nfinding                 cases found recall (notes) false precision false notes  line "
          "named")
    for name, f in s["findings"].items():
        print(f"  {name:22} {f['cases']:4} {f['found']:5} {percent(f['recall'])} "
              f"{f['only_note']:7} {f['false_alarms']:5}    {percent(f['precision'])} "
              f"{f['false_notes']:11}  {f['lines_named']:6} of {f['lines_possible']}")
    named = sum(f["lines_named"] for f in s["findings"].values())
    possible = sum(f["lines_possible"] for f in s["findings"].values())
    print(f"\nplanted line named: {named} of {possible} {percent(share(named, possible))}")
    print(f"healthy programs with a false warning: {s['healthy_with_alarm']}, with a false note: "
          f"{s['healthy_with_note']} of {s['healthy']}")
    steps = s["steps"]
    print(f"steps: exact {steps['exact']} of {steps['known']}, within one {steps['within_one']} "
          f"{percent(share(steps['within_one'], steps['known']))}; rightly none "
          f"{steps['none_right']} of {steps['none']}")
    print("categories (bytes right at the peak)")
    for family, row in sorted(s["categories"].items()):
        cells = ", ".join(f"{name} {percent(share(*pair)).strip()}"
                          for name, pair in sorted(row.items()))
        print(f"  {family:16} {cells}")
    saving = s["savings"]
    print(f"savings: {saving['compared']} compared, median error "
          f"{percent(saving['median_error'])}, within 15 %: {percent(saving['within'])}")


def remarks(j):
    """What is wrong with one report, as short texts."""
    if j.cause and not j.found:
        yield f"missed {j.cause}"
    if j.false_alarms:
        yield "false warning " + ", ".join(j.false_alarms)
    if j.false_notes:
        yield "false note " + ", ".join(j.false_notes)
    if j.names_line is False:
        yield "line not named"
    if j.steps_expected != "unknown" and j.steps_found != j.steps_expected:
        yield f"steps {j.steps_found} instead of {j.steps_expected} ({j.steps_source or 'none'})"
    for name, (right, whole) in j.labelled.items():
        if right < 0.95 * whole:
            yield f"{name} {100 * right / whole:.0f} %"
    if j.saving and abs(j.saving[0] - j.saving[1]) > WITHIN * j.saving[1]:
        predicted, real = j.saving[0] / 2**20, j.saving[1] / 2**20
        yield f"saving {predicted:,.0f} MiB predicted, {real:,.0f} MiB real"


def recording_of(folder, ranks):
    """The trace or snapshot of a seed; a directory if it has several ranks."""
    for name, pattern in (("trace", "*.tmk"), ("snapshot", "*.pickle.gz")):
        files = sorted((folder / name).glob(pattern), key=lambda file: file.stat().st_size)
        if files:  # the largest: compilers and the like are processes of their own
            return files[-1] if ranks == 1 else folder / name
    return None


def score_folder(tidemark, folder):
    """(truth, judgement or None, why there is none) of one seed."""
    truth = json.loads((folder / "truth.json").read_text())
    if not truth.get("valid", True):
        return truth, None, f"not valid: {truth['why']}"
    recording = recording_of(folder, truth["ranks"])
    if recording is None:
        return truth, None, "no recording"
    done = subprocess.run([tidemark, "report", recording, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        return truth, None, f"report failed: {done.stderr.strip()[:200]}"
    return truth, judge(truth, json.loads(done.stdout)), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tidemark", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seeds", type=parse_seeds)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path, help="write the summary to this file")
    options = parser.parse_args()
    folders = [f for f in sorted(options.out.glob("seed*")) if (f / "truth.json").exists()]
    if options.seeds is not None:
        folders = [f for f in folders if int(f.name[4:]) in set(options.seeds)]
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        results = list(pool.map(lambda f: score_folder(options.tidemark.resolve(), f), folders))
    judgements = [j for _, j, _ in results if j is not None]
    if options.details:
        for truth, j, why in results:
            problems = [why] if why else list(remarks(j))
            if problems and truth["seed"] < DEVELOPMENT:
                print(f"seed {truth['seed']:3} {truth['cause'] or 'healthy'} "
                      f"({truth['options']['variant'] or truth['options']['family']}): "
                      + "; ".join(problems))
        print()
    left_out = [why for _, j, why in results if j is None]
    if left_out:
        reasons = collections.Counter(re.split(r"[:\d]", why)[0] for why in left_out)
        print("not scored: " + ", ".join(f"{count} {why}" for why, count in reasons.items()))
    summary = summarise(judgements)
    print_summary(summary)
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
