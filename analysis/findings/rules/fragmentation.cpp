// Enough bytes were free, but in holes: none was large enough, or they merely take up the card.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/findings/advice.h"
#include "analysis/findings/causes/accumulations.h"
#include "analysis/findings/causes/failed_for_holes.h"
#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/insight/fragmentation.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{256} << 20;

bool is_much(uint64_t lost, uint64_t reserved) {
  return lost >= kWorthSaying && lost >= reserved / 7;
}

// Whether a setting avoids as much as holes must take to count: no other note about them helps.
bool has_remedy(const DeviceEvidence& d, size_t devices) {
  const std::optional<Advice> settings = change_allocator(d, devices);
  return settings && is_much(settings->saves_bytes, d.model->reserved_peak.bytes);
}

// Also where there is room: more is lost than used, and another setting avoids much of it.
bool is_wasteful(const DeviceEvidence& d, const MemoryState& state, size_t devices) {
  constexpr uint64_t kVeryMuch = uint64_t{1} << 30;
  if (state.free_bytes() < kVeryMuch) return false;
  if (state.free_bytes() <= state.totals.active) return false;
  const std::optional<Advice> settings = change_allocator(d, devices);
  const uint64_t much = d.model->reserved_peak.bytes / (d.limit.is_known() ? 2 : 4);
  return settings && settings->saves_bytes >= much;
}

// Segments without any block: the allocator reuses them, and can give them back to the driver.
struct EmptySegments {
  uint64_t bytes = 0;
  uint64_t older_bytes = 0;  // reserved before the history began

  bool are_most_of(const MemoryState& state) const { return 2 * bytes >= state.free_bytes(); }
};

EmptySegments empty_segments(const DeviceEvidence& d, const MemoryState& state) {
  EmptySegments empty;
  for (const Hole& hole : state.holes) {
    const SegmentRange& segment = state.segments[hole.segment];
    const SegmentChange& reserved = d.model->segment_changes[segment.change];
    if (hole.size_bytes != segment.size_bytes || reserved.pool != 0) continue;
    empty.bytes += hole.size_bytes;
    if (reserved.seeded) empty.older_bytes += hole.size_bytes;
  }
  return empty;
}

std::string where_it_is(const MemoryState& state, const EmptySegments& empty) {
  const std::string free = size_text(state.free_bytes());
  if (!empty.are_most_of(state)) return free + " is in holes";
  const bool older = 2 * empty.older_bytes > empty.bytes;
  const std::string bytes = size_text(empty.bytes);
  return fmt::format("{} is free, {} in segments without any block{}", free,
                     bytes == free ? "all of it" : bytes + " of it",
                     older ? ", most of them left from before the recording began" : "");
}

Advice give_back(const EmptySegments& empty) {
  return {"empty_cache",
          fmt::format("PyTorch uses whole free segments again for requests that fit into them; "
                      "where others need the memory, torch.cuda.empty_cache() gives {} back",
                      size_text(empty.bytes)),
          0};
}

std::string summary_of(const DeviceEvidence& d, const MemoryState& state,
                       std::string_view instant) {
  if (!d.ran_out()) {
    // Little may be in use where most is reserved, as between training and validation.
    const uint64_t used = state.totals.active;
    const std::string most =
        d.peak_bytes() <= used + used / 10
            ? ""
            : fmt::format(" ({} at the allocated peak)", size_text(d.peak_bytes()));
    return fmt::format("{} reserved at the {} for {} in use{}: {}",
                       size_text(state.totals.reserved), instant, size_text(used), most,
                       where_it_is(state, empty_segments(d, state)));
  }
  const FailedAllocation& failure = d.model->failures.back();
  const std::string failed = d.out_of_memory_text();
  const std::string free = size_text(state.free_bytes());
  const std::string request = size_text(failure.requested_bytes);
  const UsableHoles usable = usable_holes(*d.model, state, failure);
  if (state.free_bytes() < failure.requested_bytes) {
    return fmt::format(
        "{} although {} in use and {} requested fit below {}: {} of it is lost to holes", failed,
        size_text(state.totals.active), request, size_text(d.limit.bytes), free);
  }
  if (usable.bytes == 0) {
    return fmt::format(
        "{} with {} free in holes of other streams and pools, which a request of {} cannot use",
        failed, free, request);
  }
  if (usable.largest_bytes >= failure.requested_bytes) {
    return fmt::format("{} with {} free in holes, none of which was used for {}", failed, free,
                       request);
  }
  const bool some = usable.bytes < state.free_bytes();
  const auto [largest, wanted] = size_texts(usable.largest_bytes, failure.requested_bytes);
  return fmt::format("{} with {} free in holes: the largest{}, {}, is too small for {}", failed,
                     free, some ? " that the request can use" : "", largest, wanted);
}

bool is_working_memory(Category category) {
  return category == Category::kActivation || category == Category::kGradient ||
         category == Category::kInput || category == Category::kTemporary;
}

// Whether a block outlives the step that runs at an event: it is older than the step, or of a kind
// that stays.
bool outlives_running_step(const DeviceEvidence& d, uint32_t row, uint32_t event) {
  const auto& boundaries = d.steps.boundaries;
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  if (next != boundaries.begin() && d.model->allocations.birth(row) < *std::prev(next)) return true;
  const Category category = d.categories.of[row];
  // What a program that ran out would have done with an unknown block is not known, unless it is
  // old.
  if (category == Category::kUnknown) {
    return !d.ran_out() || d.model->allocations.birth(row) < event / 2;
  }
  return !is_working_memory(category);
}

// Whether the blocks of a line that are alive could have been allocated before the memory that they
// keep from being freed: not if they came first already, nor states, which the optimizer creates
// where it needs them.
class Movable {
 public:
  Movable(const DeviceEvidence& d, const MemoryState& state) : d_(d) {
    for (const Allocation& a : d.model->allocations) {
      if (a.birth > state.event) break;  // in order of birth
      if (a.release > state.event) {
        first_.emplace(a.stack, a.birth);
      } else if (first_freed_ == kNever) {
        first_freed_ = a.birth;
      }
    }
  }

  bool operator()(uint32_t stack) const {
    const StackRole role = d_.roles->of(stack);
    if (role == StackRole::kOptimizer || role == StackRole::kOptimizerInit) return false;
    const auto first = first_.find(stack);
    return first != first_.end() && first->second >= first_freed_;
  }

 private:
  const DeviceEvidence& d_;
  uint32_t first_freed_ = kNever;
  std::unordered_map<uint32_t, uint32_t> first_;  // birth of the first block alive, by stack
};

// Holes by the line to blame for them.
struct HolesByLine {
  uint64_t stuck_bytes = 0;                          // beside blocks that stay
  std::unordered_map<uint32_t, uint64_t> of_pins;    // by the stack of such a block
  std::unordered_map<uint32_t, uint64_t> of_makers;  // the others, by who had the segment reserved

  // Lines that are to blame for less are not worth a word.
  void leave_out_below(uint64_t bytes) {
    std::erase_if(of_pins, [bytes](const auto& line) { return line.second < bytes; });
    std::erase_if(of_makers, [bytes](const auto& line) { return line.second < bytes; });
  }
};

// Holes beside blocks that stay: nothing returns them to the driver, and requests that need more
// cannot use them. Those beside working memory are gone with it: they are there because its sizes
// differ.
HolesByLine holes_by_line(const DeviceEvidence& d, const MemoryState& state) {
  HolesByLine holes;
  if (d.model->allocations.empty()) return holes;  // there may be segments only
  // Programs free what they keep after their last request, or after an error.
  const uint32_t end = d.model->event_count();
  const size_t last_made = d.model->allocations.size() - 1;
  const uint32_t last = d.ran_out() ? state.event : d.model->allocations.birth(last_made);
  const auto stays = [&](uint32_t row) {
    const Allocation& a = d.model->allocations[row];
    return a.release > last && std::min(a.release, end) - a.birth >= end / 4 &&
           outlives_running_step(d, row, state.event);
  };
  auto live = state.live.begin();
  for (size_t i = 0, hole = 0; i < state.segments.size(); ++i) {
    const SegmentRange& segment = state.segments[i];
    uint64_t free = 0;
    for (; hole < state.holes.size() && state.holes[hole].segment == i; ++hole) {
      free += state.holes[hole].size_bytes;
    }
    uint32_t stack = 0;
    for (; live != state.live.end(); ++live) {
      const Allocation& a = d.model->allocations[*live];
      if (a.address >= segment.address + segment.size_bytes) break;
      if (a.address >= segment.address && stays(*live)) stack = a.stack;
    }
    if (segment.expandable) continue;  // pages are unmapped one by one
    if (stack == 0) {
      holes.of_makers[d.model->segment_changes[segment.change].stack] += free;
      continue;
    }
    holes.stuck_bytes += free;
    holes.of_pins[stack] += free;
  }
  holes.of_makers.erase(0);
  return holes;
}

// Blocks of one line that are all there is in some segments. The allocator gives segments without
// any block back to the driver before a request fails: without these, it would have fitted.
struct Occupied {
  uint32_t stack = 0;  // of most of the bytes in them
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t segments = 0;
  uint64_t segment_bytes = 0;

  void add(const Occupied& other) {
    stack = other.stack;
    blocks += other.blocks;
    bytes += other.bytes;
    segments += other.segments;
    segment_bytes += other.segment_bytes;
  }
};

// Segments with hardly anything in them, none of which is working memory of the step.
std::vector<std::pair<size_t, Occupied>> hardly_used_segments(const DeviceEvidence& d,
                                                              const MemoryState& state) {
  constexpr uint64_t kHardlyAny = 4;  // one part in so many of the segment
  std::vector<std::pair<size_t, Occupied>> hardly_used;
  auto live = state.live.begin();
  for (size_t i = 0; i < state.segments.size(); ++i) {
    const SegmentRange& segment = state.segments[i];
    std::unordered_map<uint32_t, uint64_t> by_stack;
    Occupied found{0, 0, 0, 1, segment.size_bytes};
    bool works = false;
    for (; live != state.live.end(); ++live) {
      const Allocation& a = d.model->allocations[*live];
      if (a.address >= segment.address + segment.size_bytes) break;
      if (a.address < segment.address) continue;
      by_stack[a.stack] += a.block_bytes;
      ++found.blocks;
      found.bytes += a.block_bytes;
      works = works || is_working_memory(d.categories.of[*live]);
    }
    if (segment.expandable || works || found.blocks == 0) continue;
    if (found.bytes > segment.size_bytes / kHardlyAny) continue;
    found.stack = largest_stack(by_stack);
    hardly_used.emplace_back(i, found);
  }
  return hardly_used;
}

// The least that is in the way of the request that failed: blocks in one segment that is large
// enough for it, or in several that make room for another one when they are gone.
std::optional<Occupied> occupied_segments(const DeviceEvidence& d, const MemoryState& state,
                                          const Movable& is_movable) {
  const FailedAllocation& failure = d.model->failures.back();
  std::optional<Occupied> least;
  const auto compare = [&](const Occupied& found) {
    if (!least || found.bytes < least->bytes) least = found;
  };
  std::map<uint32_t, Occupied> by_stack;
  for (const auto& [i, found] : hardly_used_segments(d, state)) {
    if (!is_movable(found.stack)) continue;
    const SegmentRange& segment = state.segments[i];
    const uint32_t pool = d.model->segment_changes[segment.change].pool;
    const bool fits =
        segment.size_bytes >= failure.requested_bytes && segment.stream == failure.stream;
    if (fits && pool == failure.pool) compare(found);
    if (pool == 0) by_stack[found.stack].add(found);  // private ones are not given back
  }
  const uint64_t free = d.limit.bytes - std::min(d.limit.bytes, state.totals.reserved);
  for (const auto& [stack, found] : by_stack) {
    if (free + found.segment_bytes >= segment_bytes_for(failure.requested_bytes)) compare(found);
  }
  return least;
}

std::string occupied_text(const Occupied& pin, std::string_view place) {
  const std::string blocks =
      fmt::format("{} ({}) of {}", counted(pin.blocks, "block"), size_text(pin.bytes), place);
  const std::string_view keep = pin.blocks == 1 ? "keeps" : "keep";
  if (pin.segments == 1) {
    return fmt::format("; {} {} a segment of {} from being used for it", blocks, keep,
                       size_text(pin.segment_bytes));
  }
  return fmt::format("; {} {} {} segments with {} from being given back for it", blocks, keep,
                     pin.segments, size_text(pin.segment_bytes));
}

// Most of the holes lie among blocks of a line that were made together with what was freed beside
// them.
void name_survivors(Finding& f, const Dictionary& names, uint32_t stack, uint64_t holes) {
  f.frames = names.stack_text(stack);
  const std::string place = place_of(f.frames);
  f.summary +=
      fmt::format("; {} of the holes are beside blocks of {} that stay", size_text(holes), place);
  f.advice.push_back(
      {"group_lifetimes",
       fmt::format("allocate what {} makes in one tensor for all that is freed together (a pool of "
                   "slots for each group), or copy the blocks that stay into one piece before the "
                   "large request: each of them keeps a whole segment from being used",
                   place),
       0});
}

// Names the line whose blocks keep a segment, or most of the holes, from being used or, if none is
// to blame, the one that ran out. Else the line whose varying sizes made most of the holes.
void name_the_line(Finding& f, const DeviceEvidence& d, const MemoryState& state) {
  const Dictionary& names = d.process->names;
  const Movable is_movable(d, state);
  if (const auto pin = d.ran_out() ? occupied_segments(d, state, is_movable) : std::nullopt) {
    f.frames = names.stack_text(pin->stack);
    f.summary += occupied_text(*pin, place_of(f.frames));
    f.advice.push_back({"move_pins",
                        fmt::format("allocate what {} keeps before the large blocks come and go, "
                                    "or free it before the next one: what stays in the middle of "
                                    "a segment leaves only the pieces beside it",
                                    place_of(f.frames)),
                        0});
    return;
  }
  HolesByLine holes = holes_by_line(d, state);
  holes.leave_out_below(state.free_bytes() / 10);
  const uint32_t any = largest_stack(holes.of_pins);
  const uint64_t any_bytes = any == 0 ? 0 : holes.of_pins[any];
  std::erase_if(holes.of_pins, [&](const auto& pin) { return !is_movable(pin.first); });
  const uint32_t pin = largest_stack(holes.of_pins);
  if (d.ran_out() && pin == 0 && 2 * any_bytes >= state.free_bytes()) {
    return name_survivors(f, names, any, any_bytes);
  }
  // Where memory ran out, the line of the request says more, if it has one.
  const bool has_line =
      d.ran_out() && d.roles->of(d.model->failures.back().stack) != StackRole::kBackward;
  const auto is_of_library = [&](const auto& maker) {
    return !is_users_code(headline_of(names.stack_text(maker.first)));
  };
  if (!std::all_of(holes.of_makers.begin(), holes.of_makers.end(), is_of_library)) {
    std::erase_if(holes.of_makers, is_of_library);
  }
  const uint32_t maker = has_line ? 0 : largest_stack(holes.of_makers);
  if (pin == 0 || (maker != 0 && holes.of_makers[maker] > holes.of_pins[pin])) {
    const uint32_t failed = d.ran_out() ? d.model->failures.back().stack : any;
    f.frames = names.stack_text(maker != 0 ? maker : failed);
    return;
  }
  f.frames = names.stack_text(pin);
  f.advice.push_back(
      {"move_pins",
       fmt::format("allocate the long-lived blocks of {} first, in one piece: scattered among "
                   "short-lived blocks, they keep whole segments from being freed",
                   place_of(f.frames)),
       0});
}

}  // namespace

void find_fragmentation(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.model->event_count() == 0) continue;
    const uint64_t cost =
        d.model->reserved_peak.bytes - std::min(d.model->reserved_peak.bytes, d.peak_bytes());
    const HolesInstant worst = worst_for_holes(*d.model);
    if (!d.ran_out() && !is_much(cost, d.model->reserved_peak.bytes)) continue;
    const MemoryState state = state_after(*d.model, worst.event);
    const char* severity = nullptr;
    if (d.ran_out()) {
      if (failed_for_holes(d)) severity = kError;
    } else if (is_much(state.free_bytes(), state.totals.reserved)) {
      severity = d.is_tight() ? kWarning : kInfo;
    }
    if (severity == nullptr) continue;
    const bool stuck = holes_by_line(d, state).stuck_bytes >= d.model->reserved_peak.bytes / 5;
    if (d.has_room() && !stuck && !is_wasteful(d, state, evidence.devices.size())) continue;
    const bool scarce = severity != std::string_view(kInfo);
    if (!scarce && !stuck && !has_remedy(d, evidence.devices.size())) continue;
    Finding f = d.finding("fragmentation", severity, summary_of(d, state, worst.name));
    f.evidence = {{"cached_free_bytes", state.free_bytes()},
                  {"holes", state.holes.size()},
                  {"largest_hole_bytes", state.largest_hole_bytes()},
                  {"reserved_bytes", state.totals.reserved},
                  {"peak_cost_bytes", cost}};
    add(f.advice, change_allocator(d, evidence.devices.size()));
    if (const EmptySegments empty = empty_segments(d, state);
        !d.ran_out() && empty.are_most_of(state)) {
      f.advice.push_back(give_back(empty));
    }
    d.model->release_pages();  // its replays read all events, and there may be many ranks
    // Where nearly everything was in use, the next request will not fit, either.
    const bool other_cause = fails_for_what_was_left(d);
    if (d.ran_out() && !other_cause && state.totals.active >= d.limit.bytes / 10 * 9) {
      add(f.advice, halve_batch(d, passes_wait_for_one_backward(d)));
      add(f.advice, mixed_precision(d));
      add(f.advice, checkpoint_layers(d));
    }
    name_the_line(f, d, state);
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
