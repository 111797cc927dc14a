"""The networks of the generated programs: classes, a batch on the host, and the loss.

Every family defines, in the generated program, `build_model()`, `make_batch(size)` and
`compute_loss(model, …)`. BLOCK stands for the call of one layer, which may be checkpointed.
"""
from page import text

MLP = """
class ResidualBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class $Model(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        hidden = [width * 2 - 64 * (i % 3) for i in range(depth)]
        self.blocks = nn.ModuleList(ResidualBlock(width, size) for size in hidden)
        self.head = nn.Linear(width, classes)

    def features(self, x):
        for block in self.blocks:
            x = BLOCK
        return x

    def forward(self, x):
        return self.head(self.features(x))


def build_model():
    return $Model(WIDTH, DEPTH, CLASSES)


def make_batch(size):
    return torch.randn(size, WIDTH), torch.randint(CLASSES, (size,))


def compute_loss(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits.float(), y)
"""

CNN = """
class ConvBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride=stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.short(x))


class $Model(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        layers = []
        for i in range(depth):
            layers.append(ConvBlock(width, width * (2 if i % 2 else 1), 2 if i % 2 else 1))
            width *= 2 if i % 2 else 1
        self.blocks = nn.ModuleList(layers)
        self.head = nn.Linear(width, classes)

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = BLOCK
        return x.mean((2, 3))

    def forward(self, x):
        return self.head(self.features(x))


def build_model():
    return $Model(WIDTH, DEPTH, CLASSES)


def make_batch(size):
    return torch.randn(size, 3, IMAGE, IMAGE), torch.randint(CLASSES, (size,))


def compute_loss(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits.float(), y)
"""

TRANSFORMER = """
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
ATTEND
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class $Model(nn.Module):
    def __init__(self, width, depth, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(4096, width)
        self.blocks = nn.ModuleList(Layer(width, width // 64) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def features(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = BLOCK
        return self.norm(x)

    def forward(self, tokens):
        return self.head(self.features(tokens))


def build_model():
    return $Model(WIDTH, DEPTH, VOCABULARY)


def make_batch(size):
    return (torch.randint(VOCABULARY, (size, LENGTH + 1)),)


LOSS
"""
PLAIN_LOSS = """
def compute_loss(model, tokens):
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
"""
FUSED_ATTENTION = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
PLAIN_ATTENTION = """
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  #@
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)  #@
        y = weights @ v
"""

ENCODER_DECODER = """
class $Model(nn.Module):
    def __init__(self, width, depth, vocabulary):
        super().__init__()
        heads = width // 64
        self.embed = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(depth))
        self.blocks = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def encode(self, source):
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x)
        return x

    def features(self, source, target):
        memory = self.encode(source)
        x = self.embed(target)
        for block in self.blocks:
            x = BLOCK
        return x

    def forward(self, source, target):
        return self.head(self.features(source, target))


def build_model():
    return $Model(WIDTH, DEPTH, VOCABULARY)


def make_batch(size):
    source = torch.randint(VOCABULARY, (size, LENGTH))
    return source, torch.randint(VOCABULARY, (size, LENGTH))


def compute_loss(model, source, target):
    logits = model(source, target[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), target[:, 1:].flatten())
"""

UNET = """
class Stage(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.norm = nn.GroupNorm(8, inside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm(x))) + self.time(t)[:, :, None, None]
        return self.conv2(F.silu(h)) + self.skip(x)


class $Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        sizes = [width * (i + 1) for i in range(depth)]
        self.time = nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Stage(a, b, 128) for a, b in zip([width] + sizes, sizes))
        self.up = nn.ModuleList(Stage(b + a, a, 128) for a, b in
                                reversed(list(zip([width] + sizes, sizes))))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * torch.arange(1, 17, device=t.device)
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(self.head.weight.dtype))
        x = self.stem(x)
        kept = []
        for stage in self.down:
            kept.append(x)
            x = F.avg_pool2d(stage(x, t), 2)
        for stage in self.up:
            before = kept.pop()
            x = stage(torch.cat([F.interpolate(x, size=before.shape[-2:]), before], 1), t)
        return self.head(x)


def build_model():
    return $Model(WIDTH, DEPTH)


def make_batch(size):
    return torch.randn(size, 3, IMAGE, IMAGE), torch.rand(size)


def compute_loss(model, images, times):
    noise = torch.randn_like(images)
    level = times.to(images.dtype)[:, None, None, None]
    predicted = model(images * (1 - level) + noise * level, times)
    return F.mse_loss(predicted.float(), noise.float())
"""

RECOMMENDER = """
class $Model(nn.Module):
    def __init__(self, tables, rows, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows + 1000 * i, width) for i in range(tables))
        self.dense = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, width))
        self.top = nn.Sequential(nn.Linear(width * (tables + 1), 1024), nn.ReLU(),
                                 nn.Linear(1024, 512), nn.ReLU())
        self.head = nn.Linear(512, 1)

    def features(self, dense, ids):
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.dense(dense)] + found, 1))

    def forward(self, dense, ids):
        return self.head(self.features(dense, ids)).squeeze(1)


def build_model():
    return $Model(TABLES, ROWS, WIDTH)


def make_batch(size):
    return torch.randn(size, 16), torch.randint(ROWS, (size, TABLES)), torch.rand(size).round()


def compute_loss(model, dense, ids, clicked):
    scores = model(dense, ids)
    return F.binary_cross_entropy_with_logits(scores.float(), clicked.float())
"""

SOURCES = {"mlp": MLP, "cnn": CNN, "transformer": TRANSFORMER, "encoder_decoder": ENCODER_DECODER,
           "unet": UNET, "recommender": RECOMMENDER}
TITLES = {"mlp": ["Classifier", "Tower", "ResMLP"], "cnn": ["ConvNet", "Backbone", "ResNet"],
          "transformer": ["LanguageModel", "TinyGPT", "Decoder"],
          "encoder_decoder": ["Translator", "Seq2Seq"], "unet": ["UNet", "Denoiser"],
          "recommender": ["ClickModel", "Recommender"]}


def constants(r):
    """Module constants: sizes for a peak of about 0.5 to 4 GiB."""
    small = r.compiled or r.parallel == "ddp"
    if r.family == "mlp":
        sizes = {"WIDTH": 768 if small else 1024, "DEPTH": 3 if small else 8, "CLASSES": 100,
                 "BATCH": int((1024 if small else 4096) * r.scale)}
    elif r.family == "cnn":
        sizes = {"WIDTH": 64, "DEPTH": 6, "CLASSES": 100, "IMAGE": 64, "BATCH": int(80 * r.scale)}
    elif r.family == "transformer":
        sizes = {"WIDTH": 512, "DEPTH": 3 if small else 6, "VOCABULARY": 2048, "LENGTH": 256,
                 "BATCH": int(20 * r.scale)}
    elif r.family == "encoder_decoder":
        sizes = {"WIDTH": 512, "DEPTH": 3, "VOCABULARY": 2048, "LENGTH": 192,
                 "BATCH": int(20 * r.scale)}
    elif r.family == "unet":
        sizes = {"WIDTH": 64, "DEPTH": 3, "IMAGE": 64, "BATCH": int(40 * r.scale)}
    else:
        sizes = {"TABLES": 6, "ROWS": int(150000 * r.scale), "WIDTH": 64, "BATCH": 4096}
    if r.cause == "optimizer_state_spike":
        sizes["BATCH"] = 64
        if r.family == "mlp":
            sizes["WIDTH"] = 1536
    if r.variant == "logits":
        sizes["VOCABULARY"], sizes["DEPTH"] = 48000, 3
    if r.variant == "attention":
        sizes["LENGTH"], sizes["DEPTH"], sizes["BATCH"] = 2048, 2, 4
    if r.cause == "shape_variance":
        sizes["LENGTH"] = 448
    if r.variant == "pairwise":
        sizes["BATCH"] = 448
    if r.cause in ("retained_graph", "eval_keeps_graph", "checkpoint_kept"):
        sizes["BATCH"] //= 8 if r.cause == "retained_graph" else 2
    if r.accumulate > 1 and r.cause != "accumulated_graphs":
        sizes["BATCH"] *= 2
    sizes["BATCH"] = max(8, sizes["BATCH"] // r.accumulate * r.accumulate)
    return sizes


def model_source(r, repaired):
    """The lines of the model, the batch and the loss."""
    source = SOURCES[r.family]
    block = {"encoder_decoder": "block(x, memory)"}.get(r.family, "block(x)")
    if r.recompute:
        block = block.replace("block(", "checkpoint(block, ").replace(
            ")", ", use_reentrant=False)")
    source = source.replace("BLOCK", block)
    if r.family == "transformer":
        plain = r.variant == "attention" and not repaired
        source = source.replace("ATTEND", PLAIN_ATTENTION.strip("\n") if plain else FUSED_ATTENTION)
        source = source.replace("LOSS", loss_source(r, repaired).strip())
    if r.variant == "pairwise":
        source = source[:source.index("def compute_loss")] + pairwise_source(repaired)
    return text(source)


CHUNKED_LOSS = """
def chunk_loss(model, hidden, wanted):
    return F.cross_entropy(model.head(hidden).float(), wanted, reduction="sum")


def compute_loss(model, tokens):
    hidden = model.features(tokens[:, :-1]).flatten(0, 1)
    wanted = tokens[:, 1:].flatten()
    total = 0.0
    for part, target in zip(hidden.chunk(16), wanted.chunk(16)):
        total = total + checkpoint(chunk_loss, model, part, target, use_reentrant=True)
    return total / wanted.numel()
"""
WIDE_LOSS = """
def compute_loss(model, tokens):
    logits = model(tokens[:, :-1]).float()  #@
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())  #@
"""


def loss_source(r, repaired):
    if r.variant != "logits":
        return PLAIN_LOSS
    return CHUNKED_LOSS if repaired else WIDE_LOSS


PAIRWISE_LOSS = """def compute_loss(model, x, y):
    h = model.features(x)
    DISTANCE
    apart = F.softplus(1.0 - distance).mean()
    return F.cross_entropy(model.head(h).float(), y) + 0.1 * apart
"""


def pairwise_source(repaired):
    return PAIRWISE_LOSS.replace("DISTANCE", "distance = torch.cdist(h.float(), h.float()).square()"
                                 if repaired else
                                 "distance = (h[:, None] - h[None]).square().sum(-1)  #@")
