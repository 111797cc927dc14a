#include "analysis/plan/layer_passes.h"

#include <algorithm>

namespace tidemark {

namespace {

// A request of a backward pass.
struct BackwardRequest {
  uint32_t at = 0;
  bool returns = false;  // other layers had the one before it
  bool again = false;    // of the layer's forward pass
};

// The backward requests of a layer between two of its runs, [first, end).
struct Window {
  size_t first = 0;
  size_t end = 0;
  uint32_t until = 0;  // the request at which the layer runs next
};

class LayerRuns {
 public:
  LayerRuns(const RecordedProgram& program, const Layers& layers, const RequestPlaces& places)
      : program_(program), layers_(layers), places_(places), backward_(layers.paths().size()) {
    collect();
    std::vector<std::vector<size_t>> of_layer(layers.paths().size());
    for (size_t i = 0; i < passes_.size(); ++i) of_layer[passes_[i].layer].push_back(i);
    for (const std::vector<size_t>& runs : of_layer) find_backward(runs);
  }

  std::vector<LayerPass> take() { return std::move(passes_); }

 private:
  void collect() {
    const std::vector<bool> recomputing = recomputing_stacks(program_.process().names);
    bool open = false;
    uint32_t last = Layers::kNoLayer;  // that had a backward request
    for (uint32_t i = 0; i < program_.rows(); ++i) {
      const uint32_t made = places_.made(i);
      if (made == kNever || program_.model().allocations.seeded(i)) continue;
      const uint32_t layer = layers_.of(i);
      const uint32_t stack = program_.model().allocations.stack(i);
      const bool again = stack < recomputing.size() && recomputing[stack];
      const bool forward = program_.role(i) == StackRole::kForward && !again;
      if (open && (!forward || layer != passes_.back().layer)) {
        passes_.back().end = made;
        open = false;
      }
      if (layer == Layers::kNoLayer) continue;
      if (!forward) {
        if (program_.role(i) != StackRole::kBackward && !again) continue;
        backward_[layer].push_back({made, last != layer, program_.role(i) == StackRole::kForward});
        last = layer;
        continue;
      }
      if (!open) passes_.push_back({layer, made, made + 1, kNever, kNever, {}, false});
      open = true;
      last = Layers::kNoLayer;
      passes_.back().rows.push_back(i);
      passes_.back().end = made + 1;
    }
  }

  // Usually a layer runs backward before it runs forward again. Where several forward runs come
  // first (losses that are added up), each goes with the requests up to which its memory is freed.
  void find_backward(const std::vector<size_t>& runs) {
    uint32_t until = kNever;
    std::vector<size_t> waiting;
    Window window;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      const LayerPass& pass = passes_[*run];
      const std::vector<BackwardRequest>& of = backward_[pass.layer];
      const auto place = [&](uint32_t at) {
        return static_cast<size_t>(
            std::partition_point(of.begin(), of.end(),
                                 [&](const BackwardRequest& r) { return r.at < at; }) -
            of.begin());
      };
      const Window own{place(pass.end), place(until), until};
      if (own.first != own.end) {
        divide(window, waiting);
        window = own;
        waiting = {*run};
      } else if (window.first != window.end &&
                 freed_within(pass, of[window.first].at, window.until)) {
        waiting.push_back(*run);
      }
      until = pass.begin;
    }
    divide(window, waiting);
  }

  // Whether most of what a run kept was freed between two requests.
  bool freed_within(const LayerPass& pass, uint32_t begin, uint32_t end) const {
    uint64_t kept = 0;
    uint64_t freed = 0;
    for (const uint32_t row : pass.rows) {
      const uint32_t at = places_.freed(row);
      if (at < pass.end) continue;
      kept += program_.bytes(row);
      if (at >= begin && at < end) freed += program_.bytes(row);
    }
    return kept != 0 && freed > kept / 2;
  }

  // The request at which half of what a run kept has been freed.
  uint32_t half_freed(const LayerPass& pass) const {
    std::vector<std::pair<uint32_t, uint64_t>> freed;
    uint64_t left = 0;
    for (const uint32_t row : pass.rows) {
      if (places_.freed(row) < pass.end) continue;
      freed.emplace_back(places_.freed(row), program_.bytes(row));
      left += program_.bytes(row);
    }
    std::sort(freed.begin(), freed.end());
    const uint64_t half = left / 2;
    for (const auto& [at, bytes] : freed) {
      left -= bytes;
      if (left <= half) return at;
    }
    return kNever;
  }

  void divide(const Window& window, const std::vector<size_t>& runs) {
    if (runs.empty()) return;
    const std::vector<BackwardRequest>& of = backward_[passes_[runs.front()].layer];
    std::vector<std::pair<uint32_t, size_t>> order;
    for (const size_t run : runs) {
      order.emplace_back(runs.size() == 1 ? 0 : half_freed(passes_[run]), run);
    }
    std::sort(order.begin(), order.end());
    size_t first = window.first;
    for (size_t i = 0; i < order.size() && first != window.end; ++i) {
      size_t end = window.end;
      if (i + 1 != order.size()) {
        end = first + 1;
        while (end != window.end && (!of[end].returns || of[end].at <= order[i].first)) ++end;
      }
      LayerPass& pass = passes_[order[i].second];
      pass.back_begin = of[first].at;
      pass.back_end = of[end - 1].at + 1;
      pass.recomputes = std::any_of(of.begin() + static_cast<ptrdiff_t>(first),
                                    of.begin() + static_cast<ptrdiff_t>(end),
                                    [](const BackwardRequest& r) { return r.again; });
      first = end;
    }
  }

  const RecordedProgram& program_;
  const Layers& layers_;
  const RequestPlaces& places_;
  std::vector<LayerPass> passes_;
  std::vector<std::vector<BackwardRequest>> backward_;  // by layer
};

}  // namespace

std::vector<LayerPass> layer_passes(const RecordedProgram& program, const Layers& layers,
                                    const RequestPlaces& places) {
  return LayerRuns(program, layers, places).take();
}

}  // namespace tidemark
