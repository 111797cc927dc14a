// What a job of thousands of ranks keeps of each: enough for the facts and findings of the whole
// job, a few kilobytes whatever the length of the recording.
//
// Times are on the clock of the rank's host until retime() converts them: the clocks of a job can
// be aligned only when all its ranks are known.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/report/report.h"
#include "collector/job/rank_facts.h"

namespace tidemark {

// The highest value in each of kParts equal parts of the time from `begin_ns` to `end_ns`.
struct CoarseCurve {
  static constexpr uint64_t kUnknown = UINT64_MAX;  // before the first event or reading
  static constexpr size_t kParts = 512;
  enum Value : uint8_t { kAllocated, kRequested, kReserved, kUsed };
  static constexpr size_t kValues = 4;

  int64_t device = 0;
  bool of_driver = false;       // no framework was recorded: the driver's allocations
  bool requests_known = false;  // otherwise the requested bytes mean nothing
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::array<std::vector<uint64_t>, kValues> most;  // kParts each, or empty

  // Of the part that contains a time; kUnknown where nothing is known, also after the end.
  uint64_t at(Value value, int64_t time_ns) const;
};

struct RankSummary {
  RankFacts facts;
  RankDigest digest;
  RankReport report;  // not detailed
  std::vector<Finding> findings;
  std::vector<CoarseCurve> curves;  // one per device in use
  uint64_t frames = 0;              // which FrameHashes it has; 0: none
  uint64_t events = 0;              // memory_events()
  int64_t events_from_ns = 0;       // the first one of its host; of a capture, its beginning
  int64_t first_ns = 0;             // of everything that was recorded of it
  int64_t last_ns = 0;
};

// Converts all times to the clock of the job, which begins at `start_ns`.
void retime(RankSummary& summary, const Alignment& clock, int64_t start_ns);

}  // namespace tidemark
