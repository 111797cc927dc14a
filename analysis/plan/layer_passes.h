// Each run of a layer in a forward pass, and the part of the backward pass that belongs to it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/plan/program/layers.h"
#include "analysis/plan/request_edits.h"

namespace tidemark {

// Places are numbers of requests.
struct LayerPass {
  uint32_t layer = 0;
  uint32_t begin = 0;  // its first request, and one past its last
  uint32_t end = 0;
  uint32_t back_begin = kNever;
  uint32_t back_end = kNever;
  std::vector<uint32_t> rows;  // allocated in the forward pass
  bool recomputes = false;     // the recorded program runs it again in its backward pass

  bool has_backward() const { return back_begin != kNever; }
};

// In order of time.
std::vector<LayerPass> layer_passes(const RecordedProgram& program, const Layers& layers,
                                    const RequestPlaces& places);

}  // namespace tidemark
