"""PyTorch programs that use memory in different ways, each with torch's statistics of its use.

    python3 samples/torch/programs.py NAME [--truth FILE]

Every program is short and deterministic. With --truth it writes torch's own statistics, with which
a recording of it is compared.
"""
import argparse
import gc
import json
import os
import sys

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def transformer(torch, layers=4, width=512):
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, layers).cuda()


@program
def training(torch):
    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(6):
        batch = torch.randn(8, 128 + 32 * (step % 3), 512, device="cuda")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program
def mixed_precision(torch):
    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(5):
        batch = torch.randn(8, 192, 512, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


@program
def streams(torch):
    side = [torch.cuda.Stream() for _ in range(3)]
    base = torch.ones(1 << 20, device="cuda")
    for i in range(40):
        stream = side[i % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            a = base * i
            b = torch.empty((i % 5 + 1) << 19, device="cuda").fill_(1.0)
            base.record_stream(stream)
        a.record_stream(torch.cuda.current_stream())
        b.record_stream(torch.cuda.current_stream())
        base = a[: 1 << 20] + b[0]
        del a, b
    torch.cuda.synchronize()


@program
def graphs(torch):
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
    static = torch.randn(256, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(static)
    for _ in range(5):
        static.copy_(torch.randn(256, 512, device="cuda"))
        graph.replay()
    out.sum().item()


@program
def expandable(torch):
    """Run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."""
    kept = []
    for i in range(60):
        kept.append(torch.empty(((i * 37) % 23 + 1) << 18, device="cuda"))
        if i % 3 == 2:
            kept.pop(0)
    kept.clear()
    torch.cuda.empty_cache()
    training(torch)


@program
def compiled(torch):
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(),
                                torch.nn.Linear(2048, 512)).cuda()
    fast = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        loss = fast(torch.randn(512, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program
def inference(torch):
    """A cache that grows with every token, by concatenation."""
    keys = [torch.empty(1, 8, 0, 64, device="cuda") for _ in range(8)]
    with torch.no_grad():
        for _ in range(120):
            for i, key in enumerate(keys):
                query = torch.randn(1, 8, 1, 64, device="cuda")
                keys[i] = torch.cat([key, query], dim=2)
                (query @ keys[i].transpose(-1, -2)).softmax(-1)


@program
def out_of_memory(torch):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((1 << 30) / total)
    kept = []
    for attempt in range(2):
        try:
            while True:
                kept.append(torch.empty(48 << 18, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            kept = kept[::2]
    del kept


@program
def threads(torch):
    import threading

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(200):
                torch.empty((i * 13 + index * 7) % 97 + 1, 1024, device="cuda")

    workers = [threading.Thread(target=work, args=(i,), name=f"worker-{i}") for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def statistics(torch):
    stats = torch.cuda.memory_stats(0)
    truth = {}
    for name in ("allocated", "requested", "reserved", "active"):
        truth[f"{name}_peak"] = stats[f"{name}_bytes.all.peak"]
        truth[f"{name}_end"] = stats[f"{name}_bytes.all.current"]
    truth["ooms"] = stats["num_ooms"]
    truth["torch"] = torch.__version__
    truth["alloc_conf"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return truth


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--truth")
    options = parser.parse_args()
    import torch
    torch.manual_seed(0)
    PROGRAMS[options.name](torch)
    gc.collect()
    torch.cuda.synchronize()
    if options.truth:
        with open(options.truth, "w", encoding="utf-8") as file:
            json.dump(statistics(torch), file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
