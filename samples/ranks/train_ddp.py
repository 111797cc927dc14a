#!/usr/bin/env python3
"""A small DDP run, one process per rank, all on the first GPU.

    torchrun --nproc-per-node 4 train_ddp.py [--steps N] [--guilty RANK] [--truth DIR]

NCCL refuses two ranks on one GPU unless they seem to be on different hosts, so each rank reports
its own host name. `--guilty RANK` makes that rank keep the activations of every step, under a limit,
until it runs out of memory; the others then wait for it in an all-reduce, as in a real job.
`--truth DIR` writes torch's own statistics there, one file per rank.
"""
import argparse
import json
import os
import time

rank = int(os.environ["RANK"])
os.environ.setdefault("NCCL_HOSTID", f"rank-{rank}")
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
os.environ.setdefault("NCCL_IB_DISABLE", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

MIB = 1 << 20


class Net(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def keep_for_later(kept, width):
    """Called by the guilty rank only."""
    kept.append(torch.ones(32 * MIB // 4 // width, width, device="cuda"))


def write_truth(folder, out_of_memory):
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    with open(os.path.join(folder, f"rank{rank}.truth.json"), "w") as f:
        json.dump({"rank": rank, "out_of_memory": out_of_memory, "device_free": free,
                   "device_total": total, "nccl": list(torch.cuda.nccl.version()),
                   "stats": {k: v for k, v in stats.items() if "_bytes.all." in k}}, f, indent=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--guilty", type=int, default=-1)
    parser.add_argument("--truth")
    args = parser.parse_args()
    torch.cuda.set_device(0)
    torch.manual_seed(1)
    dist.init_process_group("nccl")
    width = 1024
    net = torch.nn.parallel.DistributedDataParallel(Net(width, 8).cuda(), device_ids=[0])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    if args.guilty >= 0:
        limit = 900 * MIB
        torch.cuda.set_per_process_memory_fraction(
            limit / torch.cuda.get_device_properties(0).total_memory)
    kept = []
    out_of_memory = False
    for step in range(args.steps):
        x = torch.randn(512, width, device="cuda")
        try:
            if rank == args.guilty and step >= 3:
                keep_for_later(kept, width)
            loss = net(x).square().mean()
            loss.backward()
        except torch.cuda.OutOfMemoryError as error:
            print(f"rank {rank} step {step}: {str(error).splitlines()[0]}", flush=True)
            out_of_memory = True
            if args.truth:
                write_truth(args.truth, out_of_memory)
            time.sleep(4)  # the others reach the collective that this rank never joins
            raise
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    if args.truth:
        write_truth(args.truth, out_of_memory)
    print(f"rank {rank}: loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
