#!/usr/bin/env python3
"""Everything fits until Adam's first step allocates its states and parameter-sized temporaries.

Fixed: fused=True, which needs no temporaries."""
import torch

from model import batch, make, train_step
from scenario import start


def main(run):
    run.limit(2350)
    options = {"fused": True} if run.fixed else {"foreach": True}
    net, optimizer = make(width=2048, blocks=4, optimizer=torch.optim.Adam, **options)
    for _ in range(5):
        train_step(run, net, optimizer, batch(run, 2, 64, 2048))


start(main)
