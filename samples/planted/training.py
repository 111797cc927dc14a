"""Composes a training program from a recipe: setup, steps, validation, saving, recording."""
from causes import PLANT
from families import TITLES, constants, model_source
from habits import add_habits
from page import indent, named, text
from slots import Plan

OPTIMIZERS = {
    "sgd": "torch.optim.SGD({}, lr=1e-3, momentum=0.9)",
    "adam": "torch.optim.Adam({}, lr=1e-4)",
    "adamw": "torch.optim.AdamW({}, lr=1e-4, weight_decay=0.01)",
    "adam_foreach": "torch.optim.Adam({}, lr=1e-4, foreach=True)",
    "adamw_foreach": "torch.optim.AdamW({}, lr=1e-4, foreach=True)",
    "adam_fused": "torch.optim.Adam({}, lr=1e-4, fused=True)",
    "adamw_fused": "torch.optim.AdamW({}, lr=1e-4, fused=True)",
}
FILES = ["train.py", "run_training.py", "fit.py", "finetune.py", "pretrain.py", "experiment.py"]
PREFIX = {"functions": "run.", "trainer": "self.", "flat": ""}


def make_plan(r, rng, repaired):
    plan = Plan(repaired, constants(r), accumulate=r.accumulate)
    if r.cause:
        PLANT[r.cause](plan, r, rng)
    add_habits(plan, r, rng)
    if r.steps <= 2:
        raise ValueError("too few steps")
    return plan


def imports(plan, r):
    lines = {"import torch", "import torch.nn.functional as F", "from torch import nn",
             "from run_statistics import observed", *plan.slots["imports"]}
    if r.variant == "attention" and not plan.repaired:
        lines.add("import math")
    if r.loader == "loader":
        lines.add("from torch.utils.data import DataLoader, Dataset")
    if r.recompute or (r.variant == "logits" and plan.repaired):
        lines.add("from torch.utils.checkpoint import checkpoint")
    if r.style == "functions":
        lines.add("from types import SimpleNamespace")
    if r.parallel != "none":
        lines.add("import torch.distributed as dist")
    if r.parallel == "ddp":
        lines.add("from torch.nn.parallel import DistributedDataParallel")
    if r.parallel == "fsdp2":
        lines.add("from torch.distributed.fsdp import fully_shard")
        lines.add("from torch.testing._internal.distributed.fake_pg import FakeStore")
    foreign = {line for line in lines if "torch" in line or "run_statistics" in line}
    order = lambda line: (line.startswith("from"), line)  # noqa: E731
    return sorted(lines - foreign, key=order) + [""] + sorted(foreign, key=order)


def data_source(plan, r):
    cast = ""
    if r.precision == "bf16":
        cast = "    moved = [t.bfloat16() if t.is_floating_point() else t for t in moved]\n"
    lines = text(f"""
def to_device(batch):
    moved = [t.to("cuda", non_blocking=True) for t in batch]
{cast}    return moved
""") + ["", ""]
    if r.loader == "generator":
        return lines + text("""
def batches(count):
    pool = [make_batch(BATCH) for _ in range(3)]
    for i in range(count):
        yield pool[i % len(pool)]
""")
    return lines + text(f"""
class Batches(Dataset):
    def __init__(self, count):
        self.count = count
        self.pool = [make_batch(BATCH) for _ in range(3)]

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.pool[i % len(self.pool)]


def batches(count):
    return DataLoader(Batches(count), batch_size=None, pin_memory={r.pinned})
""")


def optimizer_source(plan, r):
    place = '    model = model.to("cuda", dtype=torch.bfloat16)' if r.precision == "bf16" else (
        '    model = model.to("cuda")')
    lines = text(f"""
def to_training(model):
{place}
    return model.train()


def make_optimizer(model):
""")
    kind = plan.optimizer or r.optimizer
    if kind == "two":
        return lines + ["    flat = [p for p in model.parameters() if p.dim() < 2]",
                        "    deep = [p for p in model.parameters() if p.dim() >= 2]",
                        "    return [torch.optim.SGD(flat, lr=1e-3), "
                        "torch.optim.AdamW(deep, lr=1e-4)]"]
    trained = plan.trained.replace("$net", "model")
    return lines + ["    return " + OPTIMIZERS[kind].format(trained)]


def setup_lines(plan, r):
    lines = ["$net = to_training(build_model())", *plan.slots["after_model"]]
    if r.parallel == "ddp":
        lines.append("$net = DistributedDataParallel($net)")
    if r.parallel == "fsdp2":
        lines += ["for block in $net.blocks:", "    fully_shard(block)", "fully_shard($net)"]
    lines.append("$opt = make_optimizer($net)")
    if r.compiled:
        lines.append("$net = torch.compile($net)")
    return lines + plan.slots["setup"]


def marked(line, is_marked):
    return line + "  #@" if is_marked else line


def within_autocast(r, *lines):
    if r.precision != "autocast":
        return list(lines)
    return ['with torch.autocast("cuda", dtype=torch.bfloat16):', *indent(lines)]


def each_optimizer(plan, r):
    if (plan.optimizer or r.optimizer) == "two":
        return ["for each in $opt:", marked("    each.step()", plan.mark_optimizer),
                "    each.zero_grad(set_to_none=True)"]
    return [marked("$opt.step()", plan.mark_optimizer), "$opt.zero_grad(set_to_none=True)"]


def step_lines(plan, r):
    """One step, from the batch on the host to the optimizer."""
    slots = plan.slots
    lines = [*slots["step_begin"], "$inputs = to_device(batch)"]
    if plan.accumulate == 1:
        lines += within_autocast(
            r, marked("$loss = compute_loss($net, *$inputs)", plan.mark_forward))
        lines += [*slots["after_forward"], marked(plan.backward, plan.mark_backward)]
    else:
        forward = within_autocast(
            r, marked("$loss = compute_loss($net, *part)", plan.mark_forward))
        lines += ["total = 0.0", f"parts = [t.chunk({plan.accumulate}) for t in $inputs]",
                  "for part in zip(*parts):", *indent(forward)]
        if plan.sum_losses:
            lines += [f"    total = total + $loss / {plan.accumulate}  #@", "total.backward()"]
        else:
            lines += [f"    $loss = $loss / {plan.accumulate}", "    $loss.backward()",
                      "    total += $loss.item()"]
    return [*lines, *slots["after_backward"], *each_optimizer(plan, r), *slots["after_step"]]


def validate_lines(plan, r):
    kind = plan.validate.removeprefix("no_grad_")
    marks = not plan.validate.startswith("no_grad")
    if kind == "outputs":
        body = ["outputs = []", "for batch in batches(4):",
                *indent(within_autocast(
                    r, marked("outputs.append(compute_loss($net, *to_device(batch)))", marks))),
                "value = torch.stack(outputs).mean().item()", "outputs.clear()"]
    else:
        size = "BATCH" if r.parallel == "ddp" else "3 * BATCH"
        body = [f"inputs = to_device(make_batch({size}))",
                *within_autocast(r, marked("value = compute_loss($net, *inputs)", marks)),
                "value = value.item()"]
    if plan.validate.startswith("no_grad"):
        body = ["with torch.no_grad():", *indent(body)]
    return ["$net.eval()", *body, "$net.train()"]


def save_lines():
    return ['torch.save({"model": $net.state_dict()}, "last.pt")']


def history(r):
    return f'torch.cuda.memory._record_memory_history(stacks="{r.stacks}")'


def dump(r):
    if r.parallel == "ddp":
        return 'torch.cuda.memory._dump_snapshot(f"snapshot_rank{dist.get_rank()}.pickle")'
    return 'torch.cuda.memory._dump_snapshot("snapshot.pickle")'


def begin_lines(r):
    lines = []
    if r.parallel == "ddp":
        lines.append('dist.init_process_group("gloo")')
    if r.parallel == "fsdp2":
        lines.append('dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)')
    if r.recording == "snapshot" and r.window == "all":
        lines.append(history(r))
    return lines


def record_lines(r):
    """Before each step: where the recording begins, and where that of one step ends."""
    if r.recording != "snapshot" or r.window == "all":
        return []
    lines = [f"if step == {r.record_from}:", "    torch.cuda.synchronize()", "    " + history(r)]
    if r.window == "single":
        lines += [f"if step == {r.record_from + 1}:", "    " + dump(r),
                  "    torch.cuda.memory._record_memory_history(enabled=None)"]
    return lines


def loop_lines(plan, r, step, validate, save):
    """The epochs; `step`, `validate` and `save` are calls or the lines themselves."""
    slots = plan.slots
    inner = [*record_lines(r), *step, "step += 1",
             "if step % 10 == 0:", '    print(f"step {step}", flush=True)']
    body = [*slots["epoch_begin"], f"for batch in batches({r.steps_per_epoch}):", *indent(inner)]
    body += [*(validate if r.validation else []), *(save if r.saving else []), *slots["epoch_end"]]
    return ["step = 0", f"for epoch in range({r.epochs}):", *indent(body)]


def guarded(r, lines):
    """Writes the snapshot at the end, even if the run ends early."""
    if r.recording != "snapshot" or r.window == "single":
        return lines
    return ["try:", *indent(lines), "finally:", "    " + dump(r)]


def end_lines(r):
    return ["dist.destroy_process_group()"] if r.parallel != "none" else []


def flat_program(plan, r):
    return ["def main():",
            *indent([*begin_lines(r), *setup_lines(plan, r),
                     *guarded(r, loop_lines(plan, r, step_lines(plan, r), validate_lines(plan, r),
                                            save_lines())), *end_lines(r)])]


def functions_program(plan, r):
    lines = ["def prepare():", "    run = SimpleNamespace()", *indent(setup_lines(plan, r)),
             "    return run", "", "",
             "def train_step(run, batch, step):", *indent(step_lines(plan, r)),
             "    return $loss.item()", "", ""]
    if r.validation:
        lines += ["def validate(run):", *indent(validate_lines(plan, r)), "    return value",
                  "", ""]
    if r.saving:
        lines += ["def save(run):", *indent(save_lines()), "", ""]
    loop = loop_lines(plan, r, ["value = train_step(run, batch, step)"], ["score = validate(run)"],
                      ["save(run)"])
    return [*lines, "def main():",
            *indent([*begin_lines(r), "run = prepare()", *guarded(r, loop), *end_lines(r)])]


def trainer_program(plan, r):
    lines = ["class Trainer:", "    def __init__(self):", *indent(setup_lines(plan, r), 2), "",
             "    def train_step(self, batch, step):", *indent(step_lines(plan, r), 2),
             "        return $loss.item()", ""]
    if r.validation:
        lines += ["    def validate(self):", *indent(validate_lines(plan, r), 2),
                  "        return value", ""]
    if r.saving:
        lines += ["    def save(self):", *indent(save_lines(), 2), ""]
    loop = loop_lines(plan, r, ["value = self.train_step(batch, step)"],
                      ["score = self.validate()"], ["self.save()"])
    return [*lines, "    def fit(self):", *indent(loop, 2), "", "",
            "def main():",
            *indent([*begin_lines(r), "trainer = Trainer()", *guarded(r, ["trainer.fit()"]),
                     *end_lines(r)])]


ASSEMBLE = {"flat": flat_program, "functions": functions_program, "trainer": trainer_program}


def compose(r, rng, repaired):
    """(lines, file name, plan) of a training program."""
    plan = make_plan(r, rng, repaired)
    names = {"s": PREFIX[r.style], "Model": rng.choice(TITLES[r.family]),
             "net": PREFIX[r.style] + rng.choice(["model", "net", "network"]),
             "opt": PREFIX[r.style] + rng.choice(["optimizer", "opt", "optim"]),
             "loss": rng.choice(["loss", "objective", "cost"]),
             "inputs": rng.choice(["inputs", "tensors", "data"])}
    constant_lines = [f"{name} = {value}" for name, value in plan.sizes.items()]
    title = f'"""Trains a {r.family.replace("_", "-")} on synthetic data."""'
    helpers = [*plan.slots["helpers"], ""] if plan.slots["helpers"] else []
    lines = [title, *imports(plan, r), "", *constant_lines, *plan.slots["constants"], "", "",
             *model_source(r, repaired), "", "", *helpers,
             *data_source(plan, r), "", "", *optimizer_source(plan, r), "", "",
             *ASSEMBLE[r.style](plan, r), "", "",
             'if __name__ == "__main__":', "    with observed():", "        main()"]
    return named(lines, names), rng.choice(FILES), plan
