#!/usr/bin/env python3
"""Worker processes that touch the card: each holds a context on it and hardly anything else.

Fixed: the workers stay on the host."""
import subprocess
import sys
import time

from model import batch, make, train_step
from scenario import start

WORKER = "import sys, torch; torch.ones(1, device=sys.argv[1]); print('up', flush=True); sys.stdin.read()"


def main(run):
    device = "cpu" if run.fixed else "cuda"
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, device], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        worker.stdout.readline()
    net, optimizer = make(blocks=4)
    for _ in range(6):
        train_step(run, net, optimizer, batch(run, 8, 256))
        time.sleep(0.4)  # long enough for the card's counters to be sampled
    for worker in workers:
        worker.communicate()


start(main)
