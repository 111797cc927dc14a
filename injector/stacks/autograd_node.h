// The backward node that the autograd engine runs on the calling thread.
//
// `torch::autograd::get_current_node()` has one name and two shapes. Up to torch 2.12 it returns a
// std::shared_ptr (two words), from 2.13 on a c10::intrusive_ptr (one word), which only torch's own
// header can release. So the function is called directly only where it returns two words: the
// version says so, and a first call confirms it. For later versions the bridge has the node, since
// it is compiled with that header. Nothing of torch is linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bridge/torch_bridge_abi.h"

namespace tidemark::injector {

// Looks for the engine; does nothing if there is none.
void find_autograd() noexcept;
// From now on the bridge is asked. Null: it does not know either.
void find_autograd_in_bridge(TidemarkTorchNode ask) noexcept;

struct AutogradNode {
  const char* type = nullptr;  // identifies it: the mangled name; null: no node runs
  uint64_t sequence = 0;       // nodes of a thread are numbered as its forward pass makes them
  uint64_t thread = 0;         // that made it, by torch's numbers
};
// No node, too, if that cannot be asked for, which the trace then says once.
AutogradNode current_autograd_node() noexcept;

// "MmBackward0", in `buffer`.
std::string_view autograd_type_name(const char* type, char* buffer, size_t capacity) noexcept;

// Which nn.Module made a node: an operation makes its node, then allocates its result. So whatever
// allocates first after a node was made belongs to it. Operations in place and views allocate
// nothing; but at its end every operation that makes a node stores the current stream in it
// (InputMetadata), and asks for it where an allocation does (kCurrentStream in torch/hooks.cpp).
//
// `nn_module` (0: none) runs on the calling thread.
void note_forward(uint32_t nn_module) noexcept;
// 0: unknown.
uint32_t nn_module_of(const AutogradNode& node) noexcept;
void clear_forward_notes() noexcept;

}  // namespace tidemark::injector
