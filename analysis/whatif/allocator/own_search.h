// Finds the limit and the version under which a recording replays exactly.
//
// A snapshot states neither the memory fraction nor torch's version, but which segments were
// returned to the driver, and when, depends on both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "analysis/whatif/allocator/own_replay.h"

namespace tidemark {

class OwnSearch {
 public:
  struct Best {
    AllocatorSettings settings;
    AllocatorLimits limits;
    // What the recorded run may have been allowed at most: above limits.allowed where only failed
    // requests tell it.
    uint64_t most_allowed = 0;
    std::unique_ptr<OwnReplay> replay;  // the whole recording
  };

  OwnSearch(const AllocationHistory& model, const AllocatorSettings& settings, uint64_t card)
      : model_(model), settings_(settings), card_(card) {}

  // Does nothing after an exact attempt. `allowed`: the limit, if known.
  void attempt(TorchVersion version, uint64_t allowed);
  // Call after at least one attempt.
  Best take() && { return std::move(best_); }

 private:
  struct Bounds {
    uint64_t lowest = 0;
    uint64_t highest = 0;
  };

  bool exact() const { return best_.replay && best_.replay->match().errors() == 0; }
  void use_version(TorchVersion version);
  // Replays everything; keeps the result if it is better than the best so far.
  void replay(uint64_t allowed, uint64_t capacity, bool prefer = false, uint64_t most_allowed = 0);
  bool memory_went_back() const;
  // Searches for the limit of a memory fraction, or of the driver; `first` is tried first.
  uint64_t search(Bounds bounds, uint64_t first, bool by_driver) const;
  std::optional<Bounds> bounds_from_failures(bool& by_driver) const;

  const AllocationHistory& model_;
  AllocatorSettings settings_;
  uint64_t card_;
  Best best_;
};

}  // namespace tidemark
