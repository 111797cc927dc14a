"""Workloads whose requests do not depend on the allocator's settings.

Each function takes torch and a seed and runs to completion. Sizes come from random.Random; nothing
queries how much memory is free, and frees that wait for another stream complete only at an explicit
synchronisation, so that every run of a workload requests the same bytes in the same order.
"""
import random

MIB = 1 << 20


def transformer(torch, seed):
    """Training with random sequence lengths: every step needs different sizes."""
    rng = random.Random(1 + seed)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _ in range(30):
        x = torch.randn(16, rng.randrange(64, 640), 512, device="cuda")
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def mlp_adam(torch, seed):
    """The same sizes in every step; the states of Adam are allocated in the first one."""
    net = torch.nn.Sequential(*[m for _ in range(8) for m in
                                (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _ in range(40):
        net(torch.randn(512, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def conv_images(torch, seed):
    """A convolutional net over images of varying size, half of the steps without gradients."""
    rng = random.Random(2 + seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    widths = [3, 32, 64, 128, 256]
    net = torch.nn.Sequential(*[m for a, b in zip(widths, widths[1:]) for m in
                                (torch.nn.Conv2d(a, b, 3, stride=2, padding=1),
                                 torch.nn.BatchNorm2d(b), torch.nn.ReLU(),
                                 torch.nn.Conv2d(b, b, 3, padding=1), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for step in range(40):
        height, width = rng.randrange(96, 512), rng.randrange(96, 512)
        x = torch.randn(16, 3, height, width, device="cuda")
        if step % 2:
            with torch.no_grad():
                net(x)
            continue
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def kv_cache(torch, seed):
    """Inference whose caches grow by concatenation; requests of varying length come and go."""
    rng = random.Random(3 + seed)
    layers, heads, width = 8, 16, 64
    weights = [torch.randn(1024, 3 * 1024, device="cuda", dtype=torch.half) for _ in range(layers)]
    running = []
    with torch.no_grad():
        for _ in range(160):
            if len(running) < 6 and rng.random() < 0.5:
                prompt = rng.randrange(200, 3000)
                running.append([rng.randrange(20, 60),
                                [torch.randn(2, heads, prompt, width, device="cuda",
                                             dtype=torch.half) for _ in range(layers)]])
            for request in running:
                for i, weight in enumerate(weights):
                    token = torch.randn(1, 1024, device="cuda", dtype=torch.half) @ weight
                    new = token[:, :2048].reshape(2, heads, 1, width)
                    request[1][i] = torch.cat([request[1][i], new], dim=2)
                request[0] -= 1
            running = [r for r in running if r[0] > 0]


def streams(torch, seed):
    """Tensors of one stream used on others: their frees wait until those streams are done."""
    rng = random.Random(4 + seed)
    side = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for i in range(120):
        if i % 4 == 0:  # long enough that no free completes before the synchronisation
            for s in (torch.cuda.default_stream(), *side):
                with torch.cuda.stream(s):
                    torch.cuda._sleep(250_000_000)
        x = torch.empty(rng.randrange(1, 24 * MIB), dtype=torch.uint8, device="cuda")
        for s in side:
            with torch.cuda.stream(s):
                y = torch.empty(rng.randrange(1, 6 * MIB), dtype=torch.uint8, device="cuda")
                x.record_stream(s)
                z = torch.empty(rng.randrange(1, 64 * 1024), dtype=torch.uint8, device="cuda")
                y.record_stream(torch.cuda.default_stream())
                if rng.random() < 0.2:
                    kept.append(y)
                del y, z
        del x
        if len(kept) > 12:
            del kept[:rng.randrange(1, 6)]
        if i % 4 == 3:
            torch.cuda.synchronize()


def small_and_huge(torch, seed):
    """Many small tensors of mixed age, and a few huge ones."""
    rng = random.Random(5 + seed)
    small, huge = [], []
    for i in range(6000):
        small.append(torch.empty(int(2 ** rng.uniform(6, 21)), dtype=torch.uint8, device="cuda"))
        while len(small) > 800:
            small.pop(rng.randrange(len(small)))
        if i % 60 == 0:
            huge.append(torch.empty(rng.randrange(40, 700) * MIB + rng.randrange(MIB),
                                    dtype=torch.uint8, device="cuda"))
        if len(huge) > 3:
            huge.pop(rng.randrange(len(huge)))
        if i % 25 == 0:
            medium = torch.empty(rng.randrange(1, 30) * MIB, dtype=torch.uint8, device="cuda")
            if rng.random() < 0.15:
                huge.append(medium)
            del medium


def varying_batches(torch, seed):
    """Batches of varying size through wide layers, with an evaluation every tenth step."""
    rng = random.Random(6 + seed)
    net = torch.nn.Sequential(*[m for _ in range(6) for m in
                                (torch.nn.Linear(1024, 4096), torch.nn.GELU(),
                                 torch.nn.Linear(4096, 1024))]).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for step in range(40):
        x = torch.randn(rng.randrange(64, 6000), 1024, device="cuda")
        if step % 10 == 9:
            with torch.no_grad():
                net(x.repeat(2, 1))
            continue
        net(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def graphs(torch, seed):
    """Captured graphs keep their own pools next to a training loop."""
    rng = random.Random(7 + seed)
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    kept = []
    for size in (512, 3000, 1500):
        x = torch.randn(size, 1024, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = net(x).relu().sum()
        kept.append((graph, x, out))
        for _ in range(5):
            net(torch.randn(rng.randrange(100, 4000), 1024, device="cuda")).sum().backward()
    for graph, _, _ in kept:
        graph.replay()
    torch.cuda.synchronize()


WORKLOADS = {f.__name__: f for f in (transformer, mlp_adam, conv_images, kv_cache, streams,
                                     small_and_huge, varying_batches, graphs)}
