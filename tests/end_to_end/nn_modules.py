"""Checks what commands say of nn.Modules, with small traces that are written here.

    python3 nn_modules.py TIDEMARK
"""
import csv
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from growing_inputs import BASE, MiB, START, process_row  # noqa: E402
from harness import check, check_equal, finish, report, run  # noqa: E402
from trace_file import TraceFile  # noqa: E402

tmp = pathlib.Path(tempfile.mkdtemp())
PARAMETER, WORKSPACE = 1, 10


def trace(name, mlp_bytes, other_root=None, nobodys=0):
    """A model with two layers that allocate in the same line; a parameter of the first, and one
    of nobody's."""
    file = TraceFile()
    text = lambda value: file.string(1, value)  # noqa: E731
    file.table(1, "Processes", [process_row(file, 1, 0, 1)])
    # The path of 3 is known first; the row without it comes later, from another thread.
    root = 4 if other_root else 1
    file.table(1, "NnModules", [
        {"id": 1, "path": 0, "class_name": text("Model"), "root": 1},
        {"id": 2, "path": text("layers.0.mlp"), "class_name": text("Linear"), "root": 1},
        {"id": 3, "path": text("layers.1.mlp"), "class_name": text("Linear"), "root": root},
        {"id": 3, "path": 0, "class_name": text("Linear"), "root": 0},
        {"id": 4, "path": 0, "class_name": text(other_root or "Loss"), "root": 4}])
    file.table(1, "Frames", [{"id": 1, "function": text("main"), "file": text("train.py"),
                              "line": 3, "kind": 1},
                             {"id": 2, "function": text("forward"), "file": text("model.py"),
                              "line": 7, "kind": 1}])
    file.table(1, "Stacks", [{"id": 1, "parent": 0, "frame": 1}, {"id": 2, "parent": 1, "frame": 2},
                             {"id": 3, "parent": 1, "frame": 2, "nn_module": 2},
                             {"id": 4, "parent": 1, "frame": 2, "nn_module": 3},
                             {"id": 5, "parent": 0, "frame": 1, "nn_module": 999}])
    sizes = [(3, 2 * MiB), (4, mlp_bytes), (2, MiB), (4, 5 * MiB), (5, 4 * MiB)]
    rows = [{"time_ns": START, "action": 4, "address": BASE, "size_bytes": 64 * MiB}]
    address = BASE
    for i, (stack, size) in enumerate(sizes):
        rows.append({"time_ns": START + 1 + i, "action": 1, "address": address, "size_bytes": size,
                     "block_bytes": size, "stack": stack})
        address += size
    tags = []
    if nobodys:
        rows.append({"time_ns": START + 20, "action": 1, "address": address, "size_bytes": nobodys,
                     "block_bytes": nobodys, "stack": 1})
        tags = [{"time_ns": START + 52, "address": address, "size_bytes": nobodys,
                 "category": PARAMETER}]
    file.table(1, "FrameworkEvents", rows)
    file.table(1, "TensorTags", tags + [{"time_ns": START + 50, "address": address - 4 * MiB,
                                  "size_bytes": 4 * MiB, "category": PARAMETER, "nn_module": 2},
                                 {"time_ns": START + 51, "address": address - 9 * MiB,
                                  "size_bytes": 5 * MiB, "category": WORKSPACE}])
    return file.save(tmp / name)


first, second = trace("first.tmk", 3 * MiB), trace("second.tmk", 8 * MiB)
device = report(first)["ranks"][0]["devices"][0]
modules = {m["module"]: m for m in device["by_module"]}
check_equal({name: m["bytes"] for name, m in modules.items()},
            {"layers.0.mlp": 6 * MiB, "layers.1.mlp": 3 * MiB, None: 6 * MiB},
            "bytes by module; a workspace is of no module")
check_equal(modules["layers.0.mlp"]["parameter_bytes"], 4 * MiB, "its parameter")
check_equal(modules["layers.1.mlp"]["class"], "Linear", "class")
check_equal(sorted(s["bytes"] for s in device["by_stack"]), [4 * MiB, 11 * MiB],
            "one stack per line, whichever module runs it")
said = run("report", first).stdout
check("  layers\n" in said and "    1.mlp\n" in said and "weights" in said,
      f"the table of layers: {said}")
check_equal([(row["layer"], row["depth"], row["bytes"], row["parameter_bytes"])
             for row in device["by_layer"]],
            [("layers", 0, 9 * MiB, 4 * MiB), ("layers.0.mlp", 1, 6 * MiB, 4 * MiB),
             ("layers.1.mlp", 1, 3 * MiB, 0), (None, 0, 6 * MiB, 0)], "summed up the tree")
html = tmp / "first.html"
run("report", first, "--html", html)
check("By layer" in html.read_text() and "1.mlp" in html.read_text(), "layers in HTML")

said = run("diff", first, second)
check("  layers\n" in said.stdout and "    1.mlp\n" in said.stdout,
      f"diff: {said.stdout}{said.stderr}")
difference = json.loads(run("diff", first, second, "--json").stdout)
check_equal([(line["name"], line["change_bytes"]) for line in difference["devices"][0]["by_module"]],
            [("layers.1.mlp", 5 * MiB)], "diff by module")
check_equal([(row["layer"], row["change_bytes"]) for row in difference["devices"][0]["by_layer"]
             if row["change_bytes"]],
            [("layers", 5 * MiB), ("layers.1.mlp", 5 * MiB)], "diff by layer")

run("export", first, "--format", "csv", "-o", tmp / "csv")
with open(tmp / "csv" / "allocations.csv", encoding="utf-8") as file:
    found = [row["module"] for row in csv.DictReader(file)]
check_equal(found, ["layers.0.mlp", "layers.1.mlp", "", "layers.1.mlp", "layers.0.mlp"], "CSV")

run("export", first, "--format", "perfetto", "-o", tmp / "first.pftrace")
check(b"layers.0.mlp 6.0 MiB" in (tmp / "first.pftrace").read_bytes(), "Perfetto: modules of the peak")

for limit, status in (("layers.0=7MiB", 0), ("layers.0=5MiB", 1), ("layers=9MiB", 0),
                      ("layers.7=1GiB", 2), ("layers.0", 2)):
    done = run("check", first, "--max-module", limit)
    check_equal(done.returncode, status, f"check {limit}: {done.stdout}{done.stderr}")
message = run("check", first, "--max-module", "layer.0=1GiB").stderr
check("no nn.Module 'layer.0' holds memory at the peak; there are: layers" in message, message)

# Weights whose module nobody knows may be of any.
made = trace("made.tmk", 3 * MiB, nobodys=10 * MiB)
for limit, status in (("layers.0=17MiB", 0), ("layers.0=15MiB", 2), ("layers.0=5MiB", 1)):
    done = run("check", made, "--max-module", limit)
    check_equal(done.returncode, status, f"check {limit}: {done.stdout}{done.stderr}")
    check(("10.0 MiB of weights" in done.stderr) == (status == 2), done.stderr)
check_equal(run("check", made, "--max-module", "layers.0=15MiB", "--allow-losses").returncode, 0,
            "what is known is checked")
unknown = "which module has them is not recorded"
check(unknown in run("diff", first, made).stdout and unknown in run("report", made).stdout,
      "weights of no module are said")
check(unknown not in run("diff", first, second).stdout + said.stdout, "all weights are known")

# Where several trees have modules, their root's class is part of the name.
several = report(trace("several.tmk", MiB, "Critic"))["ranks"][0]["devices"][0]
check_equal({m["module"] for m in several["by_module"]},
            {"Model.layers.0.mlp", "Critic.layers.1.mlp", None}, "several roots")

# A trace without nn.Modules says nothing of them.
plain = report(pathlib.Path(__file__).resolve().parents[2] / "tests/data/snapshots/default.pickle.gz")
check_equal(plain["ranks"][0]["devices"][0]["by_module"], [], "a snapshot")
finish()
