"""Models of torchvision, transformers and torch.nn for plan.py: nobody here wrote them."""

SEQUENCES = ("gpt2", "llama", "bert", "t5", "seq2seq")
RECORDED_BATCH = {"resnet50": 24, "densenet": 16, "vit": 24, "convnext": 16, "swin": 16,
                  "gpt2": 8, "llama": 8, "bert": 12, "t5": 8, "seq2seq": 12}
WORDS = 16_000


def vision(name):
    from torchvision import models
    build = {"resnet50": models.resnet50, "densenet": models.densenet121, "vit": models.vit_b_16,
             "convnext": models.convnext_tiny, "swin": models.swin_t}[name]
    model = build(weights=None)
    if name == "resnet50":
        blocks = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4)
                  for block in layer]
    elif name == "vit":
        blocks = list(model.encoder.layers)
    elif name == "densenet":
        blocks = [part for key, part in model.features.named_children() if "denseblock" in key]
    else:
        # Between Swin's stages are layers that are no sequence.
        blocks = [block for stage in model.features if hasattr(stage, "__iter__") for block in stage]
    return model, blocks


def language(name):
    import transformers as hf
    if name == "gpt2":
        model = hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=8, n_embd=512, n_head=8, vocab_size=WORDS,
                                                 n_positions=2048))
        return model, list(model.transformer.h)
    if name == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(
            hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
            num_key_value_heads=4, vocab_size=WORDS, max_position_embeddings=2048, use_cache=False))
        return model, list(model.model.layers)
    if name == "bert":
        model = hf.BertForMaskedLM(hf.BertConfig(
            hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048,
            vocab_size=WORDS, max_position_embeddings=2048))
        return model, list(model.bert.encoder.layer)
    model = hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=512, d_ff=1024, num_layers=6, num_heads=8, vocab_size=WORDS, use_cache=False,
        decoder_start_token_id=0))
    return model, [*model.encoder.block, *model.decoder.block]


def build(torch, name, settings):
    """The model, ready for train() of plan.py: with loss(output, target), batch() and blocks."""
    from torch import nn
    from torch.nn import functional as F
    count = max(1, round(RECORDED_BATCH[name] * float(settings.get("batch", 1))))
    length = max(1, round(256 * float(settings.get("seq", 1))))

    class Seq2Seq(nn.Module):
        def __init__(self, width=512):
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
            self.net = nn.Transformer(width, 8, 4, 4, 2048, batch_first=True)

        def forward(self, x):
            x = self.embed(x)
            return self.head(self.net(x, x))

    if name == "seq2seq":
        model = Seq2Seq()
        blocks = [*model.net.encoder.layers, *model.net.decoder.layers]
    elif name in SEQUENCES:
        model, blocks = language(name)
    else:
        model, blocks = vision(name)
    if "checkpoint" in settings:
        from torch.utils.checkpoint import checkpoint
        for block in blocks:
            plain = block.forward
            block.forward = lambda *a, plain=plain, **k: checkpoint(plain, *a, use_reentrant=False, **k)

    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            object.__setattr__(self, "blocks", blocks)  # no names of their own

        def forward(self, x):
            if name == "t5":
                return self.model(input_ids=x, labels=x).logits
            out = self.model(x)
            return out if name == "seq2seq" or name not in SEQUENCES else out.logits

        def loss(self, output, target):
            return F.cross_entropy(output.flatten(0, -2), target.flatten())

        def batch(self):
            if name in SEQUENCES:
                return (torch.randint(WORDS, (count, length)), torch.randint(WORDS, (count, length)))
            return torch.randn(count, 3, 224, 224), torch.randint(1000, (count,))

    return Program()
