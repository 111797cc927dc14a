#include "collector/job/alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>

#include "collector/job/clock_fit.h"
#include "collector/job/job.h"
#include "proto/clock.h"

namespace tidemark {

namespace {

class Aligner {
 public:
  explicit Aligner(std::span<const RankFacts* const> ranks)
      : ranks_(ranks), known_(ranks.size(), false), failures_(ranks.size(), 0) {
    result_.clocks.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (const CollectiveEnd& end : ranks[i]->ends) {
        std::vector<size_t>& members = members_[end.communicator];
        if (members.empty() || members.back() != i) members.push_back(i);
      }
    }
  }

  ClockAlignment run() {
    if (ranks_.size() < 2) return std::move(result_);
    root_ = 0;
    while (root_ + 1 < ranks_.size() && ranks_[root_]->ends.empty()) ++root_;
    if (ranks_[root_]->ends.empty()) root_ = 0;
    known_[root_] = true;
    result_.clocks[root_].reference_ns = ranks_[root_]->first_ns;
    result_.clocks[root_].method =
        ranks_[root_]->ends.empty() ? AlignmentMethod::kHostClock : AlignmentMethod::kCollectives;
    std::deque<size_t> reached{root_};
    while (!reached.empty()) {
      const size_t from = reached.front();
      reached.pop_front();
      for (const size_t to : neighbours(from)) {
        if (align(from, to)) reached.push_back(to);
      }
    }
    leave_others();
    return std::move(result_);
  }

 private:
  // Ranks without a clock that took part in one of the collectives of `from`.
  std::vector<size_t> neighbours(size_t from) const {
    constexpr int kMostFailures = 8;
    std::set<size_t> found;
    uint64_t last = 0;
    for (const CollectiveEnd& end : ranks_[from]->ends) {
      if (end.communicator == last) continue;
      last = end.communicator;
      for (const size_t i : members_.at(end.communicator)) {
        if (!known_[i] && failures_[i] < kMostFailures) found.insert(i);
      }
    }
    return {found.begin(), found.end()};
  }

  bool align(size_t from, size_t to) {
    std::vector<ClockPoint> points = shared_ends(from, to);
    if (points.size() < kFewestPoints) {
      ++failures_[to];
      return false;
    }
    const RankFacts& rank = *ranks_[to];
    Alignment clock = fit_clock(std::move(points), rank.first_ns, rank.last_ns);
    clock.residual_ns += result_.clocks[from].residual_ns;
    if (rank.host == ranks_[root_]->host && !rank.host.empty() && is_raw(clock, rank)) {
      clock.offset_ns = clock.drift_ppb = 0;
      clock.method = AlignmentMethod::kHostClock;
    }
    result_.clocks[to] = clock;
    known_[to] = true;
    return true;
  }

  // Whether the correction is within its own error.
  static bool is_raw(const Alignment& clock, const RankFacts& rank) {
    const auto small = [&](int64_t raw_ns) {
      const int64_t moved = aligned_ns(clock, raw_ns) - raw_ns;
      return static_cast<uint64_t>(moved < 0 ? -moved : moved) <= clock.residual_ns;
    };
    return small(rank.first_ns) && small(rank.last_ns) && small(clock.reference_ns);
  }

  std::vector<ClockPoint> shared_ends(size_t from, size_t to) const {
    const auto before = [](const CollectiveEnd& a, const CollectiveEnd& b) {
      return a.communicator != b.communicator ? a.communicator < b.communicator
                                              : a.sequence < b.sequence;
    };
    std::vector<ClockPoint> points;
    const std::vector<CollectiveEnd>& a = ranks_[from]->ends;
    const std::vector<CollectiveEnd>& b = ranks_[to]->ends;
    for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
      if (before(a[i], b[k])) {
        ++i;
      } else if (before(b[k], a[i])) {
        ++k;
      } else {
        const int64_t there = aligned_ns(result_.clocks[from], a[i].end_ns);
        points.push_back({b[k].end_ns, there - b[k].end_ns});
        ++i;
        ++k;
      }
    }
    return points;
  }

  // Processes that took part in no collective, such as those without a rank: their host's clock,
  // corrected like that of an aligned rank on the same host.
  void leave_others() {
    std::map<std::string_view, size_t> aligned_on;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (known_[i] && !ranks_[i]->host.empty()) aligned_on.try_emplace(ranks_[i]->host, i);
    }
    std::vector<uint64_t> unchecked;
    std::set<std::string_view> hosts;  // of processes without a rank
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (known_[i]) continue;
      const RankFacts& rank = *ranks_[i];
      if (const auto other = aligned_on.find(rank.host); other != aligned_on.end()) {
        result_.clocks[i] = result_.clocks[other->second];
      } else if (rank.info.rank >= 0) {
        unchecked.push_back(static_cast<uint64_t>(rank.info.rank));
      } else if (!rank.host.empty()) {
        hosts.insert(rank.host);
      }
    }
    std::sort(unchecked.begin(), unchecked.end());
    if (!unchecked.empty()) {
      warn_of(fmt::format("{} {}", unchecked.size() == 1 ? "rank" : "ranks",
                          list_of_ranks(unchecked)));
    }
    if (!hosts.empty()) {
      warn_of(fmt::format("processes without a rank on {}{}", *hosts.begin(),
                          hosts.size() > 1 ? fmt::format(" and {} more", hosts.size() - 1) : ""));
    }
  }

  void warn_of(std::string_view who) {
    result_.warnings.push_back(fmt::format(
        "{}: no collectives to align the clocks with; times are those of the hosts' clocks, "
        "which may differ by seconds",
        who));
  }

  std::span<const RankFacts* const> ranks_;
  std::vector<bool> known_;
  std::vector<int> failures_;
  std::map<uint64_t, std::vector<size_t>> members_;  // communicator -> ranks
  size_t root_ = 0;
  ClockAlignment result_;
};

}  // namespace

ClockAlignment align_clocks(std::span<const RankFacts* const> ranks) {
  return Aligner(ranks).run();
}

}  // namespace tidemark
