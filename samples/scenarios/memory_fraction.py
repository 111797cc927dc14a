#!/usr/bin/env python3
"""A memory fraction, set once for a shared card and forgotten, limits a job on an idle card.

Fixed: no memory fraction."""
from model import batch, make, train_step
from scenario import start


def main(run):
    if not run.fixed:
        run.limit(500)
    net, optimizer = make(blocks=8)
    for _ in range(5):
        train_step(run, net, optimizer, batch(run, 8, 256))


start(main)
