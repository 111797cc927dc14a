#!/usr/bin/env python3
"""Validation without torch.no_grad(): it builds the graph of a large batch needlessly.

Fixed: with torch.no_grad()."""
import contextlib

import torch

from model import batch, make, train_step
from scenario import start


def validate(run, net):
    guard = torch.no_grad() if run.fixed else contextlib.nullcontext()
    with guard:
        return net(batch(run, 32, 128)).square().mean().item()


def main(run):
    net, optimizer = make(blocks=6)
    for step in range(9):
        train_step(run, net, optimizer, batch(run, 8, 128))
        if step % 3 == 2:
            validate(run, net)


start(main)
