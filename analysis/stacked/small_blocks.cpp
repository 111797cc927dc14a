#include "analysis/stacked/small_blocks.h"

#include <algorithm>

namespace tidemark {

namespace {

constexpr uint32_t kMostBlocks = 1U << 20;
constexpr uint32_t kMostGroups = 16;
constexpr uint32_t kParts = 32;        // of the columns, or of the longest life
constexpr uint32_t kPartsBefore = 16;  // of what was born before the first column

}  // namespace

SmallBlocks::SmallBlocks(const AllocationHistory& memory, const BlockGroups& groups,
                         const StackOptions& options)
    : memory_(&memory), options_(options), groups_(groups.count) {
  longest_ = life_of(memory, 0, kNever, options.life);
}

std::optional<SmallBlocks> SmallBlocks::of(const AllocationHistory& memory, const LifeTree& lives,
                                           const BlockGroups& groups, const ColumnSamples& samples,
                                           const StackOptions& options) {
  const std::vector<uint32_t>& events = samples.events;
  const auto first =
      std::find_if(events.begin(), events.end(), [](uint32_t event) { return event != kNoSample; });
  if (first == events.end() || groups.count > kMostGroups) return std::nullopt;
  const uint32_t older = lives.born_by(*first);
  const uint32_t born = lives.born_by(events.back());
  if (born - older > kMostBlocks) return std::nullopt;
  SmallBlocks small(memory, groups, options);
  small.columns_ = samples.count();
  small.first_column_ = static_cast<uint32_t>(first - events.begin());
  small.set_borders(lives, samples);
  small.changes_.assign(size_t{small.columns_} * small.classes() * small.groups_, 0);
  small.now_.assign(size_t{small.classes()} * small.groups_, 0);
  lives.visit(0, older, 1, *first, [&](uint32_t b) { small.add(b, groups, samples); });
  for (uint32_t b = older; b < born; ++b) small.add(b, groups, samples);
  small.set_orders();
  return small;
}

// Parts of the time, and of what was born before it. Closer at the beginning, where a program is
// set up; or, by length of life, for those that live briefly.
void SmallBlocks::set_borders(const LifeTree& lives, const ColumnSamples& samples) {
  borders_.push_back(0);
  if (options_.order == BandOrder::kLife) {
    for (uint64_t part = 1; part < kParts; ++part) borders_.push_back(longest_ / kParts * part);
    for (uint64_t life = longest_ / kParts / 2; life != 0; life /= 2) {
      borders_.push_back(longest_ - life);
    }
  } else {
    const uint32_t older = lives.born_by(samples.events[first_column_]);
    uint32_t seeded = 0;  // whose order of birth nobody knows
    while (seeded < older && memory_->allocations.seeded(seeded)) ++seeded;
    for (uint64_t part = 0; part <= kPartsBefore; ++part) {
      borders_.push_back(seeded + (older - seeded) * part / kPartsBefore);
    }
    const uint32_t columns = columns_ - first_column_;
    const auto add = [&](uint32_t column) {
      borders_.push_back(lives.born_by(samples.events[first_column_ + column]));
    };
    for (uint32_t finer = columns / kParts; finer != 0; finer /= 2) add(finer);
    for (uint64_t part = 1; part < kParts; ++part) {
      add(static_cast<uint32_t>(columns * part / kParts));
    }
  }
  std::sort(borders_.begin(), borders_.end());
  borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
}

uint64_t SmallBlocks::end_of(uint32_t of_class) const {
  return of_class + 1 < borders_.size() ? borders_[of_class + 1] : UINT64_MAX;
}

void SmallBlocks::add(uint32_t block, const BlockGroups& groups, const ColumnSamples& samples) {
  const AllocationColumns& blocks = memory_->allocations;
  const uint64_t bytes = blocks.block_bytes(block);
  const uint32_t group = groups.of(*memory_, block);
  const bool hidden = group < options_.hidden.size() && options_.hidden[group];
  if ((options_.blocks_alone && bytes >= options_.least_bytes) || group >= groups_ || hidden)
    return;
  const auto begin = samples.events.begin();
  const auto from = begin + first_column_;
  const auto column_of = [&](uint32_t event) {
    return static_cast<size_t>(std::lower_bound(from, samples.events.end(), event) - begin);
  };
  const size_t first = column_of(blocks.birth(block));
  const size_t end = column_of(blocks.release(block));
  if (first >= end) return;
  const auto after =
      std::upper_bound(borders_.begin(), borders_.end(), stacking_key(*memory_, block, options_));
  const size_t place = static_cast<size_t>(after - borders_.begin() - 1) * groups_ + group;
  changes_[first * now_.size() + place] += bytes;
  if (end < columns_) changes_[end * now_.size() + place] -= bytes;
}

void SmallBlocks::enter(uint32_t column) {
  const size_t row = size_t{column} * now_.size();
  for (size_t i = 0; i < now_.size(); ++i) now_[i] += changes_[row + i];
}

// What stays falls by a small part of its height only.
void SmallBlocks::set_orders() {
  std::vector<uint64_t> highest(now_.size());
  std::vector<uint64_t> fallen(now_.size());
  for (uint32_t c = 0; c < columns_; ++c) {
    const std::vector<uint64_t> before = now_;
    enter(c);
    for (size_t i = 0; i < now_.size(); ++i) {
      highest[i] = std::max(highest[i], now_[i]);
      fallen[i] += before[i] - std::min(now_[i], before[i]);
    }
  }
  std::fill(now_.begin(), now_.end(), 0);
  orders_.resize(classes());
  for (uint32_t of_class = 0; of_class < classes(); ++of_class) {
    std::vector<uint32_t>& order = orders_[of_class];
    for (uint32_t g = 0; g < groups_; ++g) order.push_back(g);
    std::stable_partition(order.begin(), order.end(), [&](uint32_t g) {
      const size_t i = size_t{of_class} * groups_ + g;
      return fallen[i] <= highest[i] / 4;
    });
  }
}

}  // namespace tidemark
