#!/usr/bin/env python3
"""A small training run for which torch's own statistics are known.

    python3 train.py [STEPS] [--json FILE]

Prints the median time of a step, and writes torch's statistics with --json.
"""
import argparse
import json
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int, nargs="?", default=20)
    parser.add_argument("--json")
    parser.add_argument("--hold", type=float, default=0, help="seconds to stay at the peak")
    args = parser.parse_args()
    torch.manual_seed(1)
    net = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True), 8,
        enable_nested_tensor=False).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    times = []
    for step in range(args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        x = torch.randn(16, 256, 1024, device="cuda")
        loss = net(x).square().mean()
        if step == args.steps - 1:
            time.sleep(args.hold)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    times.sort()
    print(f"loss {loss.item():.6f}")
    print(f"step {1e3 * times[len(times) // 2]:.3f} ms")
    if args.json:
        stats = torch.cuda.memory_stats()
        with open(args.json, "w") as f:
            json.dump({"step_ms": 1e3 * times[len(times) // 2],
                       "stats": {k: v for k, v in stats.items() if "_bytes.all." in k}}, f)


if __name__ == "__main__":
    main()
