#!/usr/bin/env python3
"""Every step has another sequence length, so hardly any cached block fits twice.

Fixed: sequences are padded to the longest."""
import random

from model import batch, make, train_step
from scenario import start


def main(run):
    random.seed(1)
    net, optimizer = make(blocks=6)
    for _ in range(16):
        length = random.randrange(64, 512)
        train_step(run, net, optimizer, batch(run, 8, 512 if run.fixed else length))


start(main)
