// Records optimizer steps, and which tensors are parameters, gradients and optimizer state, with
// torch's global hook (torch.optim.optimizer.register_optimizer_step_post_hook).
//
// The hook is a few lines of Python (own_code.h), installed once torch is imported. Every step is
// marked. Tensors are visited at the first steps and then so rarely that it costs less than a
// thousandth of the time.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Task thread, periodically: asks the interpreter to run the installation until it is done.
void look_for_optimizers(const Options& options) noexcept;
void reset_optimizer_hook() noexcept;
// For a new recording: the tensors are reported again.
void restart_optimizer_hook() noexcept;

}  // namespace tidemark::injector
