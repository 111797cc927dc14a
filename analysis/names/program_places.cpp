#include "analysis/names/program_places.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace tidemark {

namespace {

// Recorders store fewer frames. Where a forged file has more, the innermost are no places: going
// from one stack to the next costs at most twice as much.
constexpr uint32_t kDeepest = 256;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Launchers and decorators are not among it: they run the program's own loop.
bool is_pytorch(std::string_view file) {
  constexpr std::string_view kFolders[] = {"torch/nn/",
                                           "torch/optim/",
                                           "torch/autograd/",
                                           "torch/utils/data/",
                                           "torch/utils/checkpoint",
                                           "torch/distributed/fsdp/",
                                           "torch/distributed/_",
                                           "torch/_"};
  return std::any_of(std::begin(kFolders), std::end(kFolders),
                     [&](std::string_view folder) { return contains(file, folder); });
}

}  // namespace

Places::Places(const Dictionary& names) : of_stack_(names.stack_count()) {
  places_.emplace_back();
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, int64_t>, uint32_t> known;
  for (uint32_t id = 1; id < of_stack_.size(); ++id) {
    const Frame& frame = names.frame(names.stack(id).frame);
    const uint32_t caller = of_stack_[names.stack(id).parent];
    const bool python = names.string(frame.file).ends_with(".py");
    if (!python || places_[caller].depth == kDeepest) {
      of_stack_[id] = caller;
      continue;
    }
    const auto [it, fresh] =
        known.try_emplace({caller, frame.function, frame.file, frame.line}, count());
    of_stack_[id] = it->second;
    if (fresh) add(names, frame, caller);
  }
}

void Places::add(const Dictionary& names, const Frame& frame, uint32_t caller) {
  const std::string_view file = names.string(frame.file);
  const std::string_view function = names.string(frame.function);
  const Place& from = places_[caller];
  Place place;
  place.caller = caller;
  place.outermost = caller != 0 ? from.outermost : count();
  place.function = frame.function;
  place.file = frame.file;
  place.depth = from.depth + 1;
  place.line = frame.line;
  // Recordings name functions in full, "Model.forward", snapshots do not.
  const bool forward = function == "forward" || function.ends_with(".forward");
  place.inside = from.inside || forward || is_pytorch(file);
  place.generates = from.generates || contains(function, "generate");
  // Wrappers of PyTorch call the module, while a container calls one layer after the other.
  place.calls = forward && !from.within_call && !contains(file, "torch/");
  place.within_call =
      from.within_call || place.calls || contains(file, "torch/nn/modules/container.py");
  places_.push_back(place);
}

}  // namespace tidemark
