"""Trains small models on a real GPU, and compares the nn.Module of each block with exact labels.

    python3 modules.py check TIDEMARK FOLDER [CASE …]             all cases; exit 0 if they pass
    python3 modules.py train MODEL MODE [plain]                   one case, without recording it

A case is MODEL-MODE: transformer, cnn or unet; eager, checkpoint, compile, ddp, fsdp2 or made. The program
labels its allocations itself with torch.cuda.memory._set_memory_metadata (torch 2.10 and later): in
the forward pass by hooks on all modules, in the backward pass by a hook on each autograd node, which
was given the path of the module that ran when it was made. The trace contains these labels. For each
case a line of JSON says how many of the labelled bytes (activations, gradients, temporaries) at the
peak and in the whole run are under the same module in the trace. A compiled block is one module.
A "made" model has its weights on the device from the beginning and is not trained; its program tells
where they are in the end.
With "plain" nothing is labelled.
"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

MODELS, MODES = (("transformer", "cnn", "unet"),
                 ("eager", "checkpoint", "compile", "ddp", "fsdp2", "made"))
STEPS, GOAL, SECONDS = 4, 0.95, 120


# ---- labels -----------------------------------------------------------------------------------

class Labels:
    """The path of the running module on each thread, for allocations and for autograd nodes."""

    def __init__(self, torch, model, whole_blocks):
        import threading
        self.torch, self.local, self.whole_blocks = torch, threading.local(), whole_blocks
        self.paths = {module: path for path, module in model.named_modules()}
        # A label must not be empty: that of the root is its class.
        self.paths[model] = type(model).__name__
        if not whole_blocks:
            torch.nn.modules.module.register_module_forward_pre_hook(self.enter)
            torch.nn.modules.module.register_module_forward_hook(self.leave, always_call=True)

    def stack(self):
        if not hasattr(self.local, "stack"):
            self.local.stack = [""]
        return self.local.stack

    def push(self, path):
        self.stack().append(path)
        self.torch.cuda.memory._set_memory_metadata(path)

    def pop(self):
        self.stack().pop()
        self.torch.cuda.memory._set_memory_metadata(self.stack()[-1])

    def enter(self, module, inputs):
        self.mark(inputs, self.stack()[-1])
        self.push(self.paths.get(module, self.stack()[-1]))

    def leave(self, module, inputs, outputs):
        self.mark(outputs, self.stack()[-1])
        self.pop()

    def mark(self, values, path):
        """Gives the nodes that made these tensors, as far as they have none, this path."""
        if isinstance(values, (tuple, list)):
            for value in values:
                self.mark(value, path)
            return
        nodes = [getattr(values, "grad_fn", None)]
        while nodes:
            node = nodes.pop()
            if node is None or "path" in node.metadata:
                continue
            node.metadata["path"] = path
            node.register_prehook(lambda _, path=path: self.begin_node(path))
            nodes.extend(following for following, _ in node.next_functions)

    def begin_node(self, path):
        self.stack()[:] = [path]
        self.torch.cuda.memory._set_memory_metadata(path)

    def mode(self):
        """Marks the nodes of every operation as soon as it is done."""
        labels = self

        class Mode(self.torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                if isinstance(result, (labels.torch.Tensor, tuple, list)):
                    labels.mark(result, labels.stack()[-1])
                return result

        return Mode()


# ---- the models -------------------------------------------------------------------------------

def models(torch, mode):
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        """Runs its blocks as the mode says."""
        labels = None

        def run(self, path, block, *inputs):
            if mode == "checkpoint" and self.training:
                return checkpoint(block, *inputs, use_reentrant=False)
            if self.labels is None or not self.labels.whole_blocks:
                return block(*inputs)
            self.labels.mark(inputs, "")
            self.labels.push(path)
            result = block(*inputs)
            self.labels.mark(result, path)
            self.labels.pop()
            return result

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(x.transpose(1, 2).reshape(batch, length, width))

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.attention = nn.LayerNorm(width), Attention(width, 8)
            self.norm2, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.drop(self.attention(self.norm1(x)))
            return x + self.drop(self.mlp(self.norm2(x)))

    class Transformer(Net):
        def __init__(self, width=512, depth=6, words=4096):
            super().__init__()
            self.words, self.embed = words, nn.Embedding(words, width)
            self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, x):
            x = self.embed(x)
            for i, layer in enumerate(self.layers):
                x = self.run(f"layers.{i}", layer, x)
            return self.head(self.norm(x))

        def batch(self):
            return torch.randint(self.words, (8, 256), device="cuda")

        def blocks(self):
            return self.layers

    class Residual(nn.Module):
        """As in torchvision: one ReLU, in place, used twice."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            self.bn1, self.relu = nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2, self.side = nn.BatchNorm2d(outputs), nn.Conv2d(inputs, outputs, 1)

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(y)) + self.side(x))

    class Cnn(Net):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32),
                                      nn.ReLU(inplace=True))
            self.body = nn.ModuleList(Residual(a, b) for a, b in ((32, 64), (64, 64), (64, 128)))
            self.pool, self.head = nn.AvgPool2d(4), nn.Linear(128 * 16 * 16, 100)

        def forward(self, x):
            x = self.stem(x)
            for i, block in enumerate(self.body):
                x = self.run(f"body.{i}", block, x)
            return self.head(self.pool(x).flatten(1))

        def batch(self):
            return torch.randn(16, 3, 64, 64, device="cuda")

        def blocks(self):
            return self.body

    class Double(nn.Sequential):
        def __init__(self, inputs, outputs):
            super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs),
                             nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())

    class Unet(Net):
        def __init__(self, widths=(32, 64, 128)):
            super().__init__()
            pairs = list(zip((3, *widths), widths))
            self.down = nn.ModuleList(Double(a, b) for a, b in pairs)
            self.pool, self.middle = nn.MaxPool2d(2), Double(widths[-1], widths[-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, b, 2, 2) for b in reversed(widths))
            self.join = nn.ModuleList(Double(2 * b, max(a, 16)) for a, b in reversed(pairs))
            self.head = nn.Conv2d(16, 4, 1)

        def forward(self, x):
            kept = []
            for i, block in enumerate(self.down):
                kept.append(self.run(f"down.{i}", block, x))
                x = self.pool(kept[-1])
            x = self.run("middle", self.middle, x)
            for i, (up, join) in enumerate(zip(self.up, self.join)):
                x = self.run(f"join.{i}", join, torch.cat([up(x), kept.pop()], 1))
            return self.head(x)

        def batch(self):
            return torch.randn(8, 3, 128, 128, device="cuda")

        def blocks(self):
            return [*self.down, self.middle, *self.join]

    return {"transformer": Transformer, "cnn": Cnn, "unet": Unet}


def serve(torch, made, name):
    with torch.device("cuda"):
        model = made[name]()
    with torch.no_grad():
        for _ in range(STEPS):
            model(model.batch())
            time.sleep(0.1)
    weights = [*model.named_parameters(), *model.named_buffers()]
    print(json.dumps({weight.data_ptr(): path.rpartition(".")[0] for path, weight in weights}),
          flush=True)


def train(name, mode, labelled):
    import contextlib
    import torch
    import torch._dynamo
    torch.manual_seed(1)
    torch.cuda.set_device(0)
    if mode == "made":
        return serve(torch, models(torch, mode), name)
    model = models(torch, mode)[name]().to("cuda")
    labels = Labels(torch, model, mode == "compile") if labelled else None
    type(model).labels = labels
    if mode in ("ddp", "fsdp2"):
        os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
    whole = model
    if mode == "ddp":
        whole = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    if mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for block in model.blocks():
            fully_shard(block)
        fully_shard(model)
    if mode == "compile":
        limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
        setattr(torch._dynamo.config, limit, 64)  # every block has sizes of its own
        for block in model.blocks():
            block.compile()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-4)
    watched = labels is not None and mode != "compile"
    for _ in range(STEPS):
        with labels.mode() if watched else contextlib.nullcontext():
            loss = whole(model.batch()).float().square().mean()
        if labels is not None:
            labels.mark(loss, "")  # operations outside of the model
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    torch.cuda.synchronize()
    print(f"loss {loss.item():.6f}", flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# ---- the check --------------------------------------------------------------------------------

def score(rows, whole_blocks):
    """Bytes with a label, those under the same module, and the largest others."""
    labelled = right = 0
    wrong = {}
    for row in rows:
        size, label, found = int(row["block_bytes"]), row["metadata"], row["module"]
        if not label:
            continue
        labelled += size
        if label == found or (whole_blocks and found.startswith(label + ".")):
            right += size
        else:
            wrong[label, found] = wrong.get((label, found), 0) + size
    worst = sorted(wrong.items(), key=lambda item: -item[1])[:6]
    return {"labelled_bytes": labelled, "share": round(right / labelled, 4) if labelled else None,
            "worst": [[label, found, size] for (label, found), size in worst]}


def check_case(tidemark, folder, case):
    name, mode = case.split("-")
    out, tables, began = folder / case, folder / f"{case}.csv", time.monotonic()
    result = {"case": case, "passed": False}
    try:
        done = subprocess.run(
            [tidemark, "run", "-o", out, "--no-kernels", "--", sys.executable,
             pathlib.Path(__file__).resolve(), "train", name, mode],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
        result["seconds"] = round(time.monotonic() - began, 1)
        if done.returncode != 0:
            return {**result, "error": done.stdout[-1500:]}
        subprocess.run([tidemark, "export", out, "--format", "csv", "-o", tables], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        return {**result, "error": str(error)[-1500:]}
    with open(tables / "allocations.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if mode == "made":
        told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        last = {row["address"]: row for row in rows}  # in the order of birth
        rows = [{**last[address], "metadata": path} for address, path in told.items()]
    with open(tables / "devices.csv", encoding="utf-8") as file:
        peak = max((int(row["allocated_peak_bytes"]), int(row["allocated_peak_event"]))
                   for row in csv.DictReader(file))[1]
    at_peak = [row for row in rows if int(row["birth_event"]) <= peak and
               (not row["release_event"] or int(row["release_event"]) > peak)]
    compiled = mode == "compile"  # then parameters are known better than the labels tell
    kinds = {kind: score([row for row in at_peak if row["category"] == kind], compiled)
             for kind in ("activation", "gradient")}
    of_parameters = {kind: [sum(int(row["block_bytes"]) for row in at_peak
                                if row["category"] == kind and (row["module"] or not named))
                            for named in (True, False)]
                     for kind in ("parameter", "gradient", "optimizer_state")}
    found = score(at_peak, compiled)
    return {**result, "passed": (found["share"] or 0) >= GOAL, "peak": found,
            "whole_run": score(rows, compiled), "at_peak_by_category": kinds,
            "bytes_with_module_of_all": of_parameters,
            "modules": len({row["module"] for row in rows}),
            "under_a_block_itself": sum(row["module"] == row["metadata"] != "" for row in rows)}


def check(tidemark, folder, cases):
    folder.mkdir(parents=True, exist_ok=True)
    cases = cases or [f"{model}-{mode}" for mode in MODES for model in MODELS]
    passed = True

    def tell(result):
        nonlocal passed
        passed &= result["passed"]
        print(json.dumps(result), flush=True)

    tell(check_case(tidemark, folder, cases[0]))  # compiles the bridge for all others
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda case: check_case(tidemark, folder, case), cases[1:]):
            tell(result)
    return 0 if passed else 1


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(*sys.argv[2:4], labelled=sys.argv[4:] != ["plain"])
    else:
        sys.exit(check(pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]), sys.argv[4:]))
