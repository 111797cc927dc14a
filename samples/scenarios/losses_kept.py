#!/usr/bin/env python3
"""Collects losses together with the graph that computed them.

Fixed: collects only their values."""
from model import batch, make, train_step
from scenario import start


def main(run):
    net, optimizer = make(blocks=4)
    losses = []
    for _ in range(10):
        x = batch(run, 8, 128)
        loss = train_step(run, net, optimizer, x, retain_graph=not run.fixed)
        losses.append(loss.item() if run.fixed else loss)
    return losses


start(main)
