"""Compares plans of `tidemark plan` with what changed programs really need on a GPU.

    python3 plan.py record TIDEMARK FOLDER [PROGRAM …]    records the programs
    python3 plan.py predict TIDEMARK FOLDER [PROGRAM …]   writes predictions.json; needs no GPU
    python3 plan.py measure FOLDER [PROGRAM …]            runs the changed programs, writes measured.json
    python3 plan.py check FOLDER [PROGRAM …]              compares the two files; needs no GPU
    python3 plan.py train PROGRAM [KEY=VALUE …]           one program, without recording it

Without names, the programs written here; those of plan_models.py (libraries' models) by name.
`record` records every program twice, the second time with 1.5 times the batch (and, of those with
sequences, a third time with 1.5 times the length); `predict` writes down what `plan` predicts from one
recording ("one") and from two ("two"). `measure` runs the changes of CHANGES and asks torch for
max_memory_reserved() and max_memory_allocated(); it also runs the batch that `plan --fit` found under
a limit, and one that is 10 % larger. With fewer GPUs than ranks, FSDP2 runs as rank 0 of a process
group whose collectives do nothing: it allocates the same. Exit status of `check`: 0 if the goals are
met (reserved: median error of 5 %, 90 % within 10 %; 8 of 10 fits).
"""
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys

import plan_models

STEPS, SECONDS = 4, 300
AT_ONCE = 10  # programs that share the GPU
CHANGES = {
    "batch2": ["--batch", "2x"], "batch4": ["--batch", "4x"], "half": ["--batch", "0.5x"],
    "seq2": ["--seq", "2x"], "checkpoint": ["--checkpoint"], "bf16": ["--precision", "bf16"],
    "fsdp2": ["--shard", "zero3", "--ranks", "2"], "fsdp4": ["--shard", "zero3", "--ranks", "4"],
    "fused": ["--optimizer", "fused"], "8bit": ["--optimizer", "adamw8bit"],
}
SETTINGS = {
    "batch2": ["batch=2"], "batch4": ["batch=4"], "half": ["batch=0.5"], "seq2": ["seq=2"],
    "checkpoint": ["checkpoint=1"], "bf16": ["bf16=1"], "fsdp2": ["fsdp=2"], "fsdp4": ["fsdp=4"],
    "fused": ["optimizer=fused"], "8bit": ["optimizer=8bit"],
}
RECORDED_BATCH = {"mlp": 6000, "lstm": 48, "cnn": 60, "unet": 24, "embedding": 8192,
                  **dict.fromkeys(("encoder", "gpt", "gpt_naive", "finetune", "autocast", "moe"), 12),
                  **plan_models.RECORDED_BATCH}
PROGRAMS = tuple(name for name in RECORDED_BATCH if name not in plan_models.RECORDED_BATCH)
SEQUENCES = ("encoder", "gpt", "gpt_naive", "lstm", "finetune", "autocast", "moe",
             *plan_models.SEQUENCES)
NO_LAYERS = ("lstm", "embedding")  # nothing to checkpoint or to shard by layer


# ---- the programs -----------------------------------------------------------------------------

def programs(torch, name, settings):
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
    batch, seq = float(settings.get("batch", 1)), float(settings.get("seq", 1))

    def many(number):
        return max(1, round(number * batch))

    def long(number):
        return max(1, round(number * seq))

    class Net(nn.Module):
        classes = 1000

        def run(self, block, *inputs):
            if "checkpoint" in settings:
                return checkpoint(block, *inputs, use_reentrant=False)
            return block(*inputs)

        def loss(self, output, target):
            return F.cross_entropy(output.flatten(0, -2), target.flatten())

    class Residual(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.act, self.down = nn.GELU(), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(self.act(self.up(self.norm(x))))

    class Mlp(Net):
        def __init__(self, width=1024, depth=8):
            super().__init__()
            self.first = nn.Linear(300, width)
            self.layers = nn.ModuleList(Residual(width) for _ in range(depth))
            self.head = nn.Linear(width, self.classes)

        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                x = self.run(layer, x)
            return self.head(x)

        def batch(self):
            count = many(RECORDED_BATCH[name])
            return torch.randn(count, 300), torch.randint(self.classes, (count,))

    class Attention(nn.Module):
        def __init__(self, width, heads, naive, causal):
            super().__init__()
            self.heads, self.naive, self.causal = heads, naive, causal
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            count, length, width = x.shape
            q, k, v = self.qkv(x).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            if self.naive:
                weights = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
                if self.causal:
                    mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
                    weights = weights.masked_fill(~mask, float("-inf"))
                x = weights.softmax(-1) @ v
            else:
                x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(x.transpose(1, 2).reshape(count, length, width))

    class Block(nn.Module):
        def __init__(self, width, naive=False, causal=True, mlp=None, drop=0.0):
            super().__init__()
            self.norm1, self.attention = nn.LayerNorm(width), Attention(width, 8, naive, causal)
            self.norm2, self.drop = nn.LayerNorm(width), nn.Dropout(drop)
            self.mlp = mlp or nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                            nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.drop(self.attention(self.norm1(x)))
            return x + self.drop(self.mlp(self.norm2(x)))

    class Experts(nn.Module):
        """Every token goes to one of the experts."""

        def __init__(self, width, count=4):
            super().__init__()
            self.router = nn.Linear(width, count)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                for _ in range(count))

        def forward(self, x):
            weights = self.router(x).softmax(-1)
            return sum(weights[..., i:i + 1] * expert(x) for i, expert in enumerate(self.experts))

    class Gpt(Net):
        length, words = 384, 8000
        naive, causal, drop, width, depth = False, True, 0.0, 640, 8

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(self.words, self.width)
            self.place = nn.Embedding(8192, self.width)
            self.layers = nn.ModuleList(
                Block(self.width, self.naive, self.causal, self.mlp(), self.drop)
                for _ in range(self.depth))
            self.norm, self.head = nn.LayerNorm(self.width), nn.Linear(self.width, self.words)

        def mlp(self):
            return None

        def forward(self, x):
            x = self.embed(x) + self.place(torch.arange(x.shape[1], device=x.device))
            for layer in self.layers:
                x = self.run(layer, x)
            return self.head(self.norm(x))

        def batch(self):
            shape = (many(RECORDED_BATCH[name]), long(self.length))
            return torch.randint(self.words, shape), torch.randint(self.words, shape)

    class Encoder(Gpt):
        causal, drop = False, 0.1

    class GptNaive(Gpt):
        naive = True

    class Moe(Gpt):
        depth = 6

        def mlp(self):
            return Experts(self.width)

    class Finetune(Gpt):
        """Only the last layers and the head learn."""

        def __init__(self):
            super().__init__()
            self.embed.requires_grad_(False)
            self.place.requires_grad_(False)
            for layer in self.layers[:self.depth - 2]:
                layer.requires_grad_(False)

    class Lstm(Net):
        length, words = 160, 8000

        def __init__(self, width=768):
            super().__init__()
            self.embed = nn.Embedding(self.words, width)
            self.lstm = nn.LSTM(width, width, 2, batch_first=True)
            self.head = nn.Linear(width, self.words)

        def forward(self, x):
            return self.head(self.lstm(self.embed(x))[0])

        def batch(self):
            shape = (many(RECORDED_BATCH[name]), long(self.length))
            return torch.randint(self.words, shape), torch.randint(self.words, shape)

    class Convolutions(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            self.bn1, self.relu = nn.BatchNorm2d(outputs), nn.ReLU()
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2, self.side = nn.BatchNorm2d(outputs), nn.Conv2d(inputs, outputs, 1)

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(y)) + self.side(x))

    class Cnn(Net):
        def __init__(self):
            super().__init__()
            widths = (48, 96, 96, 192)
            self.layers = nn.ModuleList(
                Convolutions(a, b) for a, b in zip((3, *widths), widths))
            self.pool, self.head = nn.MaxPool2d(2), nn.Linear(widths[-1], self.classes)

        def forward(self, x):
            for layer in self.layers:
                x = self.pool(self.run(layer, x))
            return self.head(x.mean((2, 3)))

        def batch(self):
            count = many(RECORDED_BATCH[name])
            return torch.randn(count, 3, 96, 96), torch.randint(self.classes, (count,))

    class Unet(Net):
        def __init__(self, widths=(32, 64, 128)):
            super().__init__()
            pairs = list(zip((3, *widths), widths))
            self.down = nn.ModuleList(Convolutions(a, b) for a, b in pairs)
            self.pool, self.middle = nn.MaxPool2d(2), Convolutions(widths[-1], widths[-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, b, 2, 2) for b in reversed(widths))
            self.join = nn.ModuleList(
                Convolutions(2 * b, max(a, 16)) for a, b in reversed(pairs))
            self.head = nn.Conv2d(16, 4, 1)

        def forward(self, x):
            kept = []
            for block in self.down:
                kept.append(self.run(block, x))
                x = self.pool(kept[-1])
            x = self.middle(x)
            for up, join in zip(self.up, self.join):
                x = self.run(join, torch.cat([up(x), kept.pop()], 1))
            return self.head(x)

        def batch(self):
            count = many(RECORDED_BATCH[name])
            return torch.randn(count, 3, 128, 128), torch.randint(4, (count, 128, 128))

        def loss(self, output, target):
            return F.cross_entropy(output, target)

    class Tables(Net):
        """Large embeddings, small activations: a recommender."""
        def __init__(self, width=64):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(200_000, width) for _ in range(8))
            self.net = nn.Sequential(nn.Linear(8 * width, 1024), nn.ReLU(), nn.Linear(1024, 512),
                                     nn.ReLU(), nn.Linear(512, 2))

        def forward(self, x):
            return self.net(torch.cat([t(x[:, i]) for i, t in enumerate(self.tables)], 1))

        def batch(self):
            count = many(RECORDED_BATCH[name])
            return torch.randint(200_000, (count, 8)), torch.randint(2, (count,))

    return {"mlp": Mlp, "encoder": Encoder, "gpt": Gpt, "gpt_naive": GptNaive, "cnn": Cnn,
            "unet": Unet, "lstm": Lstm, "finetune": Finetune, "autocast": Gpt,
            "embedding": Tables, "moe": Moe}


def optimizer_of(torch, parameters, kind):
    parameters = [p for p in parameters if p.requires_grad]
    if kind == "8bit":
        return Bytes(torch, parameters)
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True if kind == "fused" else None)


class Bytes:
    """AdamW with states of one byte and a factor per 256 of them; works on small pieces."""
    PIECE, PER_FACTOR = 1 << 16, 256

    def __init__(self, torch, parameters):
        self.torch, self.parameters, self.states = torch, parameters, {}

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            p.grad = None

    def make_state(self, p):
        torch, count = self.torch, p.numel()
        if count < 4096:
            return [torch.zeros_like(p), torch.zeros_like(p)]
        factors = -(-count // self.PER_FACTOR)
        return [(torch.zeros(count, dtype=torch.uint8, device=p.device),
                 torch.zeros(factors, dtype=torch.float32, device=p.device)) for _ in range(2)]

    def step(self):
        with self.torch.no_grad():
            for p in self.parameters:
                if p.grad is None:
                    continue
                if p not in self.states:
                    self.states[p] = self.make_state(p)
                weights, gradient = p.view(-1), p.grad.view(-1)
                for at in range(0, p.numel(), self.PIECE):
                    piece = slice(at, at + self.PIECE)
                    weights[piece].add_(gradient[piece].sign(), alpha=-1e-5)


def start_group(torch, ranks):
    """A process group of so many ranks; without as many GPUs, one whose collectives do nothing."""
    import torch.distributed as dist
    if torch.cuda.device_count() >= ranks and "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)


def train(name, settings):
    import contextlib
    import torch
    torch.manual_seed(1)
    torch.cuda.set_device(0)
    if "limit" in settings:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(int(settings["limit"]) / total)
    half = "bf16" in settings
    ranks = int(settings.get("fsdp", 0))
    if ranks:
        start_group(torch, ranks)
    if name in plan_models.RECORDED_BATCH:
        model = plan_models.build(torch, name, settings).to("cuda")
    else:
        model = programs(torch, name, settings)[name]().to("cuda")
    if half:
        model = model.to(torch.bfloat16)
    if ranks:
        from torch.distributed.fsdp import fully_shard
        for path in ("layers", "down", "join", "blocks"):
            for block in getattr(model, path, ()):
                fully_shard(block)
        fully_shard(model)
    optimizer = optimizer_of(torch, model.parameters(), settings.get("optimizer"))
    casts = torch.autocast("cuda", torch.bfloat16) if name == "autocast" and not half else None
    for _ in range(STEPS):
        x, y = (tensor.to("cuda") for tensor in model.batch())
        if half and x.is_floating_point():
            x = x.to(torch.bfloat16)
        with casts or contextlib.nullcontext():
            loss = model.loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(json.dumps({"reserved": torch.cuda.max_memory_reserved(),
                      "allocated": torch.cuda.max_memory_allocated()}), flush=True)
    if ranks:
        torch.distributed.destroy_process_group()


# ---- record, predict, measure, check -----------------------------------------------------------

def run(*command):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=SECONDS)


def record(tidemark, folder, name, suffix, settings):
    out = folder / f"{name}{suffix}"
    try:
        done = run(tidemark, "run", "-o", out, "--no-kernels", "--", sys.executable,
                   pathlib.Path(__file__).resolve(), "train", name, *settings)
    except subprocess.TimeoutExpired:
        return "took too long"
    return out if done.returncode == 0 else (done.stdout + done.stderr)[-800:]


def plan(tidemark, *words):
    done = run(tidemark, "plan", *words, "--json")
    if done.returncode != 0:
        return {"error": done.stderr.strip()[-400:]}
    return json.loads(done.stdout)["devices"][0]


def peaks(answer):
    if "error" in answer:
        return answer
    found = answer["plan"]
    return {"reserved": found["reserved_peak_bytes"], "allocated": found["allocated_peak_bytes"],
            "low": found["low_reserved_peak_bytes"], "high": found["high_reserved_peak_bytes"]}


def applies(name, change):
    if change == "seq2":
        return name in SEQUENCES
    return change not in ("checkpoint", "fsdp2", "fsdp4") or name not in NO_LAYERS


def in_parallel(work, items):
    """[(item, work(item)) …], in the order of the items."""
    items = list(items)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(zip(items, pool.map(work, items)))


def record_all(tidemark, folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(name, suffix, settings) for name in names for suffix, settings in (
        ("", []), ("-batch", ["batch=1.5"]), *([("-seq", ["seq=1.5"])] if name in SEQUENCES else []))]
    for task, out in in_parallel(lambda task: record(tidemark, folder, *task), tasks):
        if isinstance(out, str):
            print(f"{task[0]}{task[1]}: not recorded: {out}", flush=True)


def predict_one(tidemark, folder, name, recorded_batch):
    one, entry = folder / name, {"changes": {}}
    others = {kind: folder / f"{name}-{kind}" for kind in ("batch", "seq")}
    for change, words in CHANGES.items():
        if not applies(name, change):
            continue
        found = {"one": peaks(plan(tidemark, one, *words))}
        other = others["seq" if change == "seq2" else "batch"]
        if change in ("batch2", "batch4", "half", "seq2") and other.exists():
            found["two"] = peaks(plan(tidemark, one, other, *words))
        entry["changes"][change] = found
    # With a card's size, the other bytes are this process's alone: programs share the GPU.
    recorded = plan(tidemark, one, "--card", "1TiB")
    if "error" not in recorded:
        entry["recorded"] = recorded["recorded"]
        size = int(2.6 * recorded["recorded"]["reserved_peak_bytes"]) + recorded["other_bytes"]
        fit = plan(tidemark, one, *([others["batch"]] if others["batch"].exists() else []), "--fit",
                   "--card", str(size), "--recorded-batch", recorded_batch)
        entry["fit"] = fit if "error" in fit else {
            "limit": fit["capacity_bytes"], "samples": fit["fit"].get("batch_samples", 0),
            "recorded_batch": recorded_batch}
    return entry


def predict(tidemark, folder, names):
    result = dict(in_parallel(
        lambda name: predict_one(tidemark, folder, name, RECORDED_BATCH[name]),
        (name for name in names if (folder / name).exists())))
    (folder / "predictions.json").write_text(json.dumps(result, indent=1))


def measure(name, settings):
    """Peaks of a real run; a text if it failed."""
    try:
        done = run(sys.executable, pathlib.Path(__file__).resolve(), "train", name, *settings)
    except subprocess.TimeoutExpired:
        return "took too long"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        error = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        return "out of memory" if "out of memory" in done.stderr else error[-1][:100]
    return json.loads(lines[-1])


def error_of(predicted, real):
    return predicted / real - 1


def measure_all(folder, names):
    predictions = json.loads((folder / "predictions.json").read_text())
    tasks = []
    for name in names:
        entry = predictions.get(name, {})
        tasks += [(name, change, SETTINGS[change]) for change in entry.get("changes", {})]
        fit = entry.get("fit", {})
        if fit.get("samples"):
            for key, count in (("fits", fit["samples"]), ("too_many", -(-fit["samples"] * 11 // 10))):
                tasks.append((name, key, [f"batch={count / fit['recorded_batch']}",
                                          f"limit={fit['limit']}"]))
    result = {}
    for (name, change, _), real in in_parallel(lambda task: measure(task[0], task[2]), tasks):
        result.setdefault(name, {})[change] = real
    (folder / "measured.json").write_text(json.dumps(result, indent=1))


def check(folder, names):
    predictions = json.loads((folder / "predictions.json").read_text())
    measured = json.loads((folder / "measured.json").read_text())
    errors, fits = {"one": [], "two": [], "best": []}, []
    print(f"{'program':<12}{'change':<12}{'measured':>10}{'one':>9}{'two':>9}{'allocated':>11}  MiB, errors")
    for name in names:
        for change, found in predictions.get(name, {}).get("changes", {}).items():
            real = measured.get(name, {}).get(change, "no run")
            if isinstance(real, str):
                print(f"{name:<12}{change:<12}  not measured: {real}")
                continue
            texts = {}
            for kind in ("one", "two"):
                if "reserved" in found.get(kind, {}):
                    error = error_of(found[kind]["reserved"], real["reserved"])
                    errors[kind].append(error)
                    texts[kind] = f"{100 * error:+.1f} %"
                elif kind in found:
                    print(f"{name:<12}{change:<12}  not planned: {found[kind]['error']}")
            if not texts:
                continue
            best = "two" if "two" in texts else "one"
            errors["best"].append(errors[best][-1])
            allocated = error_of(found[best]["allocated"], real["allocated"])
            print(f"{name:<12}{change:<12}{real['reserved'] >> 20:>10}{texts.get('one', ''):>9}"
                  f"{texts.get('two', ''):>9}{100 * allocated:>+9.1f} %")
        fit = predictions.get(name, {}).get("fit", {})
        if fit.get("samples"):
            runs = [measured.get(name, {}).get(key, "no run") for key in ("fits", "too_many")]
            fits.append(not isinstance(runs[0], str) and runs[1] == "out of memory")
            print(f"{name:<12}{'fit':<12}{fit['samples']:>10} samples: "
                  f"{'runs' if not isinstance(runs[0], str) else runs[0]}; 10 % more: "
                  f"{'runs' if not isinstance(runs[1], str) else runs[1]}")
    passed = bool(errors["best"] and fits)
    for kind, values in errors.items():
        if not values:
            continue
        sizes = sorted(abs(value) for value in values)
        median, within = statistics.median(sizes), sum(v <= 0.10 for v in sizes) / len(sizes)
        print(json.dumps({"from": kind, "predictions": len(sizes), "median": round(median, 4),
                          "within_10_percent": round(within, 4), "worst": round(sizes[-1], 4)}))
        if kind == "best":
            passed = passed and median <= 0.05 and within >= 0.90
    print(json.dumps({"fits": sum(fits), "of": len(fits)}))
    return 0 if passed and sum(fits) >= 0.8 * len(fits) else 1


if __name__ == "__main__":
    action, *words = sys.argv[1:]
    if action == "train":
        train(words[0], dict(word.split("=", 1) for word in words[1:]))
    elif action in ("record", "predict"):
        work = record_all if action == "record" else predict
        work(pathlib.Path(words[0]).resolve(), pathlib.Path(words[1]), words[2:] or PROGRAMS)
    else:
        work = measure_all if action == "measure" else check
        sys.exit(work(pathlib.Path(words[0]), words[1:] or PROGRAMS))
