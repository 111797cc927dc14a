// One rank needs more than the others.
#include <fmt/format.h>

#include "analysis/findings/rules.h"
#include "analysis/names/stack_lines.h"
#include "analysis/ranks/ranks.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{32} << 20;

const DeviceEvidence* device_of(const Evidence& evidence, const RankHeight& height) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.process->info.rank == height.rank && d.device == height.device) return &d;
  }
  return nullptr;
}

// Whether most of the excess comes from lines that only this rank runs.
bool has_lines_of_its_own(const RankComparison& ranks) {
  uint64_t exclusive = 0;
  uint64_t shared = 0;
  for (const StackExcess& e : ranks.stacks) {
    if (e.bytes <= e.typical_bytes) continue;
    (e.typical_bytes == 0 ? exclusive : shared) += e.bytes - e.typical_bytes;
  }
  return exclusive > shared;
}

}  // namespace

void find_rank_imbalance(const Evidence& evidence, std::vector<Finding>& out) {
  if (evidence.ranks == nullptr || !evidence.ranks->compared) return;
  const RankComparison& ranks = *evidence.ranks;
  const RankHeight& high = ranks.highest;
  const RankHeight& typical = ranks.typical;
  if (high.bytes <= typical.bytes) return;
  const uint64_t extra = high.bytes - typical.bytes;
  if (extra < kWorthSaying || extra < typical.bytes / 10) return;
  const DeviceEvidence* d = device_of(evidence, high);
  if (d == nullptr) return;  // the report is about another rank
  Finding f = d->finding(
      "rank_imbalance", d->ran_out() ? kError : kWarning,
      fmt::format("rank {} needs {} more than rank {} ({} versus {})", high.rank, size_text(extra),
                  typical.rank, size_text(high.bytes), size_text(typical.bytes)));
  f.evidence = {
      {"peak_bytes", high.bytes}, {"median_peak_bytes", typical.bytes}, {"extra_bytes", extra}};
  if (!ranks.stacks.empty()) f.frames = ranks.stacks.front().frames;
  f.advice.push_back(
      has_lines_of_its_own(ranks)
          ? Advice{"move_extras",
                   fmt::format("only this rank runs {}: move what it keeps to host memory, or "
                               "spread it over the ranks: saves {}",
                               place_of(f.frames), size_text(extra)),
                   extra}
          : Advice{"balance_ranks",
                   fmt::format("the same lines hold more memory on this rank: give every rank the "
                               "same amount of data: saves {}",
                               size_text(extra)),
                   extra});
  out.push_back(std::move(f));
}

}  // namespace tidemark
