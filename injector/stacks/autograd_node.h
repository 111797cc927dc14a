// What the autograd engine computes on the calling thread: the type of the backward node.
//
// `torch::autograd::get_current_node()` has the same signature in every torch from 2.0 on; the
// node's type is told by its vtable, whose type_info carries the name. Nothing of torch is linked.
#pragma once

#include <cstddef>
#include <string_view>

namespace tidemark::injector {

// Looks for the engine; nothing happens when there is none.
void find_autograd() noexcept;

// An address that stands for the type of the current node; null when no node runs here.
const void* current_autograd_type() noexcept;

// "MmBackward0", in `buffer`.
std::string_view autograd_type_name(const void* type, char* buffer, size_t capacity) noexcept;

}  // namespace tidemark::injector
