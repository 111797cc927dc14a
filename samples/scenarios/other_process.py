#!/usr/bin/env python3
"""Another process holds memory of the same card.

Fixed: no other process does."""
import os
import subprocess
import sys
import time

from model import batch, make, train_step
from scenario import start

OTHER = """
import torch
held = torch.ones(4 << 30, dtype=torch.uint8, device="cuda")
print("up", flush=True)
import sys
sys.stdin.read()
"""


def main(run):
    other = None
    if not run.fixed:
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("TIDEMARK_", "CUDA_INJECTION64"))}
        other = subprocess.Popen([sys.executable, "-c", OTHER], env=env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        other.stdout.readline()
    net, optimizer = make(blocks=4)
    for _ in range(6):
        train_step(run, net, optimizer, batch(run, 8, 256))
        time.sleep(0.4)  # long enough for the card's counters to be sampled
    if other:
        other.communicate()


start(main)
