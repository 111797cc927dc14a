#!/usr/bin/env python3
"""Rank 1 gets longer samples than the others.

Fixed: every rank gets the same."""
from model import batch, make, train_step
from scenario import start


def main(run):
    net, optimizer = make(blocks=4)
    length = 512 if run.rank == 1 and not run.fixed else 256
    for _ in range(8):
        train_step(run, net, optimizer, batch(run, 8, length))


start(main, ranks=3)
