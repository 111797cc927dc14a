"""The places of a training program that causes and habits fill with lines."""
from __future__ import annotations

import dataclasses

SLOTS = ("imports", "constants", "helpers", "after_model", "setup", "epoch_begin", "step_begin",
         "after_forward", "after_backward", "after_step", "epoch_end")


@dataclasses.dataclass
class Plan:
    """A program in the making; lines use the names $net, $opt, $loss, $inputs and $s (the prefix of
    what lives as long as the run)."""
    repaired: bool
    sizes: dict
    slots: dict = dataclasses.field(default_factory=lambda: {name: [] for name in SLOTS})
    # How the step is written.
    mark_forward: bool = False    # the line that calls the model is a planted line
    mark_backward: bool = False
    mark_optimizer: bool = False
    backward: str = "$loss.backward()"
    sum_losses: bool = False      # one backward pass for all micro-batches
    accumulate: int = 1
    trained: str = "$net.parameters()"
    optimizer: str = ""           # instead of the recipe's
    validate: str = "no_grad"     # or "large_batch", "outputs": with the graph
    # What the truth says beyond the cause.
    measure: str | None = "allocated"  # which peak the repair lowers
    advice: tuple = ()
    also: tuple = ()              # findings that are true as well
    limit: str | None = None      # how the recorder limits the memory, see record.py
    expect_oom: bool = False
    bytes: int | None = None

    def add(self, slot, *lines):
        self.slots[slot] += lines
