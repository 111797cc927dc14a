// Optimizer steps, and which tensors are parameters, gradients and optimizer state, from torch's
// own global hook (torch.optim.optimizer.register_optimizer_step_post_hook).
//
// This is the one place where Python code of ours runs: a few lines, put in by a pending call on
// the main thread once torch is imported. Steps are marked each time; tensors are looked through at
// the first steps and then so seldom that it costs less than a thousandth of the time.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Task thread, every now and then: asks the interpreter to run the installation until it is done.
void look_for_optimizers(const Options& options) noexcept;
void reset_optimizer_hook() noexcept;
// A new recording: what the tensors are is told again.
void restart_optimizer_hook() noexcept;

}  // namespace tidemark::injector
