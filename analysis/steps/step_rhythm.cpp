// Iterations from the rhythm of allocations, and of collectives.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "proto/base/hash.h"

#include "analysis/steps/steps.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastReturns = 4;     // a rhythm needs this many beats
constexpr uint32_t kUsualBlocks = 4;      // that an iteration allocates at least
constexpr size_t kCandidates = 48;        // requests examined in detail
constexpr double kLeastConfidence = 0.5;  // below it there is no usable rhythm

// One kind of request: how often it came, and how full memory was then.
struct Request {
  uint32_t count = 0;
  uint32_t first = 0;  // allocation
  uint32_t last = 0;
  double level_sum = 0;

  double level() const { return level_sum / static_cast<double>(count); }
};

// A request that may mark the iterations.
struct Candidate {
  uint32_t request = 0;
  uint32_t count = 0;
  uint32_t first = 0;
  double score = 0;
  std::vector<uint32_t> returns;  // allocations
  std::vector<double> levels;     // how much is allocated at each
  std::vector<double> made;       // the sum of all that was allocated before each
};

// The share of intervals that are close to the median.
double regularity(const std::vector<uint32_t>& returns) {
  std::vector<uint32_t> gaps;
  for (size_t i = 1; i < returns.size(); ++i) gaps.push_back(returns[i] - returns[i - 1]);
  std::vector<uint32_t> sorted = gaps;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double median = *middle;
  if (median < 2) return 0;  // the same request in a row is not an iteration
  const auto alike = std::count_if(gaps.begin(), gaps.end(), [&](uint32_t gap) {
    return std::fabs(gap - median) <= 0.15 * median + 1;
  });
  return static_cast<double>(alike) / static_cast<double>(gaps.size());
}

// The share of intervals that end as they began, but for a steady trend. Layers, micro-batches and
// tokens are as regular as the iterations that contain them, but memory rises in some and falls in
// others. The first iteration creates states.
double balance(const Candidate& c) {
  constexpr double kLeftOver = 0.1;  // of what an interval allocates
  const size_t last = c.levels.size() - 1;
  const size_t half = last / 2;
  const double trend = (c.levels[last] - c.levels[half]) / static_cast<double>(last - half);
  size_t even = 0;
  for (size_t i = 2; i <= last; ++i) {
    const double change = c.levels[i] - c.levels[i - 1] - trend;
    if (std::fabs(change) <= kLeftOver * (c.made[i] - c.made[i - 1])) ++even;
  }
  return static_cast<double>(even) / static_cast<double>(last - 1);
}

class RhythmFinder {
 public:
  RhythmFinder(const AllocationHistory& model, bool with_sizes)
      : model_(model), with_sizes_(with_sizes) {}

  Rhythm run() {
    number_requests();
    survey();
    model_.release_pages();
    std::vector<Candidate> chosen = candidates();
    if (chosen.empty()) return {};
    collect_returns(chosen);
    return best_of(chosen);
  }

 private:
  // Kinds of allocations that are the same request get one number. Sorting costs less than a hash
  // table where every allocation has a different kind, and nothing where kinds are few.
  void number_requests() {
    const auto& kinds = model_.allocations.kinds();
    std::vector<std::pair<uint64_t, uint32_t>> keys;
    keys.reserve(kinds.size());
    for (uint32_t i = 0; i < kinds.size(); ++i) {
      const uint64_t stack = hash_word(0, kinds[i].stack);
      keys.emplace_back(hash_word(stack, with_sizes_ ? kinds[i].asked_bytes() : 1), i);
    }
    std::sort(keys.begin(), keys.end());
    request_of_.resize(keys.size());
    uint32_t count = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i != 0 && keys[i].first != keys[i - 1].first) ++count;
      request_of_[keys[i].second] = count;
    }
    requests_.resize(size_t{count} + 1);
  }

  void survey() {
    const AllocationColumns& allocations = model_.allocations;
    uint64_t level = 0;
    for (uint32_t e = 0; e < model_.event_count(); ++e) {
      model_.passed(e);
      const uint32_t s = model_.subject[e];
      if (model_.change[e] == Change::kRelease) level -= allocations.block_bytes(s);
      if (model_.change[e] != Change::kBirth) continue;
      if (!allocations.seeded(s)) {
        Request& r = requests_[request_of_[allocations.kind(s)]];
        if (r.count == 0) r.first = s;
        ++r.count;
        r.last = s;
        r.level_sum += static_cast<double>(level);
      }
      level += allocations.block_bytes(s);
    }
  }

  // Requests that return over most of the history, those with the least memory alive first.
  std::vector<Candidate> candidates() {
    const double highest = static_cast<double>(std::max<uint64_t>(1, model_.allocated_peak.bytes));
    const auto births = static_cast<double>(model_.allocations.size());
    std::vector<Candidate> chosen;
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      const Request& r = requests_[i];
      if (r.count < kLeastReturns) continue;
      const double span = static_cast<double>(r.last - r.first) / births;
      if (span < 0.4) continue;
      const double score = (1 - r.level() / highest) * std::min(1.0, span + 0.2);
      chosen.push_back({i, r.count, r.first, score, {}, {}, {}});
    }
    // Ties are broken by first appearance: the result must not depend on how requests are numbered.
    std::sort(chosen.begin(), chosen.end(), [](const Candidate& a, const Candidate& b) {
      return a.score != b.score ? a.score > b.score : a.first < b.first;
    });
    chosen.resize(std::min(chosen.size(), kCandidates));
    return chosen;
  }

  void collect_returns(std::vector<Candidate>& chosen) {
    std::vector<Candidate*> wanted(requests_.size());
    for (Candidate& c : chosen) wanted[c.request] = &c;
    const AllocationColumns& allocations = model_.allocations;
    double level = 0;
    double made = 0;
    for (uint32_t e = 0; e < model_.event_count(); ++e) {
      model_.passed(e);
      const uint32_t i = model_.subject[e];
      const auto bytes = [&] { return static_cast<double>(allocations.block_bytes(i)); };
      if (model_.change[e] == Change::kRelease) level -= bytes();
      if (model_.change[e] != Change::kBirth) continue;
      Candidate* c = wanted[request_of_[allocations.kind(i)]];
      if (c != nullptr && !allocations.seeded(i)) {
        c->returns.push_back(i);
        c->levels.push_back(level);
        c->made.push_back(made);
      }
      level += bytes();
      made += bytes();
    }
  }

  static double clarity(const Candidate& c) { return regularity(c.returns) * balance(c); }

  // Among those nearly as good as the best, the one that returns most often, then the earliest: a
  // validation every tenth step is also regular, but it is not the step.
  Rhythm best_of(std::vector<Candidate>& chosen) const {
    double best = 0;
    for (Candidate& c : chosen) {
      c.score *= clarity(c);
      best = std::max(best, c.score);
    }
    const Candidate* winner = nullptr;
    for (const Candidate& r : chosen) {
      if (r.score < 0.85 * best || r.score <= 0) continue;
      if (winner == nullptr || r.count > winner->count ||
          (r.count == winner->count && r.first < winner->first)) {
        winner = &r;
      }
    }
    Rhythm rhythm;
    if (winner == nullptr || clarity(*winner) < kLeastConfidence) return rhythm;
    // A pair of blocks may be an iteration, but also a layer or a token of one.
    const uint32_t between = winner->returns.back() - winner->returns.front();
    if (between < kUsualBlocks * (winner->count - 1)) return rhythm;
    rhythm.confidence = std::min(1.0, clarity(*winner)) * (with_sizes_ ? 0.95 : 0.85);
    std::vector<uint32_t> beats = shorter_beats(winner->returns);
    if (beats.empty()) beats = winner->returns;
    for (const uint32_t i : beats) rhythm.boundaries.push_back(model_.allocations.birth(i));
    return rhythm;
  }

  uint32_t request_at(uint32_t allocation) const {
    return request_of_[model_.allocations.kind(allocation)];
  }

  // The least number of allocations after which those before `end` repeat themselves, back to
  // `begin`, twice at least; 0: they do not.
  uint32_t period_before(uint32_t begin, uint32_t end) const {
    constexpr uint32_t kMostAllocations = 1 << 14;
    constexpr double kMostAlike = 0.9;
    const uint32_t count = std::min(end - begin, kMostAllocations);
    for (uint32_t period = kUsualBlocks; 2 * period <= count; ++period) {
      const uint32_t compared = count - period;
      const auto allowed = static_cast<uint32_t>((1 - kMostAlike) * compared);
      uint32_t differing = 0;
      for (uint32_t i = 1; i <= compared && differing <= allowed; ++i) {
        differing += request_at(end - i) != request_at(end - i - period) ? 1U : 0U;
      }
      if (differing <= allowed) return period;
    }
    return 0;
  }

  // What returns only now and then, as a log after every tenth iteration, is clearer than the
  // iterations if these request each size several times. Between two returns they show as a
  // sequence of requests that repeats itself, with as much allocated each time. While gradients are
  // accumulated, or a layer's result is passed on, more is.
  std::vector<uint32_t> shorter_beats(const std::vector<uint32_t>& returns) const {
    const size_t middle = returns.size() / 2;
    const uint32_t period = period_before(returns[middle - 1], returns[middle]);
    if (period == 0) return {};
    std::vector<uint32_t> beats;
    uint32_t before = 0;
    for (const uint32_t end : returns) {
      std::vector<uint32_t> between;
      for (uint32_t beat = end; beat >= before + period;) {
        beat -= period;
        between.push_back(beat);
      }
      beats.insert(beats.end(), between.rbegin(), between.rend());
      before = end;
    }
    return has_one_level(beats) ? beats : std::vector<uint32_t>{};
  }

  // The first ones may come before the states of the optimizer are there.
  bool has_one_level(const std::vector<uint32_t>& beats) const {
    constexpr uint64_t kLeftOver = 50;  // a share of what comes and goes
    constexpr size_t kEnough = 4096;
    uint64_t lowest = UINT64_MAX;
    uint64_t highest = 0;
    for (size_t i = beats.size() / 4; i < beats.size(); i += beats.size() / kEnough + 1) {
      const uint32_t event = model_.allocations.birth(beats[i]);
      const uint64_t level = event == 0 ? 0 : model_.totals_after(event - 1).allocated;
      lowest = std::min(lowest, level);
      highest = std::max(highest, level);
    }
    return highest - lowest <= (model_.allocated_peak.bytes - lowest) / kLeftOver;
  }

  const AllocationHistory& model_;
  bool with_sizes_;
  std::vector<uint32_t> request_of_;  // by kind of allocation
  std::vector<Request> requests_;
};

}  // namespace

Rhythm boundaries_from_rhythm(const AllocationHistory& model) {
  Rhythm exact = RhythmFinder(model, true).run();
  // Where shapes vary, sizes do not recur but stacks do.
  const bool has_stacks = std::any_of(model.allocations.begin(), model.allocations.end(),
                                      [](const Allocation& a) { return a.stack != 0; });
  if (!has_stacks || exact.confidence > 0.8) return exact;
  Rhythm loose = RhythmFinder(model, false).run();
  return loose.confidence > exact.confidence ? loose : exact;
}

Rhythm boundaries_from_collectives(const ProcessModel& process, const AllocationHistory& model) {
  // The same collective on the same communicator: a bucket of gradients is reduced once in each
  // step.
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
