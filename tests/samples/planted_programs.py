"""Checks the generated programs of samples/planted without running them.

    python3 planted_programs.py samples/planted
"""
import ast
import builtins
import pathlib
import sys

sys.path[:0] = [sys.argv[1], str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from harness import check, check_equal, finish  # noqa: E402
from planted import generate  # noqa: E402

SEEDS = range(300)
CAUSES = {"creep", "accumulated_graphs", "retained_graph", "eval_keeps_graph", "unused_gradients",
          "checkpoint_kept", "one_operation_peak", "stream_pools", "shape_variance",
          "fragmentation", "capacity", "memory_fraction", "cache_thrash", "graph_private_pool",
          "pinned_growth", "optimizer_state_spike", "activation_peak"}
WITHOUT_LINE = {"capacity", "memory_fraction", "activation_peak"}  # the whole job is the cause
UNCHANGED = {(None, ""), ("capacity", "small_card")}  # a larger card is the repair
TELLING = ["leak", "planted", "fragment", "creep", "bug", "$", "#@", "wrong", "repair"]


def stored_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]


def undefined_names(tree):
    known = {*stored_names(tree), *dir(builtins), "__name__"}
    return {n.id for n in ast.walk(tree)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - known


def undefined_attributes(tree, owner):
    """Attributes of `owner` that are read and never written (nor methods)."""
    read, written = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (
                node.value.id == owner):
            (read if isinstance(node.ctx, ast.Load) else written).add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            written.add(node.name)
    return read - written


def check_names(tree, text):
    check_equal(undefined_names(tree), set(), f"{text}: undefined names")
    check_equal(undefined_attributes(tree, "run"), set(), f"{text}: undefined attributes of run")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in ("Trainer", "Server"):
            check_equal(undefined_attributes(node, "self"), set(), f"{text}: attributes of self")


causes, healthy, files, kinds = set(), 0, set(), set()
for seed in SEEDS:
    source, truth = generate(seed)
    text = f"seed {seed} ({truth['cause']}, {truth['options']['variant']})"
    repaired, twin = generate(seed, repaired=True)
    check_equal(generate(seed), (source, truth), f"{text}: the same again")
    check_equal(repaired == source, (truth["cause"], truth["options"]["variant"]) in UNCHANGED,
                f"{text}: only a repaired cause changes the program")
    for program, which in ((source, text), (repaired, text + " repaired")):
        check_names(ast.parse(program), which)
        compile(program, truth["script"], "exec")
        check(max(map(len, program.split("\n"))) <= 100, f"{which}: lines of at most 100 columns")
        check(not any(word in program.lower() for word in TELLING), f"{which}: gives nothing away")
    lines = source.split("\n")
    for line in truth["lines"]:
        check_equal(lines[line["line"] - 1].strip(), line["text"], f"{text}: the planted line")
        check_equal(line["file"], truth["script"], f"{text}: the file of the planted line")
    check(truth["cause"] is None or truth["lines"] or truth["cause"] in WITHOUT_LINE,
          f"{text}: has a planted line")
    check(truth["cause"] is not None or not truth["lines"], f"{text}: healthy, without lines")
    check_equal(twin["lines"], [], f"{text}: a repaired program has no planted line")
    if truth["options"]["recording"] == "snapshot":
        check("_dump_snapshot" in source, f"{text}: writes its snapshot")
    causes.add(truth["cause"])
    healthy += truth["cause"] is None
    files.add(truth["script"])
    kinds |= {(name, value) for name, value in truth["options"].items()
              if isinstance(value, (str, bool))}

check_equal(causes - {None}, CAUSES, "every cause occurs")
check(healthy >= 0.4 * len(SEEDS), f"at least 40 % healthy: {healthy}")
check(len(files) >= 10, "file names vary")
for kind in [("parallel", "ddp"), ("parallel", "fsdp2"), ("compiled", True), ("recompute", True),
             ("precision", "bf16"), ("precision", "autocast"), ("optimizer", "two"),
             ("pinned", True), ("window", "late"), ("window", "single"), ("annotations", False),
             ("stacks", "all"),
             ("allocator", "backend:cudaMallocAsync"), ("allocator", "expandable_segments:True"),
             ("family", "decoder"), ("family", "recommender"), ("family", "unet"),
             ("family", "encoder_decoder"), ("family", "cnn"), ("family", "mlp"),
             ("family", "transformer"), ("serving", True), ("validation", True), ("saving", True)]:
    check(kind in kinds, f"some program has {kind}")
finish()
