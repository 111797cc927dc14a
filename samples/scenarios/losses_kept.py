#!/usr/bin/env python3
"""Losses are collected together with the graph that made them.

Fixed: only their values are."""
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
