#include "analysis/stacked/stacked_columns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "analysis/stacked/small_blocks.h"

namespace tidemark {

namespace {

// With so few groups, each has a band.
constexpr uint32_t kFewGroups = 16;

class StackBuilder {
 public:
  StackBuilder(const AllocationHistory& memory, const LifeTree& lives, const BlockGroups& groups,
               const GroupTotals& totals, const StackOptions& options, StackedColumns& out)
      : memory_(&memory),
        lives_(&lives),
        groups_(&groups),
        totals_(&totals),
        options_(&options),
        out_(&out) {}

  void build() {
    out_->group_highest.assign(groups_->count, 0);
    alone_.assign(groups_->count, 0);
    stays_.assign(groups_->count, false);
    choose_groups();
    if (options_->blocks_alone && !groups_->are_segments()) find_blocks();
    sort_blocks();
    if (!options_->by_group && !groups_->are_segments()) {
      small_ = SmallBlocks::of(*memory_, *lives_, *groups_, out_->samples, *options_);
      small_ ? place_small_blocks() : find_rests_that_stay();
    }
    add_group_bands();
    out_->starts.push_back(0);
    GroupTotals::Reader reader(*totals_);
    for (uint32_t c = 0; c < out_->count(); ++c) add_column(c, reader);
  }

 private:
  bool hidden(uint32_t group) const {
    return group < options_->hidden.size() && options_->hidden[group];
  }

  uint64_t height_of(const GroupTotals::Reader& reader, uint32_t group) const {
    return groups_->are_segments() ? reader.reserved(group) : reader.bytes(group);
  }

  bool has_few_groups() const { return groups_->count <= kFewGroups; }

  void note_highest(const GroupTotals::Reader& reader) {
    for (uint32_t g = 0; g < groups_->count; ++g) {
      uint64_t& highest = out_->group_highest[g];
      highest = std::max(highest, height_of(reader, g));
    }
  }

  // Groups that are nowhere as high as a pixel share a band.
  void choose_groups() {
    shown_.assign(groups_->count, true);
    if (has_few_groups()) return;
    GroupTotals::Reader reader(*totals_);
    uint32_t last = kNoSample;
    for (const uint32_t event : out_->samples.events) {
      if (event == kNoSample || event == last) continue;
      last = event;
      reader.move_to(event);
      note_highest(reader);
    }
    for (uint32_t g = 0; g < groups_->count; ++g) {
      const uint64_t highest = out_->group_highest[g];
      shown_[g] = highest >= options_->least_bytes;
      if (!shown_[g] && highest != 0 && !hidden(g)) ++out_->other_groups;
    }
  }

  // Those in use at the instant of a column. Each is found at the first instant after its birth.
  void find_blocks() {
    uint32_t born = 0;
    const std::vector<uint32_t>& events = out_->samples.events;
    for (uint32_t c = 0; c < events.size(); ++c) {
      if (events[c] == kNoSample || (c > 0 && events[c] == events[c - 1])) continue;
      const uint32_t until = lives_->born_by(events[c]);
      lives_->visit(born, until, std::max<uint64_t>(options_->least_bytes, 1), events[c],
                    [&](uint32_t block) { add_block(block, c); });
      born = until;
    }
  }

  void add_block(uint32_t block, uint32_t column) {
    StackBand band;
    band.block = block;
    band.group = groups_->of(*memory_, block);
    if (band.group >= groups_->count || hidden(band.group)) return;
    const std::vector<uint32_t>& events = out_->samples.events;
    band.first_column = column;
    const auto after = std::lower_bound(events.begin() + column, events.end(),
                                        memory_->allocations.release(block));
    band.last_column = static_cast<uint32_t>(after - events.begin()) - 1;
    out_->bands.push_back(band);
  }

  // Nobody knows the age of blocks that are older than the history: as in PyTorch's page, the ones
  // that are freed last are at the bottom, and of those that stay the one with the highest address.
  bool is_older(uint32_t a, uint32_t b) const {
    const AllocationColumns& blocks = memory_->allocations;
    if (!blocks.seeded(a) || !blocks.seeded(b)) return a < b;
    return std::tuple(blocks.death(b), blocks.address(b)) <
           std::tuple(blocks.death(a), blocks.address(a));
  }

  void sort_blocks() {
    std::vector<StackBand>& bands = out_->bands;
    // Many events share a time: then the one that lives through more of them is below.
    const auto life = [&](const StackBand& b) {
      const AllocationColumns& blocks = memory_->allocations;
      const auto in = [&](LifeUnit unit) {
        return life_of(*memory_, blocks.birth(b.block), blocks.release(b.block), unit);
      };
      return std::tuple(in(options_->life), in(LifeUnit::kEvents), bytes_of(b));
    };
    std::stable_sort(bands.begin(), bands.end(), [&](const StackBand& a, const StackBand& b) {
      if (options_->by_group && a.group != b.group) return a.group < b.group;
      if (options_->order == BandOrder::kBirth) return is_older(a.block, b.block);
      return std::tuple(life(b), a.block) < std::tuple(life(a), b.block);
    });
    begin_at_.resize(bands.size());
    std::iota(begin_at_.begin(), begin_at_.end(), 0U);
    std::stable_sort(begin_at_.begin(), begin_at_.end(), [&](uint32_t a, uint32_t b) {
      return bands[a].first_column < bands[b].first_column;
    });
  }

  uint64_t rest_of(const GroupTotals::Reader& reader, uint32_t group) const {
    const uint64_t height = height_of(reader, group);
    return height - std::min(alone_[group], height);
  }

  // How the summed blocks of a group change over the columns.
  struct Course {
    uint64_t last = 0;
    uint64_t highest = 0;
    uint64_t fallen = 0;
    std::array<uint32_t, 65> reached{};  // the first column with so many bits

    static size_t bits_of(uint64_t bytes) { return static_cast<size_t>(std::bit_width(bytes)); }

    void go_on(uint64_t bytes, uint32_t column) {
      for (size_t bits = bits_of(highest); bits < bits_of(bytes);) reached[++bits] = column;
      fallen += last - std::min(bytes, last);
      highest = std::max(highest, bytes);
      last = bytes;
    }
    // It only grows: all its falls together are a small part of its height.
    bool stays() const { return fallen <= highest / 4; }
    // The column from which on it matters: it has about an eighth of its height.
    uint32_t begin() const { return reached[std::max<size_t>(bits_of(highest), 3) - 3]; }
  };

  // The first block that is above what begins in this column. What has been there from the first
  // column on is below all.
  uint32_t first_above(uint32_t column) const {
    if (column == 0) return 0;
    const uint32_t life = out_->count() - column;
    const auto is_above = [&](const StackBand& band) {
      return options_->order == BandOrder::kBirth ? band.first_column > column
                                                  : band.last_column - band.first_column < life;
    };
    const auto found = std::find_if(out_->bands.begin(), out_->bands.end(), is_above);
    return static_cast<uint32_t>(found - out_->bands.begin());
  }

  void place_small_blocks() {
    for (uint32_t of_class = 0; of_class < small_->classes(); ++of_class) {
      const auto above =
          std::partition_point(out_->bands.begin(), out_->bands.end(), [&](const StackBand& band) {
            return stacking_key(*memory_, band.block, *options_) < small_->end_of(of_class);
          });
      first_above_.push_back(static_cast<uint32_t>(above - out_->bands.begin()));
    }
    for (uint32_t g = 0; g < groups_->count; ++g) stays_[g] = shown_[g];
  }

  void find_rests_that_stay() {
    std::vector<Course> courses(groups_->count);
    GroupTotals::Reader reader(*totals_);
    for (uint32_t c = 0; c < out_->count(); ++c) {
      if (out_->samples.events[c] == kNoSample) continue;
      reader.move_to(out_->samples.events[c]);
      move_blocks(c);
      for (uint32_t g = 0; g < groups_->count; ++g) courses[g].go_on(rest_of(reader, g), c);
    }
    for (uint32_t g = 0; g < groups_->count; ++g) {
      stays_[g] = courses[g].stays() && shown_[g] && !hidden(g);
      if (stays_[g]) staying_.emplace_back(first_above(courses[g].begin()), g);
    }
    std::sort(staying_.begin(), staying_.end());
    active_.clear();
    next_ = 0;
    std::fill(alone_.begin(), alone_.end(), 0);
  }

  void add_group_bands() {
    const auto add = [&](BandKind kind, uint32_t group) {
      StackBand band;
      band.kind = kind;
      band.group = group;
      out_->bands.push_back(band);
    };
    first_rest_ = static_cast<uint32_t>(out_->bands.size());
    for (uint32_t of_class = 0; of_class < (small_ ? small_->classes() : 1); ++of_class) {
      for (uint32_t g = 0; g < groups_->count; ++g) {
        add(BandKind::kRest, g);
        if (!small_) continue;
        out_->bands.back().first_key = small_->first_of(of_class);
        out_->bands.back().end_key = small_->end_of(of_class);
      }
    }
    first_free_ = static_cast<uint32_t>(out_->bands.size());
    if (groups_->are_segments()) {
      for (uint32_t g = 0; g < groups_->count; ++g) add(BandKind::kFree, g);
    }
    others_ = static_cast<uint32_t>(out_->bands.size());
    add(BandKind::kOthers, groups_->count);
    add(BandKind::kPending, groups_->count);
  }

  uint64_t bytes_of(const StackBand& band) const {
    return memory_->allocations.block_bytes(band.block);
  }

  // The blocks of the column, from the bottom.
  void move_blocks(uint32_t column) {
    std::erase_if(active_, [&](uint32_t b) {
      const StackBand& band = out_->bands[b];
      if (band.last_column >= column) return false;
      alone_[band.group] -= bytes_of(band);
      return true;
    });
    const auto middle = static_cast<std::ptrdiff_t>(active_.size());
    for (; next_ < begin_at_.size() && out_->bands[begin_at_[next_]].first_column == column;
         ++next_) {
      const StackBand& band = out_->bands[begin_at_[next_]];
      alone_[band.group] += bytes_of(band);
      active_.push_back(begin_at_[next_]);
    }
    std::sort(active_.begin() + middle, active_.end());
    std::inplace_merge(active_.begin(), active_.begin() + middle, active_.end());
  }

  void put(uint32_t band, uint64_t bytes) {
    if (bytes == 0) return;
    const uint64_t begin = at_;
    at_ += bytes;
    if (at_ <= options_->bottom_bytes || begin >= options_->top_bytes) return;
    if (out_->slice_ends.size() == out_->starts.back()) out_->base.back() = begin;
    out_->slice_bands.push_back(band);
    out_->slice_ends.push_back(at_);
  }

  // What has no band of its own.
  void put_rest(uint32_t group, const GroupTotals::Reader& reader) {
    if (groups_->are_segments()) {
      const uint64_t height = height_of(reader, group);
      const uint64_t used = std::min(reader.bytes(group), height);
      put(first_rest_ + group, used);
      put(first_free_ + group, height - used);
    } else {
      put(first_rest_ + group, rest_of(reader, group));
    }
  }

  void put_small(uint32_t of_class) {
    for (const uint32_t group : small_->order_of(of_class)) {
      if (!shown_[group]) continue;
      put(first_rest_ + of_class * groups_->count + group, small_->bytes(of_class, group));
    }
  }

  void add_column(uint32_t column, GroupTotals::Reader& reader) {
    const uint32_t event = out_->samples.events[column];
    const bool same = column > 0 && event == out_->samples.events[column - 1];
    out_->base.push_back(0);
    if (small_) small_->enter(column);
    if (event != kNoSample && same) {
      copy_last();
    } else if (event != kNoSample) {
      at_ = 0;
      reader.move_to(event);
      if (has_few_groups()) note_highest(reader);
      move_blocks(column);
      put_all(event, reader);
      out_->highest = std::max(out_->highest, at_);
    }
    out_->starts.push_back(static_cast<uint32_t>(out_->slice_ends.size()));
  }

  void copy_last() {
    out_->base.back() = out_->base[out_->base.size() - 2];
    const uint32_t end = out_->starts.back();
    for (uint32_t k = out_->starts[out_->starts.size() - 2]; k < end; ++k) {
      out_->slice_bands.push_back(out_->slice_bands[k]);
      out_->slice_ends.push_back(out_->slice_ends[k]);
    }
  }

  void put_all(uint32_t event, const GroupTotals::Reader& reader) {
    size_t next = 0;
    uint64_t others = 0;
    const auto put_block = [&](uint32_t band) { put(band, bytes_of(out_->bands[band])); };
    if (!options_->by_group) {
      const auto put_blocks_below = [&](uint32_t band) {
        for (; next < active_.size() && active_[next] < band; ++next) put_block(active_[next]);
      };
      for (uint32_t of_class = 0; of_class < first_above_.size(); ++of_class) {
        put_blocks_below(first_above_[of_class]);
        put_small(of_class);
      }
      for (const auto& [above, group] : staying_) {
        put_blocks_below(above);
        put_rest(group, reader);
      }
      for (; next < active_.size(); ++next) put_block(active_[next]);
    }
    for (uint32_t g = 0; g < groups_->count; ++g) {
      if (hidden(g) || stays_[g]) continue;
      if (options_->by_group) {
        for (; next < active_.size() && out_->bands[active_[next]].group == g; ++next) {
          put_block(active_[next]);
        }
      }
      if (shown_[g]) {
        put_rest(g, reader);
      } else {
        others += height_of(reader, g);
      }
    }
    put(others_, others);
    if (!options_->pending) return;
    const MemoryTotals all = memory_->totals_after(event);
    put(others_ + 1, all.active - std::min(all.allocated, all.active));
  }

  const AllocationHistory* memory_;
  const LifeTree* lives_;
  const BlockGroups* groups_;
  const GroupTotals* totals_;
  const StackOptions* options_;
  StackedColumns* out_;
  std::vector<bool> shown_;                             // groups with bands
  std::vector<bool> stays_;                             // groups whose rest is among the blocks
  std::vector<std::pair<uint32_t, uint32_t>> staying_;  // the first band above it, and the group
  std::vector<uint32_t> begin_at_;                      // blocks by their first column
  std::optional<SmallBlocks> small_;
  std::vector<uint32_t> first_above_;  // of each class of them: the first band above it
  size_t next_ = 0;                    // in begin_at_
  std::vector<uint32_t> active_;       // bands of blocks, in stacking order
  std::vector<uint64_t> alone_;        // bytes of a group's blocks that have bands
  uint32_t first_rest_ = 0;
  uint32_t first_free_ = 0;
  uint32_t others_ = 0;
  uint64_t at_ = 0;
};

}  // namespace

uint64_t life_of(const AllocationHistory& memory, uint32_t birth, uint32_t release, LifeUnit unit) {
  const uint32_t count = memory.event_count();
  if (unit == LifeUnit::kEvents) return std::min(release, count) - birth;
  return static_cast<uint64_t>(memory.time_ns[std::min(release, count - 1)] -
                               memory.time_ns[birth]);
}

uint64_t stacking_key(const AllocationHistory& memory, uint32_t block,
                      const StackOptions& options) {
  if (options.order == BandOrder::kBirth) return block;
  const AllocationColumns& blocks = memory.allocations;
  const uint64_t longest = life_of(memory, 0, kNever, options.life);
  const uint64_t life = life_of(memory, blocks.birth(block), blocks.release(block), options.life);
  return longest - std::min(life, longest);
}

std::optional<uint32_t> block_in_rest(const AllocationHistory& memory, const LifeTree& lives,
                                      const BlockGroups& groups, const StackOptions& options,
                                      const StackBand& rest, uint32_t event, uint64_t bytes) {
  std::vector<std::pair<uint64_t, uint32_t>> found;  // key, block
  lives.visit(0, lives.born_by(event), 1, event, [&](uint32_t block) {
    if (groups.of(memory, block) != rest.group) return;
    const bool alone =
        options.blocks_alone && memory.allocations.block_bytes(block) >= options.least_bytes;
    const uint64_t key = stacking_key(memory, block, options);
    if (!alone && key >= rest.first_key && key < rest.end_key) found.emplace_back(key, block);
  });
  std::sort(found.begin(), found.end());
  uint64_t at = 0;
  for (const auto& [key, block] : found) {
    at += memory.allocations.block_bytes(block);
    if (bytes < at) return block;
  }
  return std::nullopt;
}

uint32_t StackedColumns::slice_at(uint32_t column, uint64_t bytes) const {
  const auto first = slice_ends.begin() + starts[column];
  const auto last = slice_ends.begin() + starts[column + 1];
  const auto found = std::upper_bound(first, last, bytes);
  if (found == last || bytes < base[column]) return kNothing;
  return static_cast<uint32_t>(found - slice_ends.begin());
}

uint32_t StackedColumns::slice_of(uint32_t column, uint32_t band) const {
  for (uint32_t k = starts[column]; k < starts[column + 1]; ++k) {
    if (slice_bands[k] == band) return k;
  }
  return kNothing;
}

StackedColumns stack_columns(const AllocationHistory& memory, const LifeTree& lives,
                             const BlockGroups& groups, const GroupTotals& totals,
                             ColumnSamples samples, const StackOptions& options) {
  StackedColumns out;
  out.options = options;
  out.samples = std::move(samples);
  StackBuilder(memory, lives, groups, totals, options, out).build();
  return out;
}

}  // namespace tidemark
