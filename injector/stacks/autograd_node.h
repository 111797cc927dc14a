// The type of the backward node that the autograd engine runs on the calling thread.
//
// `torch::autograd::get_current_node()` has the same signature in every torch from 2.0 on. The
// vtable identifies the type of the node, and its type_info has the name. Nothing of torch is
// linked.
#pragma once

#include <cstddef>
#include <string_view>

namespace tidemark::injector {

// Looks for the engine; does nothing if there is none.
void find_autograd() noexcept;

// An address that identifies the type of the current node; null if no node runs on this thread.
const void* current_autograd_type() noexcept;

// "MmBackward0", in `buffer`.
std::string_view autograd_type_name(const void* type, char* buffer, size_t capacity) noexcept;

}  // namespace tidemark::injector
