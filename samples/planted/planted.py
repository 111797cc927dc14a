#!/usr/bin/env python3
"""Writes a PyTorch program with one planted memory problem, or none, chosen by a seed.

    planted.py SEED [--repaired] [--out DIR]

Writes to DIR (by default planted-SEED): the program, run_statistics.py, which it imports, and
truth.json: the seed, the options, the cause (the id of the finding, or null), the lines that count
as naming it, the number of steps, and how the repair is measured. With --repaired the same program
without the problem. The same seed always gives the same program. record.py runs the programs.

Seeds below 1,000 are for development, others only for scoring.
"""
import argparse
import dataclasses
import json
import pathlib
import random
import shutil

import extraction
import serving
import training
from page import finish
from recipe import choose

DEVELOPMENT = 1000  # seeds below may be looked into
HERE = pathlib.Path(__file__).resolve().parent


def expected_steps(r, plan):
    """Steps in the recording: a number, None for none, "unknown" where nobody could say."""
    if plan.expect_oom or r.cause in ("fragmentation", "graph_private_pool"):
        return "unknown"
    if r.window == "single":
        return None
    return r.steps - r.record_from


def generate(seed, repaired=False):
    """(source, truth) of a seed's program."""
    r = choose(seed)
    composer = extraction if r.cause == "fragmentation" else serving if r.serving else training
    lines, file, plan = composer.compose(r, random.Random(f"program {seed}"), repaired)
    source, planted = finish(lines, file)
    options = dataclasses.asdict(r)
    del options["habits"], options["seed"], options["cause"]
    truth = {
        "seed": seed, "script": file, "cause": r.cause, "options": options,
        "lines": planted if r.cause and not repaired else [],
        "bytes": plan.bytes, "steps": expected_steps(r, plan), "ranks": r.ranks,
        "measure": plan.measure if r.cause else None, "advice": list(plan.advice),
        "also": list(plan.also), "limit": plan.limit, "expect_oom": plan.expect_oom,
    }
    return source, truth


def write(seed, repaired, folder):
    source, truth = generate(seed, repaired)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / truth["script"]).write_text(source)
    shutil.copy(HERE / "run_statistics.py", folder / "run_statistics.py")
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--repaired", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    folder = options.out or pathlib.Path(f"planted-{options.seed}")
    truth = write(options.seed, options.repaired, folder)
    print(f"{folder / truth['script']}: {truth['cause'] or 'healthy'}")


if __name__ == "__main__":
    main()
