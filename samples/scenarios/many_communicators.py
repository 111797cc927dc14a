#!/usr/bin/env python3
"""A process group, and a communicator with its own buffers, for every purpose.

Fixed: one group."""
import os

import torch
import torch.distributed as dist

from scenario import start


def main(run):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    dist.init_process_group("nccl", rank=0, world_size=1)
    groups = [dist.new_group([0]) for _ in range(1 if run.fixed else 8)]
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(4):
        for group in groups:
            dist.all_reduce(x, group=group)
        torch.cuda.synchronize()
        run.step()
    dist.destroy_process_group()


start(main)
