#include "analysis/plan/program/operation_places.h"

#include <algorithm>
#include <array>

#include "analysis/names/autocast_stacks.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == text.npos) return {};
  text.remove_prefix(at + begin.size());
  const size_t size = text.find(end);
  return size == text.npos ? std::string_view{} : text.substr(0, size);
}

// "AddmmBackward0", from the native frame in which this node of autograd's graph is applied.
std::string_view backward_node(std::string_view function) {
  return between(function, "torch::autograd::generated::", "::apply(");
}

bool copies_weights(std::string_view function, std::string_view file) {
  if (file.ends_with("torch/nn/parallel/replicate.py")) return true;
  return file.ends_with("torch/nn/parallel/comm.py") && contains(function, "coalesced");
}

}  // namespace

OperationPlaces::OperationPlaces(const Dictionary& names, const AllocationColumns& all)
    : names_(names), replicates_(stacks_with(names, [&](const Frame& frame) {
        return copies_weights(names.string(frame.function), names.string(frame.file));
      })) {
  places_.reserve(names.stack_count());
  for (uint32_t id = 0; id < names.stack_count(); ++id) {
    places_.push_back(place_of(id));
  }
  for (const AllocationKind& kind : all.kinds()) {
    names_operations_ = names_operations_ || !called(kind.stack).empty();
  }
}

OperationPlaces::Place OperationPlaces::place_of(uint32_t stack) const {
  constexpr int kMostNative = 1000;  // a damaged trace may have a circle
  Place place{stack, {}, false};
  uint32_t at = stack;
  for (int i = 0; at != 0 && at < names_.stack_count() && i < kMostNative; ++i) {
    const Frame& frame = names_.frame(names_.stack(at).frame);
    const std::string_view function = names_.string(frame.function);
    if (frame.kind != FrameKind::kNative || !backward_node(function).empty()) {
      place.at = at;
      break;
    }
    const std::string_view operation = between(function, "at::_ops::", "::");
    if (!operation.empty()) place.called = operation;
    place.casts = place.casts || is_autocast_copy(function);
    at = names_.stack(at).parent;
  }
  return place;
}

std::string_view OperationPlaces::name(uint32_t stack) const {
  const Frame& frame = names_.frame(names_.stack(of(stack)).frame);
  const std::string_view function = names_.string(frame.function);
  const std::string_view node = backward_node(function);
  return node.empty() ? function.substr(function.rfind('.') + 1) : node;  // npos + 1 is 0
}

std::string_view OperationPlaces::file(uint32_t stack) const {
  return names_.string(names_.frame(names_.stack(of(stack)).frame).file);
}

bool names_softmax(std::string_view name) {
  return (name.ends_with("softmax") || name.ends_with("SoftmaxBackward0")) &&
         !contains(name, "log") && !contains(name, "Log");
}

std::string_view file_stem(std::string_view file) {
  file = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  return file.substr(0, file.rfind('.'));
}

bool is_product(std::string_view called) {
  constexpr std::array<std::string_view, 11> kProducts = {
      "einsum",  "matmul", "linear", "mm",    "bmm",         "addmm",
      "baddbmm", "addbmm", "mv",     "addmv", "chain_matmul"};
  return called.starts_with("conv") ||
         std::find(kProducts.begin(), kProducts.end(), called) != kProducts.end();
}

}  // namespace tidemark
