#!/usr/bin/env python3
"""Long sequences through many layers, all activations kept.

Fixed: each block is recomputed in the backward pass (torch.utils.checkpoint)."""
from model import batch, make, train_step
from scenario import start


def main(run):
    run.limit(2300)
    net, optimizer = make(blocks=16, recompute=run.fixed)
    for _ in range(4):
        train_step(run, net, optimizer, batch(run, 2, 4096))


start(main)
