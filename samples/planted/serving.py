"""Composes a serving program: requests that a model answers, one after the other."""
from families import CNN, RECOMMENDER, TITLES
from page import indent, named, text
from slots import Plan
from training import guarded, history, record_lines

FILES = ["serve.py", "generate.py", "infer.py", "worker.py", "inference.py"]

DECODER = """
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache, index):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = cache.extend(index, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x, cache, index):
        x = x + self.attention(self.norm1(x), cache, index)
        return x + self.mlp(self.norm2(x))


class $Model(nn.Module):
    def __init__(self, width, depth, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Layer(width, width // 64) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, cache):
        x = self.embed(tokens)
        for index, block in enumerate(self.blocks):
            x = block(x, cache, index)
        return HEAD
"""
GROWING_CACHE = """
class Cache:
    def __init__(self, batch):
        self.keys, self.values = {}, {}

    def extend(self, index, k, v):
        if index in self.keys:
            k = torch.cat([self.keys[index], k], 2)  MARK
            v = torch.cat([self.values[index], v], 2)  MARK
        self.keys[index], self.values[index] = k, v
        return k, v
"""
STATIC_CACHE = """
class Cache:
    def __init__(self, batch):
        shape = (2, DEPTH, batch, WIDTH // 64, PROMPT + TOKENS, 64)
        self.memory = torch.zeros(shape, device="cuda", dtype=DTYPE)  MARK
        self.lengths = [0] * DEPTH

    def extend(self, index, k, v):
        begin = self.lengths[index]
        end = self.lengths[index] = begin + k.shape[2]
        self.memory[0, index, :, :, begin:end] = k
        self.memory[1, index, :, :, begin:end] = v
        return self.memory[0, index, :, :, :end], self.memory[1, index, :, :, :end]
"""
GENERATE = """
def make_request(size):
    return (torch.randint(VOCABULARY, (size, PROMPT)),)


def answer(model, prompt):
    cache = Cache(prompt.shape[0])  MARK
    logits = model(prompt, cache)  PEAK
    found = []
    for _ in range(TOKENS):
        token = logits[:, -1].argmax(-1, keepdim=True)
        found.append(token)
        logits = model(token, cache)  MARK
    return torch.cat(found, 1), cache
"""
SCORE = """
def make_request(size):
    return make_batch(size)[:INPUTS]


def answer(model, *inputs):
    hidden = model.features(*inputs)  MARK
    return model.head(hidden), hidden
"""


def model_lines(r, plan, rng):
    mark = "#@" if r.variant == "serving" and not plan.repaired else ""
    if r.family == "decoder":
        wide = r.cause == "one_operation_peak"
        head = "self.head(x)" if wide and not plan.repaired else "self.head(x[:, -1:])"
        if wide:
            head += ".float()  #@"
        source = DECODER.replace("HEAD", head)
        cache = STATIC_CACHE if rng.random() < 0.5 else GROWING_CACHE
        source += "\n\n" + cache.strip("\n") + "\n\n\n" + GENERATE.strip("\n")
        source = source.replace("PEAK", "#@" if wide or mark else "")
        build = "$Model(WIDTH, DEPTH, VOCABULARY)"
    else:
        source = CNN if r.family == "cnn" else RECOMMENDER
        source = source[:source.index("def compute_loss")].rstrip().replace("BLOCK", "block(x)")
        inputs = "1" if r.family == "cnn" else "2"
        source += "\n\n\n" + SCORE.strip("\n").replace("INPUTS", inputs)
        build = "build_model()"
    return text(source.replace("MARK", mark)), build


def sizes_of(r):
    if r.family == "decoder":
        sizes = {"WIDTH": 1024, "DEPTH": 6, "VOCABULARY": 8192, "PROMPT": 384, "TOKENS": 6,
                 "BATCH": int(10 * r.scale)}
        if r.cause == "one_operation_peak":
            sizes.update(VOCABULARY=64000, PROMPT=512, DEPTH=3)
        return sizes
    if r.family == "cnn":
        return {"WIDTH": 64, "DEPTH": 6, "CLASSES": 1000, "IMAGE": 96, "BATCH": int(48 * r.scale)}
    return {"TABLES": 8, "ROWS": int(200000 * r.scale), "WIDTH": 64, "BATCH": 65536}


def plant(plan, r, rng):
    """What a cause adds to the program; returns the lines after an answer."""
    after = []
    if r.variant == "serving":
        plan.advice = ("release_growth",)
        plan.add("setup", "$skept = {}")
        after = ["$skept[0] = extra" if plan.repaired else "$skept[number] = extra  #@"]
    elif r.cause == "cache_thrash":
        plan.measure = None
        after = [] if plan.repaired else ["torch.cuda.empty_cache()  #@"]
    elif r.cause == "pinned_growth":
        plan.measure, plan.advice = "pinned", ("reuse_pinned",)
        plan.add("constants", "STAGED = 16 << 20")
        line = "torch.empty(STAGED, pin_memory=True)"
        plan.add("setup", f"$sstaged = {line}" if plan.repaired else "$sstaged = []")
        after = [f"host = {'$sstaged' if plan.repaired else line + '  #@'}",
                 "host[:64].fill_(number)"]
        after += [] if plan.repaired else ["$sstaged.append(host)  #@"]
    elif r.cause == "stream_pools":
        plan.measure = "reserved"
        count = rng.choice([5, 6])
        plan.add("setup", f"$sstreams = [torch.cuda.Stream()] * {count}" if plan.repaired else
                 f"$sstreams = [torch.cuda.Stream() for _ in range({count})]")
    elif r.cause == "capacity":
        plan.expect_oom, plan.measure = True, None
        plan.also = ("one_operation_peak",)
        rows = rng.choice([220, 240, 260]) * 1000
        plan.add("constants", f"CATALOGUE = {rows}")
        after = ["if number == REQUESTS - 3:",
                 '    vectors = torch.randn(CATALOGUE, 64, device="cuda")',
                 "    best = (vectors @ vectors.T).argmax(1)  #@"]
        if plan.repaired:
            after[2:] = ["    best = torch.cat([(part @ vectors.T).argmax(1)",
                         "                      for part in vectors.split(1000)])"]
    elif r.cause == "graph_private_pool":
        plan.measure, plan.advice = "reserved", ("share_pool",)
    elif r.cause is None and r.habits[0] < 0.5:
        plan.add("imports", "from collections import OrderedDict")
        plan.add("setup", "$ssessions = OrderedDict()")
        after = ["$ssessions[number] = extra", "if len($ssessions) > 3:",
                 "    $ssessions.popitem(last=False)"]
    return after


GRAPHS = """
def capture(model, size, pool):
    inputs = [t.cuda() for t in make_request(size)]
    inputs = [t.to(DTYPE) if t.is_floating_point() else t for t in inputs]
    answer(model, *inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):  #@
        result, extra = answer(model, *inputs)  #@
    del extra
    return graph, inputs, result
"""


def request_lines(r, after):
    """Answering one request, `number`."""
    move = "inputs = [t.cuda() for t in make_request(size)]"
    lines = ["size = BATCH", move]
    if r.precision == "bf16" and r.family != "decoder":
        lines.append("inputs = [t.to(DTYPE) if t.is_floating_point() else t for t in inputs]")
    if r.cause == "graph_private_pool":
        return ["graph, inputs, result = $sgraphs[number % len($sgraphs)]",
                "for static, fresh in zip(inputs, make_request(inputs[0].shape[0])):",
                "    static.copy_(fresh)", "graph.replay()", "result = result.cpu()"]
    if r.cause == "stream_pools":
        lines += ["stream = $sstreams[number % len($sstreams)]",
                  "stream.wait_stream(torch.cuda.current_stream())",
                  "with torch.cuda.stream(stream):",
                  "    result, extra = answer($net, *inputs)  #@",
                  "stream.synchronize()"]
    else:
        mark = "  #@" if r.variant == "serving" else ""
        lines.append(f"result, extra = answer($net, *inputs){mark}")
    return [*lines, *after, "result = result.cpu()", "del extra"]


def setup_lines(plan, r, build, guard):
    lines = [f'$net = {build}.to("cuda", dtype=DTYPE).eval()', *plan.slots["setup"]]
    if r.cause == "graph_private_pool":
        lines += ["pool = " + ("torch.cuda.graph_pool_handle()" if plan.repaired else "None"),
                  "sizes = [BATCH - i * (BATCH // 8) for i in range(5)]",
                  f"with {guard}:",
                  "    $sgraphs = [capture($net, size, pool) for size in sizes]  #@"]
    return lines


def loop_lines(r, call):
    body = [*[line.replace("step", "number") for line in record_lines(r)], *call]
    return ["for number in range(REQUESTS):", *indent(body)]


def compose(r, rng, repaired):
    """(lines, file name, plan) of a serving program."""
    plan = Plan(repaired, sizes_of(r))
    after = plant(plan, r, rng)
    model, build = model_lines(r, plan, rng)
    guard = rng.choice(["torch.no_grad()", "torch.inference_mode()"])
    prefix = "self." if r.style == "server" else ""
    names = {"s": prefix, "net": prefix + rng.choice(["model", "net"]),
             "Model": rng.choice(TITLES.get(r.family, ["Decoder", "Generator", "TinyLM"]))}
    dtype = "torch.bfloat16" if r.precision == "bf16" else "torch.float32"
    begin = [history(r)] if r.recording == "snapshot" and r.window == "all" else []
    setup, request = setup_lines(plan, r, build, guard), request_lines(r, after)
    if r.style == "server":
        main = ["class Server:", "    def __init__(self):", *indent(setup, 2), "",
                "    def handle(self, number):", *indent(request, 2), "        return result", "",
                "    def run(self):", *indent([f"with {guard}:", *indent(guarded(
                    r, loop_lines(r, ["self.handle(number)"])))], 2), "", "",
                'if __name__ == "__main__":', "    with observed():",
                *indent([*begin, "server = Server()", "server.run()"], 2)]
    else:
        main = ["def main():", *indent([*begin, *setup, f"with {guard}:",
                *indent(guarded(r, loop_lines(r, request))), "return $net"]), "", "",
                'if __name__ == "__main__":', "    with observed():", "        served = main()"]
    imports = ["import torch", "import torch.nn.functional as F", "from torch import nn", "",
               "from run_statistics import observed"]
    standard = [*plan.slots["imports"], ""] if plan.slots["imports"] else []
    constants = [f"{name} = {value}" for name, value in plan.sizes.items()]
    graphs = ["", "", *text(GRAPHS)] if r.cause == "graph_private_pool" else []
    lines = [f'"""Answers requests with a {r.family}."""', *standard, *imports, "", *constants,
             f"REQUESTS = {r.steps}", f"DTYPE = {dtype}", *plan.slots["constants"], "", "",
             *model, *graphs, "", "", *main]
    return named(lines, names), rng.choice(FILES), plan


