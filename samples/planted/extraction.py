"""Composes a program that collects features between scratch tensors, so that kept tensors pin
every segment and no hole is large enough for the long inputs that follow."""
from page import named, text
from slots import Plan

FILES = ["extract.py", "features.py", "build_index.py"]
COLLECT = """
class $Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        return self.layers(x)


def collect(model):
    BANK
    for i in range(PARTS):
        scratch = torch.empty(SCRATCH, device="cuda").fill_(i)
        model(scratch[:4096].view(-1, 256))
        part = scratch[:KEPT].cpu()
        del scratch
        KEEP
    return bank


def refine(bank):
    for i in range(ROUNDS):
        size = LONG if i % 5 == 4 else SHORT
        values = torch.zeros(size, device="cuda")  #@
        values += 1.0
        bank[i % PARTS].mul_(0.5)
        del values


def main():
    BEGIN
    model = $Model(256, 4).cuda()
    with torch.no_grad():
        bank = collect(model)
        END
    return model


if __name__ == "__main__":
    with observed():
        served = main()
"""


def compose(r, rng, repaired):
    """(lines, file name, plan) of the program."""
    kept = rng.choice([20, 24, 28])
    scratch = kept * 2 - rng.choice([2, 4])
    plan = Plan(repaired, {
        "PARTS": rng.choice([24, 30, 36]), "ROUNDS": 30, "KEPT": f"{kept} << 18",
        "SCRATCH": f"{scratch} << 18", "SHORT": "12 << 18", "LONG": "220 << 18"})
    plan.limit = "half_of_long" if r.variant == "oom" else None
    plan.expect_oom = r.variant == "oom"
    plan.measure = None if r.variant == "oom" else "reserved"
    plan.also = ("memory_fraction",)
    bank = 'bank = torch.empty(PARTS, KEPT, device="cuda")' if repaired else "bank = []"
    keep = "bank[i].copy_(part)" if repaired else "bank.append(part.cuda())  #@"
    begin, end = "torch.cuda.init()", "refine(bank)  #@"
    if r.recording == "snapshot":
        begin = f'torch.cuda.memory._record_memory_history(stacks="{r.stacks}")'
        end = ("try:\n            refine(bank)  #@\n        finally:\n"
               '            torch.cuda.memory._dump_snapshot("snapshot.pickle")')
    source = COLLECT.replace("BANK", bank).replace("KEEP", keep)
    source = source.replace("BEGIN", begin).replace("END", end)
    constants = [f"{name} = {value}" for name, value in plan.sizes.items()]
    lines = ['"""Collects features of all inputs, then refines them."""', "import torch",
             "from torch import nn", "", "from run_statistics import observed", "", *constants, "",
             "", *text(source)]
    return named(lines, {"Model": rng.choice(["Encoder", "Projector"])}), rng.choice(FILES), plan
