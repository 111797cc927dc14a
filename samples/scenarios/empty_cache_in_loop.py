#!/usr/bin/env python3
"""Calls torch.cuda.empty_cache() in every step.

Fixed: does not call it."""
import torch

from model import batch, make, train_step
from scenario import start


def main(run):
    net, optimizer = make(blocks=4)
    for _ in range(8):
        train_step(run, net, optimizer, batch(run, 8, 256))
        if not run.fixed:
            torch.cuda.empty_cache()


start(main)
