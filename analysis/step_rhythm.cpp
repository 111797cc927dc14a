// Iterations from the rhythm of allocations, and of collectives.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "analysis/steps.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastReturns = 4;     // a rhythm needs this many beats
constexpr size_t kCandidates = 48;        // requests looked at in detail
constexpr double kLeastConfidence = 0.5;  // below it there is no rhythm worth the name

// One kind of request: what it is known by, how often it came, and how full memory was then.
struct Request {
  uint64_t count = 0;
  uint32_t first = 0;  // allocation
  uint32_t last = 0;
  double level_sum = 0;
  double score = 0;
  std::vector<uint32_t> returns;  // allocations

  double level() const { return level_sum / static_cast<double>(count); }
};

uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9E3779B97F4A7C15U ^ (b + 0x7F4A7C15U);
  h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9U;
  return h ^ (h >> 29);
}

// The share of distances that are like the median one.
double regularity(const std::vector<uint32_t>& returns) {
  std::vector<uint32_t> gaps;
  for (size_t i = 1; i < returns.size(); ++i) gaps.push_back(returns[i] - returns[i - 1]);
  std::vector<uint32_t> sorted = gaps;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double median = *middle;
  if (median < 2) return 0;  // the same request in a row is no iteration
  const auto alike = std::count_if(gaps.begin(), gaps.end(), [&](uint32_t gap) {
    return std::fabs(gap - median) <= 0.15 * median + 1;
  });
  return static_cast<double>(alike) / static_cast<double>(gaps.size());
}

class RhythmFinder {
 public:
  RhythmFinder(const FrameworkModel& model, bool with_sizes)
      : model_(model), with_sizes_(with_sizes) {}

  Rhythm run() {
    survey();
    model_.release_pages();
    std::vector<uint64_t> chosen = candidates();
    if (chosen.empty()) return {};
    collect_returns(chosen);
    return best_of(chosen);
  }

 private:
  uint64_t key_of(const Allocation& a) const {
    return mixed(a.stack, with_sizes_ ? a.requested_bytes : 1);
  }

  void survey() {
    uint64_t level = 0;
    for (uint32_t e = 0; e < model_.event_count(); ++e) {
      const uint32_t s = model_.subject[e];
      if (model_.change[e] == Change::kRelease) level -= model_.allocations[s].block_bytes;
      if (model_.change[e] != Change::kBirth) continue;
      const Allocation& a = model_.allocations[s];
      if (!a.seeded) {
        Request& r = requests_[key_of(a)];
        if (r.count == 0) r.first = s;
        ++r.count;
        r.last = s;
        r.level_sum += static_cast<double>(level);
      }
      level += a.block_bytes;
    }
  }

  // Requests that return over most of the history, those at the lowest water first.
  std::vector<uint64_t> candidates() {
    const double highest = static_cast<double>(std::max<uint64_t>(1, model_.allocated_peak.bytes));
    const auto births = static_cast<double>(model_.allocations.size());
    std::vector<std::pair<double, uint64_t>> order;
    for (auto& [key, r] : requests_) {
      if (r.count < kLeastReturns) continue;
      const double span = static_cast<double>(r.last - r.first) / births;
      if (span < 0.4) continue;
      r.score = (1 - r.level() / highest) * std::min(1.0, span + 0.2);
      order.emplace_back(-r.score, key);
    }
    // Ties by first appearance: the answer must not depend on the order of a hash table.
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first
                                : requests_[a.second].first < requests_[b.second].first;
    });
    std::vector<uint64_t> keys;
    for (size_t i = 0; i < std::min(order.size(), kCandidates); ++i)
      keys.push_back(order[i].second);
    return keys;
  }

  void collect_returns(const std::vector<uint64_t>& chosen) {
    std::unordered_map<uint64_t, Request*> wanted;
    for (const uint64_t key : chosen) wanted[key] = &requests_[key];
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (a.seeded) continue;
      const auto it = wanted.find(key_of(a));
      if (it != wanted.end()) it->second->returns.push_back(i);
    }
  }

  // Among those about as good as the best, the one that returns most often, then the earliest: a
  // validation every tenth step is regular too, but it is not the step.
  Rhythm best_of(const std::vector<uint64_t>& chosen) {
    double best = 0;
    for (const uint64_t key : chosen) {
      Request& r = requests_[key];
      r.score *= regularity(r.returns);
      best = std::max(best, r.score);
    }
    const Request* winner = nullptr;
    for (const uint64_t key : chosen) {
      const Request& r = requests_[key];
      if (r.score < 0.85 * best || r.score <= 0) continue;
      if (winner == nullptr || r.count > winner->count ||
          (r.count == winner->count && r.first < winner->first)) {
        winner = &r;
      }
    }
    Rhythm rhythm;
    if (winner == nullptr || regularity(winner->returns) < kLeastConfidence) return rhythm;
    rhythm.confidence = std::min(1.0, regularity(winner->returns)) * (with_sizes_ ? 0.95 : 0.85);
    for (const uint32_t i : winner->returns) {
      rhythm.boundaries.push_back(model_.allocations[i].birth);
    }
    return rhythm;
  }

  const FrameworkModel& model_;
  bool with_sizes_;
  std::unordered_map<uint64_t, Request> requests_;
};

}  // namespace

Rhythm boundaries_from_rhythm(const FrameworkModel& model) {
  Rhythm exact = RhythmFinder(model, true).run();
  // Where shapes vary, sizes do not return but stacks do.
  const bool has_stacks = std::any_of(model.allocations.begin(), model.allocations.end(),
                                      [](const Allocation& a) { return a.stack != 0; });
  if (!has_stacks || exact.confidence > 0.8) return exact;
  Rhythm loose = RhythmFinder(model, false).run();
  return loose.confidence > exact.confidence ? loose : exact;
}

Rhythm boundaries_from_collectives(const ProcessModel& process, const FrameworkModel& model) {
  // The same exchange on the same communicator: a bucket of gradients comes once in each step.
  std::map<std::tuple<uint64_t, uint32_t, uint64_t>, std::vector<uint32_t>> returns;
  for (uint32_t i = 0; i < process.nccl.size(); ++i) {
    const NcclOperation& op = process.nccl[i];
    if (op.kind != NcclKind::kCollective) continue;
    returns[{op.communicator, op.function, op.size_bytes}].push_back(i);
  }
  const std::vector<uint32_t>* best = nullptr;
  double most = kLeastConfidence;
  for (const auto& [exchange, places] : returns) {
    if (places.size() < kLeastReturns) continue;
    const double regular = regularity(places);
    const bool longer = best == nullptr || places.size() > best->size();
    if (regular > most || (regular == most && longer)) {
      best = &places;
      most = regular;
    }
  }
  Rhythm rhythm;
  if (best == nullptr) return rhythm;
  rhythm.confidence = 0.8 * most;
  for (const uint32_t place : *best) {
    uint32_t event = 0;
    if (!model.event_at(process.nccl[place].start_ns, event)) continue;
    if (rhythm.boundaries.empty() || rhythm.boundaries.back() < event) {
      rhythm.boundaries.push_back(event);
    }
  }
  return rhythm;
}

}  // namespace tidemark
