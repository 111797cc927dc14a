// Samples PyTorch's allocator of pinned host memory, through the bridge.
#pragma once

#include "bridge/torch_bridge_abi.h"

namespace tidemark::injector {

// The bridge is loaded; `ask` is null if its torch has no such statistics.
void set_torch_pinned(TidemarkTorchPinned ask) noexcept;

// What it holds now. False: not known. Any thread.
bool ask_torch_pinned(uint64_t& held, uint64_t& in_use) noexcept;

// Task thread: Counter rows, where something has changed.
void sample_torch_pinned() noexcept;

void reset_torch_pinned() noexcept;

}  // namespace tidemark::injector
