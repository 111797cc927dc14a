#!/usr/bin/env python3
"""Each CUDA graph has its own memory pool.

Fixed: the graphs share one pool."""
import torch

from model import make
from scenario import start


def main(run):
    net, _ = make(blocks=4)
    shapes = [(8, 256), (8, 224), (8, 192), (8, 160)]
    pool = torch.cuda.graph_pool_handle() if run.fixed else None
    graphs = []
    with torch.no_grad():
        for shape in shapes:
            x = torch.randn(*shape, 512, device="cuda")
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                net(x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = net(x)
            graphs.append((graph, x, y))
        for _ in range(6):
            for graph, _, _ in graphs:
                graph.replay()
            run.step()
    return graphs


start(main)
