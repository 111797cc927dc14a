// What would the recorded requests have cost under other settings of PyTorch's allocator?
//
// The requests of a recording (sizes, streams, pools, frees, completions of frees, empty_cache) are
// replayed on a model of the allocator (allocator/caching_allocator.h). Under the settings of the
// recording itself the model must reproduce every recorded address and segment: Replay counts the
// differences, which show how far the predictions can be trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/whatif/allocator/request_log.h"
#include "analysis/whatif/allocator/settings.h"

namespace tidemark {

class CachingAllocator;

// The result of one run of the model.
struct Prediction {
  std::string conf;  // as given; empty: default settings
  uint64_t reserved_peak = 0;
  uint64_t allocated_peak = 0;  // blocks: rounding included
  uint64_t requested_peak = 0;
  // When the reserved memory first reached its peak.
  uint64_t allocated_at_peak = 0;
  uint64_t cached_free_at_peak = 0;   // reserved but not in use
  uint64_t largest_hole_at_peak = 0;  // the largest request that those bytes could serve
  uint64_t reserved_end = 0;
  // Each costs the program time: the driver synchronizes.
  uint64_t driver_allocations = 0;  // segments, or pages of expandable segments
  uint64_t driver_frees = 0;
  uint64_t retries = 0;      // requests that the driver refused at first, as PyTorch counts them
  uint64_t emptied = 0;      // times that the cache was returned, for a request or by the program
  uint64_t collections = 0;  // garbage collections that freed something
  // Set when a request did not fit within the limit. The run ends there (`ended_early`), unless the
  // recording failed at the same request.
  bool out_of_memory = false;
  bool ended_early = false;
  uint64_t failed_bytes = 0;
  int64_t failed_ns = 0;
  uint64_t failures_avoided = 0;  // requests that failed in the recording and would not fail here
  uint64_t limit_bytes = 0;       // that the allocator may reserve; 0: not known
  // Where only failed requests tell the limit, it may be as high as this; otherwise the same.
  uint64_t most_limit_bytes = 0;
  // Set when it runs out of memory with the lowest possible limit but not with the highest: what it
  // reserves then, so that this limit is enough. 0: it runs out with both.
  uint64_t fits_below = 0;
  uint64_t events = 0;
  // It has a setting that torch knows from this version on, and the recording may be of an older
  // one; empty: it has none.
  std::string needs_torch;
};

// The recording replayed under its own settings.
struct Replay {
  Prediction prediction;
  uint64_t blocks = 0;               // allocations compared
  uint64_t misplaced_blocks = 0;     // at another address than recorded
  uint64_t reserved_mismatches = 0;  // allocations after which the reserved bytes differed
  int64_t first_mismatch_ns = 0;
  TorchVersion version;  // whose behaviour reproduced it

  bool exact() const { return misplaced_blocks == 0 && reserved_mismatches == 0; }
};

// A change of the program: may give a request another size, stream or pool, or say with false that
// the program does not make it. `allocation`: its row in the recorded history; kNever if it is not
// known, because the request failed or is older than the part that is replayed.
using RequestChange = std::function<bool(uint32_t allocation, RequestedBlock& request)>;

struct WhatIfOptions {
  uint64_t card_bytes = 0;              // size of the card; 0: from the recording, if it has it
  std::optional<TorchVersion> version;  // none: the recorded one, else one that reproduces it
  // The configuration of the recorded run, where the recording lacks a part of it such as a memory
  // fraction set by the program.
  std::optional<std::string> recorded_conf;
  // Longer recordings are replayed only around their reserved peak (or the last failure), with at
  // most this many events.
  uint32_t most_events = UINT32_MAX;
};

// Prepares one device of a recording; predictions are then cheap (about 5 M events a second).
// Errors: no framework events, or a recording without requested sizes.
class WhatIf {
 public:
  static Result<WhatIf> prepare(const ProcessModel& process, int64_t device,
                                const WhatIfOptions& options = {});
  WhatIf(WhatIf&&) noexcept;
  WhatIf& operator=(WhatIf&&) noexcept;
  ~WhatIf();

  const AllocatorSettings& own_settings() const { return own_; }
  const std::string& own_conf() const { return own_conf_; }
  const Replay& own() const { return replay_; }
  // Whether the version of torch was recorded or given; if not, it may be an older one than that
  // of own().
  bool knows_version() const { return knows_version_; }
  // What a reader of the predictions must know: late history, sizes already rounded ...
  const std::vector<std::string>& notes() const { return notes_; }
  uint64_t recorded_reserved_peak() const { return recorded_reserved_peak_; }
  uint64_t recorded_allocated_peak() const { return recorded_allocated_peak_; }
  // Replayed events of the history; all of them unless the options limit them.
  uint32_t replayed_events() const { return replayed_events_; }
  bool is_part() const { return is_part_; }
  // What a prediction must improve on to save anything: the recording or, where its beginning is
  // missing or the model does not reproduce it, the recorded settings replayed in the same way.
  struct Baseline {
    uint64_t reserved_peak = 0;
    uint64_t failures_avoided = 0;
  };
  const Baseline& baseline() const { return baseline_; }
  uint64_t card_bytes() const { return card_bytes_; }
  // Bytes of the card that torch does not hold, as far as the recording knows.
  uint64_t other_bytes() const { return other_bytes_; }
  // Whether that is assumed: the recording has no readings of the card.
  bool assumes_other() const { return assumes_other_; }

  // The limit of the driver where only emptied caches tell it: the highest that explains them,
  // which predictions assume. The lowest is the recorded peak. 0: it is known otherwise, or not at
  // all.
  uint64_t highest_guessed_limit() const { return highest_guessed_limit_; }

  // Whether hardly anything was recorded after the last request that failed.
  bool ends_at_error() const;
  // The limit that a memory fraction set in the recorded run; 0: none is known.
  uint64_t recorded_allowed() const { return recorded_allowed_; }

  // The settings replace all those of the recording, as a new environment variable would; the
  // version and, unless given, the memory fraction stay.
  Prediction predict(const AllocatorSettings& settings, std::string conf = {}) const;
  // The recorded settings, and a changed program.
  Prediction predict(const RequestChange& change) const;

  // The requests of the recording: their blocks are the allocations of the history, unless only a
  // part of it is replayed, followed by those that failed.
  const RequestLog& log() const { return *log_; }
  // Replays another sequence of requests, on blocks that may be more than those of the log, within
  // a capacity; 0: none. `watch` is called before each
  // request and at the end.
  using Watch = std::function<void(const MemoryTotals&)>;
  Prediction replay(const AllocatorSettings& settings, std::span<const RequestedBlock> blocks,
                    std::span<const Request> requests, uint64_t capacity,
                    const Watch& watch = {}) const;

 private:
  WhatIf();
  Prediction predict(const AllocatorSettings& settings, std::string conf,
                     const std::vector<RequestedBlock>& blocks) const;
  Prediction predict(const AllocatorSettings& settings, uint64_t allowed, uint64_t capacity,
                     const std::vector<RequestedBlock>& blocks) const;
  void set_baseline(const AllocationHistory& model, bool other_card);
  void add_notes(const AllocationHistory& model);
  void run(CachingAllocator& allocator, std::span<const RequestedBlock> blocks,
           std::span<const Request> requests, const Watch& watch, Prediction& p) const;

  std::unique_ptr<RequestLog> log_;
  AllocatorSettings own_;
  std::string own_conf_;
  Replay replay_;
  std::vector<std::string> notes_;
  bool knows_version_ = false;
  uint64_t recorded_reserved_peak_ = 0;
  uint64_t recorded_allocated_peak_ = 0;
  uint32_t replayed_events_ = 0;
  bool is_part_ = false;
  Baseline baseline_;
  uint64_t card_bytes_ = 0;
  uint64_t other_bytes_ = 0;
  bool assumes_other_ = false;
  uint64_t recorded_allowed_ = 0;   // by a memory fraction, at least; 0: none is known
  uint64_t most_allowed_ = 0;       // by it at most
  uint64_t recorded_capacity_ = 0;  // of the driver; 0: it never failed a request
  uint64_t highest_guessed_limit_ = 0;
  uint64_t replayed_peak_ = 0;     // reserved with the recorded settings; 0: the recording counts
  std::vector<int64_t> birth_ns_;  // by allocation
  // Rows of the part that is replayed: the first `seeded_` are not known in the whole history, the
  // next is number `first_row_` of it.
  uint32_t seeded_ = 0;
  uint32_t first_row_ = 0;
};

// A single prediction, for callers that need only one.
Result<Prediction> predict(const ProcessModel& process, int64_t device,
                           const AllocatorSettings& settings);

// Settings worth trying on any recording: those of `tidemark whatif --all`.
std::vector<std::string> sensible_confs();

}  // namespace tidemark
