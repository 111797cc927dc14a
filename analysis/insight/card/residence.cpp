#include "analysis/insight/card/residence.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "analysis/history/memory_state.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

namespace {

struct SegmentLife {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;

  uint64_t end() const { return address + size_bytes; }
};

std::vector<SegmentLife> segment_lives(const AllocationHistory& history) {
  std::vector<SegmentLife> lives;
  std::map<uint64_t, size_t> open;
  for (const SegmentChange& change : history.segment_changes) {
    if (change.expandable) continue;
    if (change.grows) {
      if (change.address + change.size_bytes <= change.address) continue;
      open[change.address] = lives.size();
      lives.push_back({change.address, change.size_bytes, change.time_ns, INT64_MAX});
    } else if (const auto it = open.find(change.address); it != open.end()) {
      lives[it->second].death_ns = change.time_ns;
      open.erase(it);
    }
  }
  return lives;
}

// Mappings by address. Most segments overlap with a few of many.
class MappingIndex {
 public:
  explicit MappingIndex(const std::vector<DriverMapping>& mappings) {
    for (const DriverMapping& m : mappings) {
      if (m.address + m.size_bytes > m.address) by_address_.push_back(&m);
    }
    std::stable_sort(
        by_address_.begin(), by_address_.end(),
        [](const DriverMapping* a, const DriverMapping* b) { return a->address < b->address; });
    uint64_t end = 0;
    for (const DriverMapping* m : by_address_) {
      end = std::max(end, m->address + m->size_bytes);
      end_so_far_.push_back(end);
    }
  }

  // Those with addresses of the segment during its life, by birth.
  std::vector<const DriverMapping*> of(const SegmentLife& segment) const {
    std::vector<const DriverMapping*> found;
    const auto after =
        std::partition_point(by_address_.begin(), by_address_.end(),
                             [&](const DriverMapping* m) { return m->address < segment.end(); });
    for (auto i = static_cast<size_t>(after - by_address_.begin());
         i-- > 0 && end_so_far_[i] > segment.address;) {
      const DriverMapping& m = *by_address_[i];
      if (m.address + m.size_bytes <= segment.address) continue;
      if (m.birth_ns < segment.death_ns && m.death_ns > segment.birth_ns) found.push_back(&m);
    }
    std::stable_sort(
        found.begin(), found.end(),
        [](const DriverMapping* a, const DriverMapping* b) { return a->birth_ns < b->birth_ns; });
    return found;
  }

 private:
  std::vector<const DriverMapping*> by_address_;
  std::vector<uint64_t> end_so_far_;  // the last address of this one and all before
};

// When each part of a segment was last mapped. Mapped, asleep, mapped again: the mappings of an
// address come one after the other. Parts that were never mapped are not known to sleep.
class SegmentParts {
 public:
  explicit SegmentParts(const SegmentLife& segment) : segment_(segment) {
    until_[segment.address] = std::nullopt;
  }

  // In order of birth.
  void map(uint64_t begin, uint64_t end, const DriverMapping& m) {
    cut(begin);
    cut(end);
    for (auto it = until_.find(begin); it != until_.end() && it->first < end; ++it) {
      if (it->second && *it->second < m.birth_ns) nap(it, m.birth_ns);
      it->second = it->second ? std::max(*it->second, m.death_ns) : m.death_ns;
    }
  }

  std::vector<Residence::Nap> finish() {
    for (auto it = until_.begin(); it != until_.end(); ++it) {
      if (it->second && *it->second < segment_.death_ns) nap(it, segment_.death_ns);
    }
    return std::move(naps_);
  }

 private:
  using Part = std::map<uint64_t, std::optional<int64_t>>::iterator;

  void cut(uint64_t at) {
    if (at < segment_.end()) until_.emplace(at, std::prev(until_.upper_bound(at))->second);
  }

  void nap(Part part, int64_t to_ns) {
    const auto next = std::next(part);
    const uint64_t end = next == until_.end() ? segment_.end() : next->first;
    naps_.push_back({{part->first, end}, *part->second, to_ns});
  }

  const SegmentLife& segment_;
  std::map<uint64_t, std::optional<int64_t>> until_;  // by the part's first address
  std::vector<Residence::Nap> naps_;
};

}  // namespace

Residence::Residence(const ProcessModel& process, int64_t device)
    : process_(process), device_(device) {
  const AllocationHistory* const history = process.framework_on(device);
  if (history == nullptr || process.driver.mappings.empty()) return;
  const MappingIndex mappings(process.driver.mappings);
  std::vector<StepChange> asleep;
  std::map<uint32_t, std::vector<StepChange>> inside;
  const auto add_life = [](std::vector<StepChange>& steps, uint64_t bytes, int64_t from_ns,
                           int64_t to_ns) {
    steps.push_back({from_ns, static_cast<int64_t>(bytes)});
    if (to_ns != INT64_MAX) steps.push_back({to_ns, -static_cast<int64_t>(bytes)});
  };
  for (const SegmentLife& segment : segment_lives(*history)) {
    SegmentParts parts(segment);
    for (const DriverMapping* m : mappings.of(segment)) {
      const uint64_t begin = std::max(m->address, segment.address);
      const uint64_t end = std::min(m->address + m->size_bytes, segment.end());
      parts.map(begin, end, *m);
      const DriverAllocation& memory = process.driver.allocations[m->allocation];
      add_life(inside[memory.owner], end - begin, std::max(m->birth_ns, segment.birth_ns),
               std::min(m->death_ns, segment.death_ns));
    }
    for (const Nap& nap : parts.finish()) naps_.push_back(nap);
  }
  for (const Nap& nap : naps_) add_life(asleep, nap.part.bytes(), nap.from_ns, nap.to_ns);
  asleep_ = sum_of_changes(std::move(asleep));
  for (auto& [owner, steps] : inside) inside_[owner] = sum_of_changes(std::move(steps));
}

std::vector<AddressRange> Residence::asleep_at(int64_t time_ns) const {
  std::vector<AddressRange> parts;
  for (const Nap& nap : naps_) {
    if (nap.from_ns <= time_ns && nap.to_ns > time_ns) parts.push_back(nap.part);
  }
  std::sort(parts.begin(), parts.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  std::vector<AddressRange> joined;
  for (const AddressRange& part : parts) {
    if (!joined.empty() && joined.back().end >= part.begin) {
      joined.back().end = std::max(joined.back().end, part.end);
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

uint64_t Residence::asleep_in_use(int64_t time_ns) const {
  const AllocationHistory* const history = process_.framework_on(device_);
  uint32_t event = 0;
  if (asleep_.at(time_ns) == 0 || history == nullptr || !history->event_at(time_ns, event)) {
    return 0;
  }
  const MemoryState state = state_after(*history, event);
  const std::vector<AddressRange> parts = asleep_at(time_ns);
  uint64_t bytes = 0;
  for (const uint32_t row : state.live) {
    const Allocation a = history->allocations[row];
    if (a.release <= event) continue;  // freed, but another stream still uses it
    bytes += bytes_in(parts, {a.address, a.address + a.block_bytes});
  }
  return bytes;
}

uint64_t bytes_in(const std::vector<AddressRange>& parts, AddressRange range) {
  uint64_t bytes = 0;
  for (auto it = std::partition_point(parts.begin(), parts.end(),
                                      [&](const AddressRange& p) { return p.end <= range.begin; });
       range.end > range.begin && it != parts.end() && it->begin < range.end; ++it) {
    bytes += std::min(it->end, range.end) - std::max(it->begin, range.begin);
  }
  return bytes;
}

}  // namespace tidemark
