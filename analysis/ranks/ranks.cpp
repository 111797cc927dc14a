#include "analysis/ranks/ranks.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "analysis/history/memory_state.h"
#include "analysis/names/stack_lines.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

// Smaller differences are not worth explaining.
constexpr uint64_t kWorthSaying = uint64_t{16} << 20;
constexpr size_t kMostStacks = 8;

struct Candidate {
  size_t digest = 0;
  RankHeight height;
};

// A candidate of which more than its height is of interest.
struct Loaded {
  const ProcessModel* process = nullptr;
  const AllocationHistory* framework = nullptr;  // null: use the driver's allocations
  RankHeight height;
};

// One per rank, in order: its device with the highest peak. A restarted rank counts with the higher
// of its runs.
std::vector<Candidate> candidates(std::span<const RankDigest> digests, bool framework) {
  std::map<int64_t, Candidate> best;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (digests[i].rank < 0) continue;
    for (const DeviceHeights& device : digests[i].devices) {
      const Peak& peak = framework ? device.framework : device.driver;
      if (peak.bytes == 0) continue;
      Candidate& slot = best[digests[i].rank];
      if (peak.bytes <= slot.height.bytes) continue;
      slot = {i, {digests[i].rank, device.device, peak.bytes, peak.time_ns}};
    }
  }
  std::vector<Candidate> all;
  for (const auto& [rank, c] : best) all.push_back(c);
  return all;
}

// Hashes of the text of every stack: ids differ from rank to rank. Those of its parent and its
// frame make that of a stack, so the work does not grow with the depth of the stacks.
using StackKey = std::pair<uint64_t, uint64_t>;

std::vector<StackKey> stack_keys(const Dictionary& names) {
  const auto extended = [](const StackKey& key, uint64_t word) {
    return StackKey{mix_bits(key.first ^ word), mix_bits(key.second + word)};
  };
  std::vector<uint64_t> frames(names.frame_count());
  for (uint32_t id = 0; id < frames.size(); ++id) {
    frames[id] = std::hash<std::string>()(names.frame_text(id)) ^ hash_salt();
  }
  std::vector<StackKey> keys(names.stack_count());
  for (uint32_t id = 1; id < keys.size(); ++id) {
    const Stack& stack = names.stack(id);  // its parent has a smaller id
    keys[id] = extended(keys[stack.parent], stack.frame < frames.size() ? frames[stack.frame] : 0);
  }
  return keys;
}

struct StackBytes {
  uint32_t stack = 0;  // one of those with this text
  uint64_t bytes = 0;
  uint64_t blocks = 0;

  void add(uint64_t block_bytes) {
    bytes += block_bytes;
    ++blocks;
  }
};

// What is allocated at the rank's peak, by stack.
std::map<StackKey, StackBytes> bytes_by_stack(const Loaded& c) {
  std::map<uint32_t, StackBytes> by_id;
  if (c.framework != nullptr) {
    const AllocationColumns& all = c.framework->allocations;
    const MemoryState peak = state_after(*c.framework, c.framework->allocated_peak.event);
    for (const uint32_t i : peak.live) {
      if (!peak.is_pending(*c.framework, i)) by_id[all.stack(i)].add(all.block_bytes(i));
    }
  } else {
    for (const DriverAllocation& a : c.process->driver.allocations) {
      if (a.on_card() && a.device == c.height.device && a.birth_ns <= c.height.time_ns &&
          a.death_ns > c.height.time_ns) {
        by_id[a.stack].add(a.size_bytes);
      }
    }
  }
  const std::vector<StackKey> keys = stack_keys(c.process->names);
  std::map<StackKey, StackBytes> by_text;
  for (const auto& [stack, here] : by_id) {
    StackBytes& sum = by_text[stack < keys.size() ? keys[stack] : StackKey()];
    sum.stack = stack;
    sum.bytes += here.bytes;
    sum.blocks += here.blocks;
  }
  return by_text;
}

std::vector<StackExcess> stack_excess(const Loaded& high, const Loaded& typical) {
  const auto theirs = bytes_by_stack(typical);
  std::vector<std::pair<StackBytes, StackBytes>> order;  // of the typical rank, and of this one
  for (const auto& [key, here] : bytes_by_stack(high)) {
    const auto it = theirs.find(key);
    const StackBytes other = it != theirs.end() ? it->second : StackBytes();
    if (here.bytes > other.bytes) order.emplace_back(other, here);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const uint64_t x = a.second.bytes - a.first.bytes;
    const uint64_t y = b.second.bytes - b.first.bytes;
    return x != y ? x > y : a.second.stack < b.second.stack;
  });
  if (order.size() > kMostStacks) order.resize(kMostStacks);
  std::vector<StackExcess> all;
  for (const auto& [other, here] : order) {
    all.push_back({high.process->names.stack_text(here.stack),
                   {},
                   here.bytes,
                   other.bytes,
                   here.blocks,
                   other.blocks});
  }
  return all;
}

// Whether a frame tells what the program runs. Of a stack of Python, native frames and those of
// PyTorch do not: autocast, or another build, puts others between the same lines.
bool tells_lines(const std::string& frame, bool of_python) {
  if (!of_python) return true;
  return is_python_line(frame) && frame.find("-packages/torch/") == std::string::npos;
}

std::vector<std::string> program_lines(const std::vector<std::string>& frames) {
  const bool of_python = std::any_of(frames.begin(), frames.end(), is_python_line);
  std::vector<std::string> lines;
  std::copy_if(frames.begin(), frames.end(), std::back_inserter(lines),
               [&](const std::string& frame) { return tells_lines(frame, of_python); });
  return lines;
}

// Lines that no other rank has in any stack of its whole run. Nothing is known of what a rank
// without stacks runs: then there is no answer.
void find_own_frames(RankSource& source, int64_t rank, std::vector<StackExcess>& stacks) {
  if (stacks.empty()) return;
  std::unordered_set<std::string> own;
  for (const StackExcess& s : stacks) {
    for (std::string& line : program_lines(s.frames)) own.insert(std::move(line));
  }
  std::set<std::shared_ptr<const FrameHashes>> seen;  // most ranks run the same program
  for (size_t i = 0; i < source.digests().size(); ++i) {
    const RankDigest& other = source.digests()[i];
    if (other.rank < 0 || other.rank == rank) continue;
    const std::shared_ptr<const FrameHashes> frames = source.frames(i);
    if (frames == nullptr || frames->empty()) return;
    if (!seen.insert(frames).second) continue;
    std::erase_if(own, [&](const std::string& frame) {
      return std::binary_search(frames->begin(), frames->end(), frame_hash(frame));
    });
  }
  for (StackExcess& s : stacks) {
    s.own_frames = program_lines(s.frames);
    std::erase_if(s.own_frames, [&](const std::string& line) { return !own.contains(line); });
  }
}

std::map<std::string, uint64_t> bytes_by_owner(const Loaded& c) {
  std::map<std::string, uint64_t> sums;
  const DriverState state = driver_state_at(c.process->driver, c.height.device, c.height.time_ns);
  for (const auto& [owner, bytes] : state.card_by_owner) {
    sums[std::string(c.process->names.string(owner))] += bytes;
  }
  return sums;
}

std::vector<OwnerExcess> owner_excess(const Loaded& high, const Loaded& typical) {
  const auto theirs = bytes_by_owner(typical);
  std::vector<OwnerExcess> all;
  for (const auto& [owner, bytes] : bytes_by_owner(high)) {
    const auto it = theirs.find(owner);
    const uint64_t other = it != theirs.end() ? it->second : 0;
    if (bytes > other) all.push_back({owner, bytes, other});
  }
  std::stable_sort(all.begin(), all.end(), [](const OwnerExcess& a, const OwnerExcess& b) {
    return a.bytes - a.typical_bytes > b.bytes - b.typical_bytes;
  });
  return all;
}

class ExactLevel : public RankLevel {
 public:
  ExactLevel(const ProcessModel& process, int64_t device, bool framework)
      : framework_(framework ? process.framework_on(device) : nullptr) {
    if (framework_ != nullptr) {
      if (framework_->event_count() != 0) end_ns_ = framework_->time_ns.back();
      return;
    }
    std::vector<std::pair<int64_t, int64_t>> changes;
    for (const DriverAllocation& a : process.driver.allocations) {
      if (!a.on_card() || a.device != device) continue;
      changes.emplace_back(a.birth_ns, static_cast<int64_t>(a.size_bytes));
      if (a.death_ns != INT64_MAX) {
        changes.emplace_back(a.death_ns, -static_cast<int64_t>(a.size_bytes));
      }
    }
    std::sort(changes.begin(), changes.end());
    int64_t now = 0;
    for (const auto& [time_ns, bytes] : changes) steps_.emplace_back(time_ns, now += bytes);
    if (!steps_.empty()) end_ns_ = steps_.back().first;
  }

  int64_t end_ns() const override { return end_ns_; }

  uint64_t at(int64_t time_ns) const override {
    if (framework_ != nullptr) {
      uint32_t event = 0;
      if (!framework_->state_event_at(time_ns, event)) return 0;
      return framework_->totals_after(event).allocated;
    }
    const auto next = std::upper_bound(steps_.begin(), steps_.end(),
                                       std::pair<int64_t, int64_t>(time_ns, INT64_MAX));
    if (next == steps_.begin()) return 0;
    return static_cast<uint64_t>(std::max<int64_t>(0, std::prev(next)->second));
  }

 private:
  const AllocationHistory* framework_;
  std::vector<std::pair<int64_t, int64_t>> steps_;
  int64_t end_ns_ = INT64_MIN;
};

// Every rank is sampled at a fixed number of instants; only those that may have diverged first are
// examined more closely. So the work is linear in the number of ranks.
class DivergenceSearch {
 public:
  DivergenceSearch(const std::vector<Candidate>& ranks, RankSource& source, bool framework)
      : ranks_(ranks), source_(source), framework_(framework) {}

  Divergence run(const RankHeight& typical, int64_t begin_ns) {
    typical_bytes_ = typical.bytes;
    limit_ = std::max(kWorthSaying, typical.bytes / 10);
    begin_ns_ = begin_ns;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      // Ranks reach the same level at different times; that alone is not a difference.
      const RankHeight& height = ranks_[i].height;
      if (height.bytes < typical.bytes + limit_ || height.time_ns <= begin_ns) continue;
      suspects_.push_back({i, 0});
      end_ns_ = std::max(end_ns_, height.time_ns);
    }
    if (suspects_.empty()) return {};
    const auto known = [&](const Candidate& c) { return source_.digests()[c.digest].clock_known; };
    if (!std::all_of(ranks_.begin(), ranks_.end(), known)) return highest();
    for (const Candidate& c : ranks_) {
      curves_.push_back(source_.level(c.digest, c.height.device, framework_));
      if (curves_.back() == nullptr) return {};
    }
    look_at_all();
    return first_to_part();
  }

 private:
  static constexpr int64_t kInstants = 128;
  static constexpr int kMostTries = 64;

  struct Suspect {
    size_t rank = 0;
    int64_t parted = 0;  // the instant since which it is above the others, up to its peak
  };

  int64_t instant(int64_t k) const {
    return begin_ns_ + static_cast<int64_t>(static_cast<double>(end_ns_ - begin_ns_) *
                                            static_cast<double>(k) / kInstants);
  }

  Divergence parted(size_t rank, std::optional<int64_t> since) const {
    const RankHeight& height = ranks_[rank].height;
    return {true, height.rank, since, height.bytes - typical_bytes_};
  }

  Divergence highest() const {
    const auto lower = [&](const Suspect& a, const Suspect& b) {
      return ranks_[a.rank].height.bytes < ranks_[b.rank].height.bytes;
    };
    return parted(std::max_element(suspects_.begin(), suspects_.end(), lower)->rank, std::nullopt);
  }

  // The median of the ranks still running then; of all ranks if none was.
  uint64_t middle_at(int64_t time_ns) const {
    std::vector<uint64_t> running;
    std::vector<uint64_t> all;
    for (const auto& curve : curves_) {
      all.push_back(curve->at(time_ns));
      if (curve->end_ns() >= time_ns) running.push_back(all.back());
    }
    std::vector<uint64_t>& values = running.size() > 1 ? running : all;
    // The lower median: with two ranks, the value of the other one.
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  uint64_t excess(size_t rank, int64_t time_ns, uint64_t middle) const {
    const uint64_t own = curves_[rank]->at(time_ns);
    return own > middle ? own - middle : 0;
  }

  void look_at_all() {
    for (int64_t k = 0; k <= kInstants; ++k) {
      const int64_t time = instant(k);
      const uint64_t middle = middle_at(time);
      for (Suspect& s : suspects_) {
        if (time > ranks_[s.rank].height.time_ns) continue;
        if (excess(s.rank, time, middle) < limit_) s.parted = k + 1;
      }
    }
  }

  Divergence first_to_part() {
    std::stable_sort(suspects_.begin(), suspects_.end(),
                     [](const Suspect& a, const Suspect& b) { return a.parted < b.parted; });
    std::vector<Suspect> together;
    auto next = suspects_.begin();
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (together.empty()) {
        if (next == suspects_.end()) break;
        const auto begin = next;
        while (next != suspects_.end() && next->parted == begin->parted) ++next;
        together.assign(begin, next);
      }
      const auto [rank, since] = first_of(together);
      const int64_t peak_ns = ranks_[rank].height.time_ns;
      if (excess(rank, peak_ns, middle_at(peak_ns)) >= limit_) return parted(rank, since);
      std::erase_if(together, [rank = rank](const Suspect& s) { return s.rank == rank; });
    }
    return {};
  }

  // Of ranks that parted between the same two instants, the first, and when: bisects for all of
  // them at once.
  std::pair<size_t, int64_t> first_of(std::vector<Suspect> suspects) const {
    const int64_t parted = suspects.front().parted;
    int64_t below = parted == 0 ? begin_ns_ : instant(parted - 1);
    int64_t above = instant(parted);
    while (above - below > 1000) {
      const int64_t time = below + (above - below) / 2;
      const uint64_t middle = middle_at(time);
      std::vector<Suspect> apart;
      for (const Suspect& s : suspects) {
        if (time >= ranks_[s.rank].height.time_ns || excess(s.rank, time, middle) >= limit_) {
          apart.push_back(s);
        }
      }
      (apart.empty() ? below : above) = time;
      if (!apart.empty()) suspects = std::move(apart);
    }
    const size_t rank = suspects.front().rank;
    return {rank, std::min(above, ranks_[rank].height.time_ns)};
  }

  const std::vector<Candidate>& ranks_;
  RankSource& source_;
  bool framework_;
  std::vector<std::unique_ptr<RankLevel>> curves_;
  std::vector<Suspect> suspects_;
  uint64_t typical_bytes_ = 0;
  uint64_t limit_ = 0;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = INT64_MIN;
};

// A job that was loaded as a whole.
class LoadedRanks : public RankSource {
 public:
  explicit LoadedRanks(const TraceModel& model) : model_(model) {
    for (const ProcessModel& process : model.processes) digests_.push_back(digest_of(process));
  }
  std::span<const RankDigest> digests() const override { return digests_; }
  int64_t start_ns() const override { return model_.start_ns; }
  const ProcessModel* process(size_t digest) override { return &model_.processes[digest]; }
  std::shared_ptr<const FrameHashes> frames(size_t digest) override {
    return std::make_shared<const FrameHashes>(frame_hashes(model_.processes[digest].names));
  }
  std::unique_ptr<RankLevel> level(size_t digest, int64_t device, bool framework) override {
    return std::make_unique<ExactLevel>(model_.processes[digest], device, framework);
  }

 private:
  const TraceModel& model_;
  std::vector<RankDigest> digests_;
};

void explain_highest(RankSource& source, const Candidate& high, const Candidate& typical,
                     RankComparison& out) {
  const auto loaded = [&](const Candidate& c) {
    Loaded l{source.process(c.digest), nullptr, c.height};
    if (l.process != nullptr && out.framework) {
      l.framework = l.process->framework_on(c.height.device);
    }
    return l;
  };
  const Loaded highest = loaded(high);
  const Loaded median = loaded(typical);
  if (highest.process == nullptr || median.process == nullptr) return;
  out.owners = owner_excess(highest, median);
  out.stacks = stack_excess(highest, median);
  find_own_frames(source, out.highest.rank, out.stacks);
}

}  // namespace

RankComparison compare_ranks(const TraceModel& model) {
  LoadedRanks source(model);
  return compare_ranks(source);
}

RankComparison compare_ranks(RankSource& source) {
  RankComparison out;
  const std::span<const RankDigest> digests = source.digests();
  std::vector<Candidate> ranks = candidates(digests, true);
  out.framework = ranks.size() >= 2;
  if (!out.framework) ranks = candidates(digests, false);
  out.stuck = find_stuck_collectives(digests);
  for (const RankDigest& d : digests) {
    out.nccl.insert(out.nccl.end(), d.nccl.begin(), d.nccl.end());
    out.clock_residual_ns = std::max(out.clock_residual_ns, d.clock_residual_ns);
    out.clocks_checked |= d.clock_checked;
    out.in_windows |= d.kept_window;
  }
  if (ranks.size() < 2) return out;
  out.compared = true;
  for (const Candidate& c : ranks) out.heights.push_back(c.height);
  std::vector<const Candidate*> order;
  for (const Candidate& c : ranks) order.push_back(&c);
  std::stable_sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) {
    return a->height.bytes < b->height.bytes;
  });
  const Candidate& high = *order.back();
  const Candidate& typical = *order[(order.size() - 1) / 2];
  out.highest = high.height;
  out.typical = typical.height;
  explain_highest(source, high, typical, out);
  out.divergence =
      DivergenceSearch(ranks, source, out.framework).run(typical.height, source.start_ns());
  return out;
}

}  // namespace tidemark
