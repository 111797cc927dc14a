// One rank needs more than the others.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// What is alive at the peak, by the text of its stack: ids differ from rank to rank.
std::map<std::string, uint64_t> peak_by_stack(const DeviceEvidence& d) {
  std::unordered_map<uint32_t, uint64_t> by_id;
  const uint32_t peak = d.model->allocated_peak.event;
  for (const Allocation& a : d.model->allocations) {
    if (a.birth > peak) break;
    if (a.release > peak) by_id[a.stack] += a.block_bytes;
  }
  std::map<std::string, uint64_t> sums;
  for (const auto& [stack, bytes] : by_id) {
    std::string text;
    for (const std::string& frame : d.process->names.stack_text(stack)) text += frame + '\n';
    sums[text] += bytes;
  }
  return sums;
}

uint64_t height(const DeviceEvidence& d) {
  return d.model != nullptr ? d.model->allocated_peak.bytes : d.driver_peak.bytes;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

struct Excess {
  std::string stack;
  uint64_t bytes = 0;      // of the stack that exceeds most
  uint64_t shared = 0;     // excess of stacks that the typical rank has, too
  uint64_t exclusive = 0;  // of those it has not
};

Excess compare(const DeviceEvidence& high, const DeviceEvidence& typical) {
  Excess e;
  const auto theirs = peak_by_stack(typical);
  for (const auto& [stack, bytes] : peak_by_stack(high)) {
    const auto it = theirs.find(stack);
    const uint64_t other = it == theirs.end() ? 0 : it->second;
    if (bytes <= other) continue;
    (it == theirs.end() ? e.exclusive : e.shared) += bytes - other;
    if (bytes - other > e.bytes) {
      e.bytes = bytes - other;
      e.stack = stack;
    }
  }
  return e;
}

void judge(const DeviceEvidence& d, const DeviceEvidence& typical, std::vector<Finding>& out) {
  const uint64_t extra = height(d) - height(typical);
  Finding f =
      d.finding("rank_imbalance", d.ran_out() ? kError : kWarning,
                fmt::format("rank {} needs {} more than rank {} does ({} against {})",
                            d.process->info.rank, size_text(extra), typical.process->info.rank,
                            size_text(height(d)), size_text(height(typical))));
  f.evidence = {
      {"peak_bytes", height(d)}, {"median_peak_bytes", height(typical)}, {"extra_bytes", extra}};
  bool own_lines = false;
  if (d.model != nullptr && typical.model != nullptr) {
    const Excess e = compare(d, typical);
    own_lines = e.exclusive > e.shared;
    f.frames = lines_of(e.stack);
    f.evidence.emplace_back("only_here_bytes", e.exclusive);
    f.evidence.emplace_back("larger_here_bytes", e.shared);
  }
  f.advice.push_back(
      own_lines
          ? Advice{"move_extras",
                   fmt::format(
                       "only this rank runs the line below: move what it keeps to the host, "
                       "or spread it: saves {}",
                       size_text(extra)),
                   extra}
          : Advice{"balance_ranks",
                   fmt::format("the same lines hold more here: give every rank the same amount of "
                               "data: saves {}",
                               size_text(extra)),
                   extra});
  out.push_back(std::move(f));
}

}  // namespace

void find_rank_imbalance(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{32} << 20;
  // One entry per rank: its highest device.
  std::map<int64_t, const DeviceEvidence*> ranks;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.process->info.rank < 0 || height(d) == 0) continue;
    const DeviceEvidence*& slot = ranks[d.process->info.rank];
    if (slot == nullptr || height(d) > height(*slot)) slot = &d;
  }
  if (ranks.size() < 2) return;
  std::vector<const DeviceEvidence*> order;
  for (const auto& [rank, d] : ranks) order.push_back(d);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return height(*a) < height(*b); });
  const DeviceEvidence& typical = *order[(order.size() - 1) / 2];
  for (const DeviceEvidence* d : order) {
    const uint64_t extra = height(*d) - std::min(height(*d), height(typical));
    if (extra >= kWorthSaying && extra >= height(typical) / 10) judge(*d, typical, out);
  }
}

}  // namespace tidemark
