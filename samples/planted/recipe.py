"""Chooses what a seed's program consists of: family, options, the planted cause and the recording.

Seeds come in blocks of fifty with a fixed mixture (21 healthy programs, 29 causes), shuffled, so
that any few hundred seeds hold every cause several times.
"""
from __future__ import annotations

import dataclasses
import random

BLOCK = 50
HEALTHY_PER_BLOCK = 21

# (cause, variant) of the faulty programs of one block.
MIXTURE = [
    ("creep", "every_step"), ("creep", "stairs"), ("creep", "late"), ("creep", "driver"),
    ("creep", "serving"), ("creep", "cycle"),
    ("accumulated_graphs", ""), ("activation_peak", ""),
    ("retained_graph", "metric"), ("retained_graph", "retain"),
    ("eval_keeps_graph", "large_batch"), ("eval_keeps_graph", "outputs"),
    ("unused_gradients", "teacher"), ("unused_gradients", "backbone"),
    ("checkpoint_kept", ""),
    ("one_operation_peak", "logits"), ("one_operation_peak", "attention"),
    ("one_operation_peak", "pairwise"),
    ("stream_pools", ""),
    ("shape_variance", ""),
    ("fragmentation", "oom"), ("fragmentation", "holes"),
    ("capacity", "small_card"), ("capacity", "one_request"),
    ("memory_fraction", ""),
    ("cache_thrash", ""),
    ("graph_private_pool", ""),
    ("pinned_growth", ""),
    ("optimizer_state_spike", ""),
]

FAMILIES = ["mlp", "cnn", "transformer", "encoder_decoder", "unet", "recommender"]
SEQUENCES = ["transformer", "encoder_decoder"]
SERVING_CAUSES = ["creep", "stream_pools", "cache_thrash", "graph_private_pool", "pinned_growth",
                  "one_operation_peak", "capacity"]
NEEDS_TRACE = ["driver", "pinned_growth"]  # a torch snapshot does not show them
NO_OTHER_POOLS = ["fragmentation", "shape_variance", "stream_pools", "graph_private_pool"]
SINGLE_PASS = [None, "one_operation_peak", "accumulated_graphs"]
LATE = [None, "creep", "retained_graph", "unused_gradients", "one_operation_peak",
        "accumulated_graphs"]
WHOLE_BATCHES = ["retained_graph", "activation_peak", "unused_gradients"]
COMPILABLE = [None, "creep", "cache_thrash", "pinned_growth"]
SHARDABLE = [None, "creep", "accumulated_graphs", "eval_keeps_graph"]


@dataclasses.dataclass
class Recipe:
    seed: int
    cause: str | None
    variant: str
    serving: bool
    family: str
    optimizer: str = "none"
    precision: str = "fp32"
    compiled: bool = False
    recompute: bool = False
    accumulate: int = 1
    loader: str = "generator"
    pinned: bool = False
    validation: bool = False
    saving: bool = False
    allocator: str = ""
    parallel: str = "none"   # "ddp": two ranks over gloo, "fsdp2": one of four simulated ranks
    recording: str = "trace"  # or "snapshot"
    annotations: bool = True
    stacks: str = "python"
    window: str = "all"      # "late": from the middle on, "single": one step or request
    style: str = "flat"
    epochs: int = 1
    steps_per_epoch: int = 12
    record_from: int = 0
    scale: float = 1.0
    habits: list = dataclasses.field(default_factory=list)

    @property
    def steps(self):
        return self.epochs * self.steps_per_epoch

    @property
    def ranks(self):
        return 2 if self.parallel == "ddp" else 1


def cause_of(seed):
    """The cause and the variant of a seed; (None, "") for a healthy program."""
    block, place = divmod(seed, BLOCK)
    mixture = [(None, "")] * HEALTHY_PER_BLOCK + MIXTURE
    random.Random(f"block {block}").shuffle(mixture)
    return mixture[place]


def choose_family(rng, cause, variant, serving):
    if serving:
        if cause == "one_operation_peak" or variant == "one_request":
            return "decoder"
        if variant == "serving":
            return rng.choice(["decoder", "recommender"])
        return rng.choice(["decoder", "decoder", "cnn", "recommender"])
    if variant in ("logits", "attention", "one_request"):
        return "transformer"
    if variant == "pairwise":
        return "mlp"
    if cause == "shape_variance":
        return rng.choice(SEQUENCES)
    if cause == "fragmentation":
        return "mlp"
    if cause == "checkpoint_kept" or variant in ("stairs", "cycle"):
        return rng.choice(["mlp", "transformer", "recommender"])
    if cause == "optimizer_state_spike":
        return rng.choice(["recommender", "mlp"])
    if cause in ("accumulated_graphs", "activation_peak", "capacity", "memory_fraction",
                 "retained_graph", "unused_gradients", "eval_keeps_graph"):
        return rng.choice(["mlp", "cnn", "transformer", "encoder_decoder", "unet"])
    return rng.choice(FAMILIES)


def choose_window(rng, r):
    if r.recording == "trace" or r.parallel == "ddp":
        return
    r.annotations = rng.random() < 0.4
    r.stacks = "all" if rng.random() < 0.08 and not r.compiled else "python"
    kinds = ["all"]
    if r.cause in SINGLE_PASS and r.variant != "attention":
        kinds += ["single"]
    if r.cause in LATE and r.variant not in ("stairs", "late"):
        kinds += ["late"]
    r.window = rng.choice(kinds)
    if r.window == "late":
        r.record_from = r.steps // 2
        r.steps_per_epoch += -(-4 // r.epochs)
    elif r.window == "single":
        r.record_from = max(2, r.steps // 2)


def choose_training(rng, r):
    cause = r.cause
    r.optimizer = rng.choice(["sgd", "adam", "adamw", "adamw_fused", "two"])
    if r.variant == "stairs" or cause in ("optimizer_state_spike",):
        r.optimizer = rng.choice(["adam", "adamw"])
    if cause == "unused_gradients" and r.variant == "backbone":
        r.optimizer = rng.choice(["adam", "adamw", "sgd"])
    if r.family == "recommender" and r.optimizer == "two":
        r.optimizer = "adam"
    r.precision = rng.choice(["fp32", "fp32", "autocast", "autocast", "bf16"])
    if cause == "optimizer_state_spike":
        r.precision = "fp32"
    layered = r.family in ("mlp", "transformer", "encoder_decoder")
    r.recompute = (layered and rng.random() < 0.25 and cause not in
                   ("activation_peak", "accumulated_graphs", "retained_graph", "eval_keeps_graph",
                    "shape_variance", "capacity"))
    if cause == "accumulated_graphs":
        r.accumulate = rng.choice([3, 4])
    elif cause not in WHOLE_BATCHES and rng.random() < 0.25:
        r.accumulate = rng.choice([2, 4])
    r.loader = rng.choice(["generator", "loader", "loader"])
    r.pinned = r.loader == "loader" and rng.random() < 0.5
    r.validation = cause == "eval_keeps_graph" or (
        cause != "one_operation_peak" and rng.random() < 0.4)
    r.saving = rng.random() < 0.25
    if r.variant == "stairs":
        r.epochs, r.steps_per_epoch = rng.choice([6, 8]), rng.choice([4, 5])
    elif r.validation or rng.random() < 0.5:
        r.epochs, r.steps_per_epoch = rng.choice([3, 4]), rng.choice([4, 5, 6])
    else:
        r.steps_per_epoch = rng.choice([12, 14, 16, 18])
    r.style = rng.choice(["functions", "trainer", "flat"])
    if r.variant in ("every_step", "late") or cause is None or cause in SHARDABLE:
        chance = rng.random()
        if chance < 0.12 and layered and r.variant in ("", "every_step", "large_batch", "outputs"):
            r.parallel = "fsdp2" if cause in SHARDABLE else "none"
        elif chance < 0.35 and r.family == "mlp" and cause in (None, "creep"):
            r.parallel = "ddp"
    if r.parallel != "none":
        r.recompute, r.saving = False, False
        if r.optimizer == "two":
            r.optimizer = "adamw"
    if (cause in COMPILABLE and r.parallel == "none" and r.variant != "stairs"
            and r.family in ("mlp", "transformer") and rng.random() < 0.5):
        r.compiled, r.recompute, r.validation, r.saving = True, False, False, False


def choose_allocator(rng, r):
    if r.cause in NO_OTHER_POOLS or r.cause in ("capacity", "memory_fraction", "activation_peak",
                                               "optimizer_state_spike", "cache_thrash"):
        return
    settings = ["", "", "", "", "expandable_segments:True", "max_split_size_mb:128",
                "roundup_power2_divisions:8", "garbage_collection_threshold:0.8"]
    if r.recording == "trace" and r.cause in (None, "creep") and r.parallel == "none":
        settings.append("backend:cudaMallocAsync")
    r.allocator = rng.choice(settings)


def choose(seed):
    rng = random.Random(f"planted {seed}")
    cause, variant = cause_of(seed)
    serving = variant == "serving" or variant == "one_request" or (
        cause in (None, "stream_pools", "cache_thrash", "graph_private_pool", "pinned_growth")
        and rng.random() < 0.35) or cause == "graph_private_pool"
    r = Recipe(seed, cause, variant, serving, choose_family(rng, cause, variant, serving))
    r.scale = rng.choice([0.8, 1.0, 1.0, 1.2])
    if serving:
        r.precision = rng.choice(["fp32", "bf16", "bf16"])
        r.steps_per_epoch = rng.choice([10, 12, 14])
        r.style = rng.choice(["server", "script"])
    else:
        choose_training(rng, r)
    needs_trace = cause in NEEDS_TRACE or variant in NEEDS_TRACE
    r.recording = "trace" if needs_trace or rng.random() < 0.45 else "snapshot"
    choose_allocator(rng, r)
    choose_window(rng, r)
    r.habits = [rng.random() for _ in range(8)]  # thresholds for habits.py
    return r
