#include "analysis/plan/layer_passes.h"

#include <algorithm>

namespace tidemark {

std::vector<LayerPass> layer_passes(const RecordedProgram& program, const Layers& layers,
                                    const RequestPlaces& places) {
  const std::vector<bool> recomputing = recomputing_stacks(program.process().names);
  std::vector<LayerPass> passes;
  std::vector<std::vector<uint32_t>> backward(layers.paths().size());  // requests
  bool open = false;
  for (uint32_t i = 0; i < program.rows(); ++i) {
    const uint32_t made = places.made(i);
    if (made == kNever || program.model().allocations.seeded(i)) continue;
    const uint32_t layer = layers.of(i);
    const uint32_t stack = program.model().allocations.stack(i);
    const bool again = stack < recomputing.size() && recomputing[stack];
    const bool forward = program.role(i) == StackRole::kForward && !again;
    if (open && (!forward || layer != passes.back().layer)) {
      passes.back().end = made;
      open = false;
    }
    if (layer == Layers::kNoLayer) continue;
    if (!forward) {
      if (program.role(i) == StackRole::kBackward || again) backward[layer].push_back(made);
      continue;
    }
    if (!open) passes.push_back({layer, made, made + 1, kNever, kNever, {}});
    open = true;
    passes.back().rows.push_back(i);
    passes.back().end = made + 1;
  }
  std::vector<uint32_t> next(layers.paths().size(), kNever);  // pass of the layer, in requests
  for (auto pass = passes.rbegin(); pass != passes.rend(); ++pass) {
    const std::vector<uint32_t>& of = backward[pass->layer];
    const auto first = std::lower_bound(of.begin(), of.end(), pass->end);
    const auto last = std::lower_bound(first, of.end(), next[pass->layer]);
    next[pass->layer] = pass->begin;
    if (first == last) continue;
    pass->back_begin = *first;
    pass->back_end = *std::prev(last) + 1;
  }
  return passes;
}

}  // namespace tidemark
