"""Runs every program of instants_programs.py under tidemark and compares the report with torch's
statistics and with cuMemGetInfo.

    python3 samples/torch/instants.py TIDEMARK OUT [NAME …]

Needs a GPU. OUT receives the traces and torch's numbers; a table is printed; the exit status is 1
if a number differs.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

from instants_programs import ASYNC, PROGRAMS

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
MAY_DIFFER = 4 * MIB  # between what NVML and cuMemGetInfo say


def report(tidemark, trace, *options):
    done = subprocess.run([tidemark, "report", trace, "--json", *options], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def record(tidemark, out, name):
    """Truth, report and trace of each process that wrote a truth."""
    folder, truth = out / name, out / f"{name}.json"
    for path in (folder, truth, pathlib.Path(f"{truth}.second")):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    environment = dict(os.environ)
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if PROGRAMS[name].conf:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = PROGRAMS[name].conf
    done = subprocess.run(
        [tidemark, "run", "-q", "-o", folder, "--", sys.executable,
         HERE / "instants_programs.py", name, "--truth", truth],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=150)
    if done.returncode != 0:
        raise ValueError(f"exit status {done.returncode}: {done.stderr[-400:]}")
    reports = [(report(tidemark, trace), trace) for trace in folder.glob("*.tmk")]
    by_pid = {r["ranks"][0]["pid"]: (r, trace) for r, trace in reports if r["ranks"]}
    truths = [json.loads(path.read_text()) for path in sorted(out.glob(f"{name}.json*"))]
    return [(each, *by_pid[each["pid"]]) for each in truths]


def line(device, owner):
    return sum(each["bytes"] for each in device["ledger_at_peak"] if each["owner"] == owner)


def on_card(device):
    return sum(each["bytes"] for each in device["ledger_at_peak"] if each.get("on_card", True))


def compare_peaks(truth, device, is_async):
    names = ["allocated", "reserved"] + ([] if is_async else ["requested"])
    for name in names:
        ours = device[f"{name}_peak"]["bytes"]
        if ours != truth[f"{name}_peak"]:
            yield f"{name} {ours} instead of {truth[f'{name}_peak']}"


def compare_ledger(device):
    """At the peak: the instant, PyTorch's line, the sum."""
    # What sleeps is still allocated for PyTorch.
    allocated = line(device, "torch.allocated") + line(device, "torch.not_resident")
    if allocated != device["allocated_peak"]["bytes"]:
        yield f"torch.allocated {allocated} at the peak of {device['allocated_peak']['bytes']}"
    if device["ledger_time_ns"] != device["allocated_peak"]["time_ns"]:
        yield "the ledger is of another instant"
    if on_card(device) != device["ledger_device_used_bytes"]:
        yield "the ledger's lines do not add up"
    if device["ledger_device_used_bytes"] == 0:
        yield "no reading of the card was usable"


def compare_error(truth, device, at_error, is_async):
    expected = truth["errors"] if is_async else truth["ooms"]
    if device["oom_count"] != expected:
        yield f"{device['oom_count']} errors instead of {expected}"
    if not device["oom"] or "at_error" not in truth:
        return
    last, told = device["oom"][-1], truth["at_error"]
    if last["layer"] != "torch":
        yield f"the error is one of {last['layer']}"
    for name in ["requested", "allocated"] + ([] if is_async else ["reserved"]):
        if last[f"{name}_bytes"] != told[name]:
            yield f"{name} {last[f'{name}_bytes']} at the error instead of {told[name]}"
    if line(at_error, "torch.allocated") != told["allocated"]:
        yield f"torch.allocated {line(at_error, 'torch.allocated')} at the error"
    if "limit" in truth and device["limit"] != {"bytes": truth["limit"], "at_least": False,
                                                "source": "fraction"}:
        yield f"limit {device['limit']} instead of {truth['limit']}"
    if "limit" not in truth and not is_async:
        if device["limit"]["source"] != "driver":
            yield f"limit {device['limit']}"
        if device["alloc_retries"] != truth["retries"] - truth["ooms"]:
            yield (f"{device['alloc_retries']} retries instead of "
                   f"{truth['retries'] - truth['ooms']}")


def compare_findings(expect, whole):
    found = {each["id"] for each in whole["findings"]}
    for ids in expect:
        if ids.startswith("!"):
            if ids[1:] in found:
                yield f"finding {ids[1:]}"
        elif not found & set(ids.split("|")):
            yield f"no finding {ids} among {sorted(found)}"


def compare_instants(tidemark, trace, truth, whole):
    """The card asleep and awake. NVML and cuMemGetInfo count from another zero: that difference is
    the same at all instants."""
    if not truth.get("instants"):
        return
    differences = []
    for instant in truth["instants"]:
        at = (instant["time_ns"] - whole["source"]["start_ns"]) / 1e9
        device = report(tidemark, trace, "--at", f"{at:.6f}s")["ranks"][0]["devices"][0]
        differences.append(device["ledger_device_used_bytes"] - instant["used"])
        if line(device, "torch.not_resident") != instant["asleep"]:
            yield (f"at {at:.3f} s {line(device, 'torch.not_resident')} asleep instead of "
                   f"{instant['asleep']}")
    spread = max(differences) - min(differences)
    print(f"{len(differences)} instants: the ledger differs from cuMemGetInfo by "
          f"{min(differences) / MIB:.1f} to {max(differences) / MIB:.1f} MiB", flush=True)
    if spread > MAY_DIFFER:
        yield f"the ledger's difference from cuMemGetInfo varies by {spread} bytes"


def compare(tidemark, name, truth, whole, trace):
    program = PROGRAMS[name]
    is_async = program.conf == ASYNC
    device = whole["ranks"][0]["devices"][0]
    yield from compare_peaks(truth, device, is_async)
    yield from compare_ledger(device)
    if truth["errors"]:
        at_error = report(tidemark, trace, "--at", "oom")["ranks"][0]["devices"][0]
        yield from compare_error(truth, device, at_error, is_async)
    elif device["oom_count"] != 0:
        yield f"{device['oom_count']} errors instead of none"
    if is_async and not any("programs.py" in frame for share in device["by_stack"]
                            for frame in share["frames"]):
        yield "no stack of the program"
    yield from compare_findings(program.expect, whole)
    yield from compare_instants(tidemark, trace, truth, whole)


def check(tidemark, out, name):
    try:
        wrong = []
        for truth, whole, trace in record(tidemark, out, name):
            wrong += compare(tidemark, name, truth, whole, trace)
    except (subprocess.SubprocessError, OSError, KeyError, IndexError, TypeError,
            ValueError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    print(f"{name:28} {'; '.join(wrong) or 'equal to the byte'}", flush=True)
    return not wrong


def main():
    tidemark, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    names = sys.argv[3:] or list(PROGRAMS)
    together = [name for name in names if not PROGRAMS[name].alone]
    done = [check(tidemark, out, together[0])] if together else []  # builds the bridge
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done += pool.map(lambda name: check(tidemark, out, name), together[1:])
    done += [check(tidemark, out, name) for name in names if PROGRAMS[name].alone]
    print(f"{sum(done)} of {len(done)} equal")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
