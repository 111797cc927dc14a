// The layers of a program: nn.Modules that are treated as one by checkpointing and sharding, and
// when each of them ran.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/plan/program/program.h"

namespace tidemark {

class Layers {
 public:
  // `chosen`: paths, patterns with * at the end, or classes. Without any, the outermost numbered
  // nn.Modules that contain others: elements of lists ("layers.0", "encoder.blocks.3"), and where
  // there are none, those whose names differ only in a number ("encoder_layer_0").
  Layers(const RecordedProgram& program, const std::vector<std::string>& chosen = {});

  static constexpr uint32_t kNoLayer = UINT32_MAX;

  const std::vector<std::string>& paths() const { return paths_; }
  bool empty() const { return paths_.empty(); }
  // The layer whose nn.Module, or one inside it, ran or owns the row; kNoLayer: none.
  uint32_t of(size_t row) const { return of_row_[row]; }

 private:
  std::vector<std::string> paths_;
  std::vector<uint32_t> of_row_;
};

}  // namespace tidemark
