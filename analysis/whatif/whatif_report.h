// The predictions of `tidemark whatif` for every rank and device of a recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/whatif/whatif.h"

namespace tidemark {

struct WhatIfQuestion {
  std::vector<std::string> confs;
  // Also the sensible ones, and sort all by reserved peak; those that run out of memory follow, and
  // those that do so before the recorded run did come last.
  bool all = false;
  std::optional<int64_t> rank;
  std::optional<int64_t> device;
  WhatIfOptions options;
};

struct WhatIfDevice {
  int64_t rank = -1;
  uint64_t pid = 0;
  std::string file;  // as in ProcessModel
  int64_t device = 0;
  std::string card_name;
  std::string own_conf;
  uint64_t recorded_reserved_peak = 0;
  uint64_t recorded_allocated_peak = 0;
  WhatIf::Baseline baseline;  // what predictions are compared with
  uint64_t card_bytes = 0;
  uint64_t other_bytes = 0;
  Replay replay;
  bool ends_at_error = false;  // what would have been requested next is not in any prediction
  // The id of a finding that memory grows for as long as the program runs; empty: there is none, or
  // nobody looked. No setting helps against that.
  std::string growth;
  std::vector<Prediction> predictions;
  std::vector<std::string> notes;
};

struct WhatIfReport {
  std::string path;
  int64_t start_ns = 0;
  std::vector<WhatIfDevice> devices;
};

// Why no device of a recording could be replayed. `reason`: of one of them, if there are any;
// `chosen`: a rank or device was.
Error nothing_to_replay(const TraceModel& model, const std::optional<Error>& reason, bool chosen);

// Errors: a configuration that torch would reject, or nothing to replay.
Result<WhatIfReport> make_whatif_report(const TraceModel& model, const WhatIfQuestion& question);

}  // namespace tidemark
