// Results that a validation collects, batch after batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct KeptOutputs {
  struct Line {
    uint32_t stack = 0;
    uint64_t bytes = 0;
    uint64_t blocks = 0;
  };
  std::vector<Line> lines;   // of the validation that kept most, the largest first
  uint64_t saved_bytes = 0;  // at the peak, had only the newest been kept
  PhaseKind phase = PhaseKind::kValidation;
  bool until_end = false;           // freed before the next validation
  std::vector<uint32_t> collected;  // rows, of all validations, without the newest of each line
};

// Nothing unless they matter for the peak, or if memory grows by them from step to step.
std::optional<KeptOutputs> outputs_kept(const DeviceEvidence& d);

// The finding `creep` for them.
Finding creep_of_outputs(const DeviceEvidence& d, const KeptOutputs& kept);

}  // namespace tidemark
