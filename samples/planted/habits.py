"""What ordinary programs do that looks suspicious and is not: bounded lists, averages, warm-up."""


def add_habits(plan, r, rng):
    single = r.parallel == "none"
    chance = r.habits
    if chance[0] < 0.35:
        name = rng.choice(["values", "recent_losses", "log_values"])
        plan.add("setup", f"$s{name} = []")
        plan.add("after_step", f"$s{name}.append($loss.item())")
    if chance[1] < 0.25 and r.cause is None:
        plan.add("imports", "from collections import deque")
        plan.add("setup", "$srecent = deque(maxlen=4)")
        plan.add("after_step", "$srecent.append([t.clone() for t in $inputs])")
    if chance[2] < 0.25 and single and r.cause in (None, "eval_keeps_graph", "cache_thrash"):
        plan.add("setup", "$sema = [p.detach().clone() for p in $net.parameters()]")
        plan.add("after_step", "with torch.no_grad():",
                 "    for kept, p in zip($sema, $net.parameters()):", "        kept.lerp_(p, 0.01)")
    if chance[3] < 0.2 and single:
        plan.add("setup", "$sbest = None")
        plan.add("epoch_end",
                 "$sbest = {name: value.cpu() for name, value in $net.state_dict().items()}")
    if chance[4] < 0.25 and r.parallel != "fsdp2" and r.variant != "backbone":
        plan.add("after_backward", "torch.nn.utils.clip_grad_norm_($net.parameters(), 1.0)")
    if chance[5] < 0.2 and r.optimizer != "two" and r.variant != "stairs":
        plan.add("setup",
                 "$swarmup = torch.optim.lr_scheduler.LinearLR($opt, 0.1, total_iters=8)")
        plan.add("after_step", "$swarmup.step()")
    if chance[6] < 0.15 and r.cause is None and r.validation:
        plan.add("epoch_end", "torch.cuda.empty_cache()")
    if chance[7] < 0.15 and r.cause is None and r.accumulate == 1 and single and not r.compiled:
        plan.add("after_forward", "penalty = 0.1 * $loss", "penalty.backward(retain_graph=True)")
