#!/usr/bin/env python3
"""Holes from varying sizes: features kept between scratch tensors pin every segment. For the first
long sequence there are enough free bytes, but no hole is large enough.

Fixed: one buffer for the features, allocated before the scratch tensors."""
from scenario import MIB, start


def main(run):
    import torch
    run.limit(1024)
    features = []
    buffer = torch.empty(24, 20 * MIB, dtype=torch.uint8, device="cuda") if run.fixed else None
    for i in range(24):  # the first epoch collects features
        scratch = torch.empty(38 * MIB, dtype=torch.uint8, device="cuda").fill_(1)
        value = scratch[:20 * MIB].cpu()
        del scratch
        if run.fixed:
            buffer[i] = value
        else:
            features.append(value.cuda())
        run.step()
    for i in range(40):  # the second uses them, with a long sequence now and then
        wide = 48 if i % 10 == 9 else 16
        a = torch.empty(wide * MIB, dtype=torch.uint8, device="cuda").fill_(1)
        b = a + 1
        c = b + a
        del a, b, c
        run.step()
    return features, buffer


start(main)
