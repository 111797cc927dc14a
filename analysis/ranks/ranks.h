// A comparison of a job's ranks: which one needs most memory and for what, which one diverged
// first, which ones waited for which when one failed, and how much NCCL allocated on each.
//
// "Typical" is the rank with the median peak: if one of eight ranks is to blame, a mean would blame
// all. Times are on the job's clock, as in the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/ranks/rank_digest.h"

namespace tidemark {

struct RankHeight {
  int64_t rank = -1;
  int64_t device = 0;
  uint64_t bytes = 0;
  int64_t time_ns = 0;
};

struct OwnerExcess {
  std::string owner;  // torch, nccl, cublas …
  uint64_t bytes = 0;
  uint64_t typical_bytes = 0;
};

struct StackExcess {
  std::vector<std::string> frames;      // innermost first
  std::vector<std::string> own_frames;  // lines of them that no other rank recorded at any time
  uint64_t bytes = 0;
  uint64_t typical_bytes = 0;
  uint64_t blocks = 0;
  uint64_t typical_blocks = 0;
};

// The first rank that rose above the median of the others and stayed there up to its peak. Where
// the clocks of the ranks are not known: the one with the highest peak.
struct Divergence {
  bool found = false;
  int64_t rank = -1;
  std::optional<int64_t> time_ns;
  uint64_t excess_bytes = 0;  // of its peak over the typical one
};

// A collective that some ranks called and others never did.
struct StuckCollective {
  uint64_t communicator = 0;
  std::string communicator_name;
  std::string function;
  uint64_t sequence = 0;
  uint64_t size_bytes = 0;
  int64_t since_ns = 0;          // the first call
  std::vector<int64_t> waiting;  // ranks
  std::vector<int64_t> absent;   // ranks that the others wait for
};

struct RankComparison {
  bool compared = false;   // at least two ranks with memory
  bool framework = false;  // heights are the framework's allocated bytes; else the driver's
  // Heights are peaks within the kept windows, which may be lower than those of the whole run.
  bool in_windows = false;
  std::vector<RankHeight> heights;  // by rank
  RankHeight highest;
  RankHeight typical;
  std::vector<OwnerExcess> owners;  // of the highest, most excess first
  std::vector<StackExcess> stacks;
  Divergence divergence;
  std::vector<StuckCollective> stuck;
  std::vector<NcclMemory> nccl;    // of every rank on which NCCL allocated memory
  uint64_t clock_residual_ns = 0;  // instants of different ranks are this uncertain
  bool clocks_checked = false;     // by collectives
};

RankComparison compare_ranks(const TraceModel& model);

// The bytes of a rank over time, at any instant.
class RankLevel {
 public:
  virtual ~RankLevel() = default;
  virtual uint64_t at(int64_t time_ns) const = 0;
  virtual int64_t end_ns() const = 0;  // of what is known
};

// The ranks of a job, loaded or as summaries, and what only some of them are asked for.
class RankSource {
 public:
  virtual ~RankSource() = default;
  virtual std::span<const RankDigest> digests() const = 0;
  virtual int64_t start_ns() const = 0;
  // The whole model of the process with this digest; null: it cannot be read.
  virtual const ProcessModel* process(size_t digest) = 0;
  virtual std::shared_ptr<const FrameHashes> frames(size_t digest) = 0;
  virtual std::unique_ptr<RankLevel> level(size_t digest, int64_t device, bool framework) = 0;
};
RankComparison compare_ranks(RankSource& source);

std::vector<StuckCollective> find_stuck_collectives(std::span<const RankDigest> ranks);

}  // namespace tidemark
