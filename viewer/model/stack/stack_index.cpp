#include "viewer/model/stack/stack_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/frame_text.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"

namespace tidemark::view {

namespace {

constexpr const char* kWays[kStackWays] = {"block",  "category", "line",  "owner",
                                           "stream", "segment",  "module"};

constexpr const char* kWaysPlural[kStackWays] = {"blocks",  "categories", "lines of code", "owners",
                                                 "streams", "segments",   "modules"};

// How long the bytes of a group live: the mean over the bytes it holds at all instants.
// Of a line that keeps some blocks and has many short ones beside them, those that stay count most.
class GroupLife {
 public:
  void add(uint64_t bytes, uint64_t length) {
    const auto life = static_cast<double>(length);
    held_ += static_cast<double>(bytes) * life;
    lived_ += static_cast<double>(bytes) * life * life;
  }
  void add(const GroupLife& other) {
    held_ += other.held_;
    lived_ += other.lived_;
  }
  // What stays is at the bottom, so that what comes and goes does not move it; of two that live as
  // long, the larger one.
  bool is_below(const GroupLife& other) const {
    return std::pair(mean(), held_) > std::pair(other.mean(), other.held_);
  }

 private:
  double mean() const { return held_ == 0 ? 0 : lived_ / held_; }

  double held_ = 0;   // bytes times time (or events)
  double lived_ = 0;  // bytes times its square
};

// The lives of each kind of block, and which blocks without a stack there are.
struct KindUse {
  std::vector<GroupLife> lives;
  bool unknown_stack = false;  // of a block that was allocated during the recording
};

KindUse use_of_kinds(const AllocationHistory& memory, LifeUnit unit) {
  const AllocationColumns& blocks = memory.allocations;
  KindUse use;
  use.lives.resize(blocks.kinds().size());
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    use.lives[blocks.kind(b)].add(blocks.block_bytes(b),
                                  life_of(memory, blocks.birth(b), blocks.release(b), unit));
    if (!use.unknown_stack && !blocks.seeded(b) && blocks.stack(b) == 0) use.unknown_stack = true;
  }
  return use;
}

// Groups by a name of each kind; the long-lived ones first, at the bottom.
template <typename NameOf>
void group_by_name(const AllocationHistory& memory, const KindUse& use, const NameOf& name_of,
                   StackIndex& out) {
  std::map<std::string, uint32_t> found;
  std::vector<GroupLife> lives;
  std::vector<uint32_t> of_kind;
  std::vector<std::string> names;
  const auto& kinds = memory.allocations.kinds();
  for (size_t k = 0; k < kinds.size(); ++k) {
    std::string name = name_of(kinds[k]);
    const auto [it, fresh] = found.try_emplace(name, static_cast<uint32_t>(names.size()));
    if (fresh) {
      names.push_back(std::move(name));
      lives.emplace_back();
    }
    lives[it->second].add(use.lives[k]);
    of_kind.push_back(it->second);
  }
  std::vector<uint32_t> order(names.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return lives[a].is_below(lives[b]); });
  std::vector<uint32_t> place(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    out.names.push_back(std::move(names[order[i]]));
  }
  for (uint32_t& group : of_kind) group = place[group];
  out.groups.of_kind = std::move(of_kind);
  out.groups.count = static_cast<uint32_t>(order.size());
}

// Groups by a key of each block, which has a name; the long-lived ones first.
template <typename KeyOf, typename NameOf>
void group_each_block(const AllocationHistory& memory, const KeyOf& key_of, const NameOf& name_of,
                      StackIndex& out) {
  std::map<decltype(key_of(0U, Allocation())), std::string> texts;
  std::map<std::string, GroupLife> lives;
  std::vector<const std::string*> of_block;
  for (uint32_t b = 0; b < memory.allocations.size(); ++b) {
    const Allocation a = memory.allocations[b];
    const auto [text, fresh] = texts.try_emplace(key_of(b, a));
    if (fresh) text->second = name_of(text->first);
    lives[text->second].add(a.block_bytes, life_of(memory, a.birth, a.release, out.life));
    of_block.push_back(&text->second);
  }
  for (const auto& [name, life] : lives) out.names.push_back(name);
  std::stable_sort(out.names.begin(), out.names.end(),
                   [&](const auto& a, const auto& b) { return lives.at(a).is_below(lives.at(b)); });
  std::map<std::string, uint32_t> place;
  for (const std::string& name : out.names)
    place.emplace(name, static_cast<uint32_t>(place.size()));
  for (const std::string* name : of_block) out.groups.of_block.push_back(place.at(*name));
  out.groups.count = static_cast<uint32_t>(place.size());
}

// Blocks of no nn.Module are one group.
void group_by_module(const ProcessModel& process, const AllocationHistory& memory,
                     StackIndex& out) {
  group_each_block(
      memory, [&](uint32_t, const Allocation& a) { return process.nn_module_of(a); },
      [&](uint32_t module) {
        const std::string text = process.names.nn_module_text(module);
        return text.empty() ? std::string("no module") : text;
      },
      out);
}

// Of each group of segments; 0: of none.
std::vector<uint32_t> pools_of(const AllocationHistory& memory, const BlockGroups& segments) {
  std::vector<uint32_t> pools(segments.count);
  for (size_t row = 0; row < memory.segment_changes.size(); ++row) {
    uint32_t& pool = pools[segments.of_change[row]];
    pool = std::max(pool, memory.segment_changes[row].pool);
  }
  return pools;
}

// Before torch 2.12, only segments say which private pool they are of.
void group_by_pool_and_stream(const AllocationHistory& memory, StackIndex& out) {
  const BlockGroups segments = segment_groups(memory);
  std::vector<uint32_t> pools = pools_of(memory, segments);
  pools.push_back(0);  // in no known segment
  group_each_block(
      memory,
      [&](uint32_t b, const Allocation& a) {
        return std::pair(a.stream, a.pool != 0 ? a.pool : pools[segments.of_block[b]]);
      },
      [](const std::pair<uint64_t, uint32_t>& of) { return stream_text(of.first, of.second); },
      out);
}

void group_blocks(const Model& model, const Lane& lane, bool categories_known, StackIndex& out) {
  const AllocationHistory& memory = *lane.memory;
  const Dictionary& names = model.process_of(lane).names;
  switch (out.by) {
    case StackBy::kBlock:
    case StackBy::kCategory:
      if (!categories_known) {
        out.groups = one_group(memory);
        out.names = {"all blocks"};
        out.colours = {category_colour(Category::kUnknown)};
        return;
      }
      out.groups = category_groups();
      out.are_categories = true;
      for (const Category c : kCategoryOrder) {
        out.names.push_back(in_words(category_name(c)));
        out.colours.push_back(category_colour(c));
      }
      return;
    case StackBy::kLine: {
      const FrameText text(names, model.text_of(lane).no_stack());
      const KindUse use = use_of_kinds(memory, out.life);
      group_by_name(
          memory, use,
          [&](const AllocationKind& k) {
            if (k.stack == 0 && !use.unknown_stack) return std::string(kBeforeRecordingText);
            return text.line(k.stack);
          },
          out);
      break;
    }
    case StackBy::kOwner:
      group_by_name(
          memory, use_of_kinds(memory, out.life),
          [&](const AllocationKind& k) {
            const std::string_view owner = names.string(k.metadata);
            return std::string(owner.empty() ? "unknown" : owner);
          },
          out);
      for (std::string& name : out.names) {
        out.colours.push_back(owner_colour(name));
        name = owner_title(name);
      }
      return;
    case StackBy::kStream:
      if (lane.private_pools) {
        group_by_pool_and_stream(memory, out);
        break;
      }
      group_by_name(
          memory, use_of_kinds(memory, out.life),
          [&](const AllocationKind& k) {
            // What cudaMalloc returns belongs to no stream.
            if (lane.of_driver && k.stream == 0)
              return std::string("no stream, or the default one");
            return stream_text(k.stream, k.pool);
          },
          out);
      break;
    case StackBy::kModule:
      group_by_module(model.process_of(lane), memory, out);
      break;
    case StackBy::kSegment: {
      out.groups = segment_groups(memory);
      std::vector<const SegmentChange*> first(out.groups.count);
      for (size_t row = 0; row < memory.segment_changes.size(); ++row) {
        const SegmentChange*& change = first[out.groups.of_change[row]];
        if (change == nullptr) change = &memory.segment_changes[row];
      }
      out.pools = pools_of(memory, out.groups);
      for (size_t g = 0; g < first.size(); ++g) {
        out.names.push_back(out.pools[g] == 0
                                ? fmt::format("segment {:#x}", first[g]->address)
                                : fmt::format("pool {}, {:#x}", out.pools[g], first[g]->address));
      }
      break;
    }
  }
  for (uint32_t g = 0; g < out.groups.count; ++g) out.colours.push_back(colour_in_order(g));
}

}  // namespace

const char* stack_way_name(StackBy by) {
  return kWays[static_cast<size_t>(by)];
}

const char* stack_way_plural(StackBy by) {
  return kWaysPlural[static_cast<size_t>(by)];
}

bool has_stack_way(const Model& model, const Lane& lane, StackBy by) {
  const auto& kinds = lane.memory->allocations.kinds();
  switch (by) {
    case StackBy::kBlock:
    case StackBy::kLine:
      return true;
    case StackBy::kCategory:
      return model.categories_known && !lane.of_driver;
    case StackBy::kOwner:
      return lane.of_driver && !lane.owners.empty();
    case StackBy::kStream:
      return lane.private_pools ||
             std::any_of(kinds.begin(), kinds.end(), [&](const AllocationKind& k) {
               return k.pool != kinds[0].pool || k.stream != kinds[0].stream;
             });
    case StackBy::kModule:
      return !lane.of_driver && model.process_of(lane).names.nn_module_count() != 0;
    case StackBy::kSegment:
      return !lane.of_driver && !lane.memory->segment_changes.empty();
  }
  return false;
}

StackBy nearest_stack_way(const Model& model, const Lane& lane, StackBy by) {
  if (has_stack_way(model, lane, by)) return by;
  const auto first = [&](StackBy nearest, StackBy other) {
    return has_stack_way(model, lane, nearest) ? nearest : other;
  };
  switch (by) {
    case StackBy::kCategory:
      return first(StackBy::kOwner, StackBy::kLine);
    case StackBy::kOwner:
      return first(StackBy::kCategory, StackBy::kLine);
    case StackBy::kModule:
      return StackBy::kLine;
    default:
      return StackBy::kBlock;
  }
}

std::string why_no_stack_way(const Model& model, const Lane& lane, StackBy by) {
  switch (by) {
    case StackBy::kCategory:
      if (lane.of_driver) return "What the driver allocated has no categories.";
      return model.report_ready ? "The categories of these blocks are not known."
                                : "The categories of these blocks are not known yet.";
    case StackBy::kOwner:
      return lane.of_driver ? "The trace does not say who owns these blocks."
                            : "All of these blocks belong to PyTorch.";
    case StackBy::kStream:
      return lane.of_driver ? "The driver allocated all of this on one stream or on none."
                            : "All of these blocks are of one stream.";
    case StackBy::kModule:
      return "The trace does not say which nn.Module these blocks belong to.";
    case StackBy::kSegment:
      return lane.of_driver ? "What the driver allocated is not divided into segments: every block "
                              "is an allocation of its own."
                            : "The trace has no segments here.";
    case StackBy::kBlock:
    case StackBy::kLine:
      break;
  }
  return "";
}

std::string StackIndex::title_of(uint32_t group) const {
  return are_categories ? category_text(*model, *lane, kCategoryOrder[group]) : names[group];
}

std::vector<bool> StackIndex::kinds_with(const std::string& wanted) const {
  const auto& kinds = memory().allocations.kinds();
  std::vector<bool> found(kinds.size(), true);
  if (wanted.empty()) return found;
  const FrameText text(model->process_of(*lane).names, model->text_of(*lane).no_stack());
  for (size_t k = 0; k < kinds.size(); ++k) found[k] = text.matches(kinds[k].stack, wanted);
  return found;
}

std::shared_ptr<const StackIndex> StackIndexes::get(const Model& model, uint32_t lane, StackBy by,
                                                    bool categories_known, LifeUnit life) {
  // The order of other groups does not depend on it.
  const bool by_life = by != StackBy::kBlock && by != StackBy::kCategory && by != StackBy::kSegment;
  if (!by_life) life = LifeUnit::kTime;
  std::shared_ptr<const LifeTree> lives;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->model != &model || it->lane != lane) continue;
      lives = it->index->lives;
      if (it->index->by != by || it->index->life != life ||
          it->categories_known != categories_known) {
        continue;
      }
      std::rotate(kept_.begin(), it, it + 1);
      return kept_.front().index;
    }
  }
  auto index = std::make_shared<StackIndex>();
  index->held = model.weak_from_this().lock();
  index->model = &model;
  index->lane = &model.lanes[lane];
  index->by = by;
  index->life = life;
  group_blocks(model, *index->lane, categories_known, *index);
  index->lives = lives != nullptr ? lives : std::make_shared<const LifeTree>(index->memory());
  index->totals = std::make_unique<const GroupTotals>(index->memory(), index->groups);
  const std::lock_guard lock(mutex_);
  kept_.insert(kept_.begin(), {&model, lane, categories_known, index});
  if (kept_.size() > kMost) kept_.pop_back();
  return index;
}

void StackIndexes::clear() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
}

}  // namespace tidemark::view
