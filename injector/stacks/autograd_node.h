// The type of the backward node that the autograd engine runs on the calling thread.
//
// `torch::autograd::get_current_node()` has one name and two shapes. Up to torch 2.12 it returns a
// std::shared_ptr (two words), from 2.13 on a c10::intrusive_ptr (one word), which only torch's own
// header can release. So the function is called directly only where it returns two words: the
// version says so, and a first call confirms it. For later versions the bridge has the node, since
// it is compiled with that header. Nothing of torch is linked.
#pragma once

#include <cstddef>
#include <string_view>

#include "bridge/torch_bridge_abi.h"

namespace tidemark::injector {

// Looks for the engine; does nothing if there is none.
void find_autograd() noexcept;
// From now on the bridge is asked. Null: it does not know either.
void find_autograd_in_bridge(TidemarkTorchNodeType ask) noexcept;

// Identifies the type of the current node: its mangled name, or null if no node runs on this
// thread, or if that cannot be asked for, which the trace then says once.
const char* current_autograd_type() noexcept;

// "MmBackward0", in `buffer`.
std::string_view autograd_type_name(const char* type, char* buffer, size_t capacity) noexcept;

}  // namespace tidemark::injector
