// The free blocks of one stream in one pool, ordered by (size, tie-break).
//
// Sorted runs of a few hundred entries: a search is two binary searches in contiguous memory, an
// insertion moves a few kilobytes at most. A tree with a node per block costs several times as
// much, and the model of the allocator spends most of its time in this set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace tidemark {

class FreeSet {
 public:
  struct Entry {
    uint64_t size = 0;
    uint64_t order = 0;  // among blocks of one size
    uint32_t block = 0;

    // Compares the block too: a forged recording may place two blocks at one address.
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(a.size, a.order, a.block) < std::tie(b.size, b.order, b.block);
    }
  };
  // A position in the set; any insertion or removal invalidates it.
  struct Place {
    size_t run = 0;
    size_t index = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  bool empty() const { return runs_.empty(); }
  Place begin() const { return {0, 0}; }
  Place end() const { return {runs_.size(), 0}; }
  const Entry& at(Place p) const { return runs_[p.run][p.index]; }
  const Entry& largest() const { return runs_.back().back(); }

  // The first entry of at least this size.
  Place lower_bound(uint64_t size) const { return lower_bound(Entry{size, 0, 0}); }
  Place next(Place p) const {
    return p.index + 1 < runs_[p.run].size() ? Place{p.run, p.index + 1} : Place{p.run + 1, 0};
  }
  Place previous(Place p) const {
    return p.index > 0 ? Place{p.run, p.index - 1} : Place{p.run - 1, runs_[p.run - 1].size() - 1};
  }

  void insert(const Entry& entry) {
    if (runs_.empty()) {
      runs_.push_back({entry});
      return;
    }
    Place p = lower_bound(entry);
    if (p.run == runs_.size()) p = {runs_.size() - 1, runs_.back().size()};
    std::vector<Entry>& run = runs_[p.run];
    run.insert(run.begin() + static_cast<std::ptrdiff_t>(p.index), entry);
    if (run.size() > kRun) split(p.run);
  }

  // The entry must be in the set.
  void erase(const Entry& entry) { erase(lower_bound(entry)); }
  void erase(Place p) {
    std::vector<Entry>& run = runs_[p.run];
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(p.index));
    if (run.empty()) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(p.run));
  }

  template <typename Use>
  void for_each(Use&& use) const {
    for (const auto& run : runs_) {
      for (const Entry& entry : run) use(entry);
    }
  }

 private:
  static constexpr size_t kRun = 256;

  Place lower_bound(const Entry& key) const {
    const auto run = std::partition_point(
        runs_.begin(), runs_.end(), [&](const std::vector<Entry>& r) { return r.back() < key; });
    if (run == runs_.end()) return end();
    const auto entry = std::lower_bound(run->begin(), run->end(), key);
    return {static_cast<size_t>(run - runs_.begin()), static_cast<size_t>(entry - run->begin())};
  }

  void split(size_t index) {
    std::vector<Entry>& run = runs_[index];
    const auto middle = run.begin() + static_cast<std::ptrdiff_t>(run.size() / 2);
    std::vector<Entry> upper(middle, run.end());
    run.erase(middle, run.end());
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(index) + 1, std::move(upper));
  }

  std::vector<std::vector<Entry>> runs_;  // none is empty
};

}  // namespace tidemark
