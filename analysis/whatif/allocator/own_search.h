// Finds the limit and the version under which a recording replays exactly.
//
// A snapshot states neither the memory fraction nor torch's version, but the segments that went
// back to the driver, and when, depend on both.
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
    std::unique_ptr<OwnReplay> replay;  // the whole recording
  };

  OwnSearch(const AllocationHistory& model, const AllocatorSettings& settings, uint64_t card)
      : model_(model), settings_(settings), card_(card) {}

  // Nothing happens once an attempt was exact. `allowed`: the limit, if it is known.
  void attempt(TorchVersion version, uint64_t allowed);
  // After at least one attempt.
  Best take() && { return std::move(best_); }

 private:
  struct Bounds {
    uint64_t lowest = 0;
    uint64_t highest = 0;
  };

  bool exact() const { return best_.replay && best_.replay->match().errors() == 0; }
  void use_version(TorchVersion version);
  // Replays everything; keeps it if it is better than what was kept before.
  void replay(uint64_t allowed, uint64_t capacity, bool prefer = false);
  bool memory_went_back() const;
  // For the limit of a memory fraction, or the driver's; `first` is tried first.
  uint64_t search(Bounds bounds, uint64_t first, bool by_driver) const;
  std::optional<Bounds> bounds_from_failures(bool& by_driver) const;

  const AllocationHistory& model_;
  AllocatorSettings settings_;
  uint64_t card_;
  Best best_;
};

}  // namespace tidemark
