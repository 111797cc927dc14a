"""What each cause adds to a training program, and what its repaired twin has instead."""
MIB = 1 << 20


def creep(plan, r, rng):
    plan.advice = ("release_growth",)
    {"every_step": kept_every_step, "late": kept_every_step, "stairs": new_optimizers,
     "driver": driver_memory, "cycle": cycles}[r.variant](plan, r, rng)


def kept_every_step(plan, r, rng):
    kinds = ["weights"] if r.parallel != "none" else ["weights", "gradients"]
    if r.family == "mlp":
        kinds.append("inputs")
    kind = rng.choice(kinds)
    value = {"weights": "[p.detach().clone() for p in $net.parameters()]",
             "gradients": "torch.cat([p.grad.flatten() for p in $net.parameters()])",
             "inputs": "[t.clone() for t in $inputs]"}[kind]
    name = {"weights": rng.choice(["snapshots", "averaged", "trail"]),
            "gradients": rng.choice(["directions", "noise_scale"]),
            "inputs": rng.choice(["seen", "examples"])}[kind]
    plan.add("setup", f"$s{name} = []")
    line = f"$s{name} = [{value}]" if plan.repaired else f"$s{name}.append({value})  #@"
    late = int(r.steps * 0.45) if r.variant == "late" else rng.choice([0, 1])
    slot = "after_backward" if kind == "gradients" else "after_step"
    plan.add(slot, f"if step >= {late}:", "    " + line)


def new_optimizers(plan, r, rng):
    if not plan.repaired:
        plan.add("setup", "$soptimizers = []")
        plan.add("epoch_begin", "$opt = make_optimizer($net)  #@", "$soptimizers.append($opt)  #@")
        plan.mark_optimizer = True
    else:
        plan.add("epoch_begin", "$opt = make_optimizer($net)")


def cycles(plan, r, rng):
    log = '{"step": step}' if plan.repaired else '{"step": step, "owner": self}'
    plan.add("imports", "import gc")
    plan.add("helpers", *f'''
class StepRecord:
    """The weights after a step, to compare with the next one."""

    def __init__(self, step, tensors):
        self.tensors = tensors
        self.log = {log}

    def distance(self, tensors):
        return sum((a - b).abs().sum().item() for a, b in zip(self.tensors[:2], tensors[:2]))

'''.split("\n")[1:])
    plan.add("setup", "gc.disable()", "$srecord = None")
    plan.add("after_step", "weights = [p.detach().clone() for p in $net.parameters()]  #@",
             "$srecord = StepRecord(step, weights)  #@", "moved = $srecord.distance(weights)")


def driver_memory(plan, r, rng):
    size = rng.choice([32, 48, 64]) * MIB
    plan.measure, plan.bytes = "driver", size * (r.steps - 1)
    plan.add("imports", "import ctypes")
    plan.add("constants", f"STAGING_BYTES = {size}")
    plan.add("helpers", *'''
class StagingBuffer:
    """Device memory that the native decoder writes to."""
    driver = ctypes.CDLL("libcuda.so.1")

    def __init__(self, size):
        self.address = ctypes.c_uint64()
        status = self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(size))  #@
        if status != 0:
            raise RuntimeError(f"cuMemAlloc: {status}")

'''.split("\n")[1:])
    if plan.repaired:
        plan.add("setup", "$sstaging = StagingBuffer(STAGING_BYTES)")
    else:
        plan.add("setup", "$sstaging = []")
        plan.add("step_begin", "$sstaging.append(StagingBuffer(STAGING_BYTES))  #@")


def accumulated_graphs(plan, r, rng):
    plan.accumulate = r.accumulate
    plan.sum_losses = not plan.repaired
    plan.mark_forward = True


def retained_graph(plan, r, rng):
    plan.advice = ("detach",)
    plan.mark_forward = r.variant == "retain"
    name = rng.choice(["history", "losses", "curve"])
    plan.add("setup", f"$s{name} = []")
    if r.variant == "retain":
        if not plan.repaired:
            plan.backward = "$loss.backward(retain_graph=True)"
        plan.add("after_step", f"$s{name}.append($loss.item())" if plan.repaired else
                 f"$s{name}.append($loss)  #@")
        return
    plan.add("helpers", *'''
def shake(tensor):
    if not tensor.is_floating_point():
        return tensor
    return tensor + 0.01 * torch.randn_like(tensor)

'''.split("\n")[1:])
    plan.add("after_forward", "shaken = [shake(t) for t in $inputs]")
    if plan.repaired:
        plan.add("after_forward", "with torch.no_grad():", "    gap = compute_loss($net, *shaken)",
                 f"$s{name}.append(gap.item())")
    else:
        plan.add("after_forward", "gap = compute_loss($net, *shaken)  #@",
                 f"$s{name}.append(gap)  #@")


def eval_keeps_graph(plan, r, rng):
    plan.advice = ("no_grad",)
    plan.validate = "no_grad_" + r.variant if plan.repaired else r.variant


def unused_gradients(plan, r, rng):
    if r.variant == "backbone":
        plan.trained = "$net.head.parameters()"
        plan.mark_forward = plan.mark_backward = True
        if plan.repaired:
            plan.add("after_model", "$net.requires_grad_(False)", "$net.head.requires_grad_(True)")
        return
    plan.add("after_model", "$steacher = to_training(build_model())")
    if plan.repaired:
        plan.add("after_forward", "with torch.no_grad():",
                 "    hint = compute_loss($steacher, *$inputs)")
    else:
        plan.add("after_forward", "hint = compute_loss($steacher, *$inputs)  #@")
    plan.add("after_forward", "$loss = $loss + 0.5 * ($loss - hint).abs()")


def checkpoint_kept(plan, r, rng):
    plan.add("imports", "import os")
    plan.add("helpers", *'''
def pretrained(path):
    """Writes first weights if there are none yet."""
    if not os.path.exists(path):
        weights = build_model().state_dict()
        average = {name: value.clone() for name, value in weights.items()}
        torch.save({"model": weights, "average": average, "epoch": 3}, path)
    return path

'''.split("\n")[1:])
    place = "cpu" if plan.repaired else "cuda"
    plan.add("after_model",
             f'$sresume = torch.load(pretrained("weights.pt"), map_location="{place}")  #@',
             '$net.load_state_dict($sresume["model"])')
    if plan.repaired:
        plan.add("after_model", "del $sresume")


def one_operation_peak(plan, r, rng):
    """The line is in the model or in the loss: families.py."""


def stream_pools(plan, r, rng):
    plan.measure = "reserved"
    plan.add("constants", f"STREAMS = {rng.choice([5, 6, 8])}",
             f"NOISE = {rng.choice([12, 16])} << 20")
    plan.add("helpers", *'''
def noise_level(stream):
    with torch.cuda.stream(stream):
        noise = torch.randn(NOISE, device="cuda")  #@
        level = (noise * 0.1 + noise.square()).mean()  #@
    stream.synchronize()
    return level.item()

'''.split("\n")[1:])
    plan.add("setup", "$sstreams = [torch.cuda.Stream()] * STREAMS" if plan.repaired else
             "$sstreams = [torch.cuda.Stream() for _ in range(STREAMS)]")
    plan.add("step_begin", "levels = [noise_level(stream) for stream in $sstreams]  #@")


def shape_variance(plan, r, rng):
    plan.measure, plan.advice = "reserved", ("pad_shapes",)
    plan.mark_forward = True
    plan.add("imports", "import random")
    plan.add("setup", "$slengths = random.Random(7)")
    shortest = rng.choice([40, 64])
    if not plan.repaired:
        plan.add("step_begin", f"length = $slengths.randrange({shortest}, LENGTH)",
                 "batch = [t[:, :length] for t in batch]")


def capacity(plan, r, rng):
    plan.limit, plan.expect_oom, plan.measure = "below_allocated", True, None
    plan.also = ("memory_fraction", "activation_peak", "optimizer_state_spike",
                 "one_operation_peak")


def memory_fraction(plan, r, rng):
    plan.limit, plan.expect_oom, plan.measure = "share", True, None
    plan.also = ("capacity", "fragmentation", "activation_peak", "optimizer_state_spike",
                 "one_operation_peak")
    if not plan.repaired:
        plan.add("imports", "import os")
        plan.add("constants", 'GPU_SHARE = float(os.environ.get("GPU_SHARE", "1.0"))')
        plan.add("after_model", "torch.cuda.set_per_process_memory_fraction(GPU_SHARE)")


def cache_thrash(plan, r, rng):
    plan.measure = None
    if not plan.repaired:
        plan.add("after_step", "torch.cuda.empty_cache()  #@")


def pinned_growth(plan, r, rng):
    plan.measure, plan.advice = "pinned", ("reuse_pinned",)
    plan.add("constants", f"STAGED = {rng.choice([8, 16])} << 20")
    line = "torch.empty(STAGED, pin_memory=True)"
    plan.add("setup", "$sstaged = []" if not plan.repaired else f"$sstaged = {line}")
    plan.add("step_begin", "host = $sstaged" if plan.repaired else f"host = {line}  #@",
             "host[:1024].fill_(step)")
    if not plan.repaired:
        plan.add("step_begin", "$sstaged.append(host)  #@")


def optimizer_state_spike(plan, r, rng):
    plan.limit, plan.expect_oom, plan.advice = "in_step", True, ("fused_optimizer",)
    plan.also = ("memory_fraction", "capacity")
    plan.optimizer = r.optimizer + ("_fused" if plan.repaired else "_foreach")
    plan.mark_optimizer = True


def activation_peak(plan, r, rng):
    plan.limit, plan.expect_oom, plan.advice = "below_allocated", True, ("halve_batch",)
    plan.also = ("memory_fraction", "capacity", "optimizer_state_spike", "one_operation_peak")
    plan.accumulate = 2 if plan.repaired else 1


PLANT = {function.__name__: function for function in (
    creep, accumulated_graphs, retained_graph, eval_keeps_graph, unused_gradients, checkpoint_kept,
    one_operation_peak, stream_pools, shape_variance, capacity, memory_fraction, cache_thrash,
    pinned_growth, optimizer_state_spike, activation_peak)}
