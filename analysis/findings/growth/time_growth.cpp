#include "analysis/findings/growth/time_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/findings/growth/growing_lines.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/growth/run_growth.h"
#include "analysis/findings/growth/shared_requests.h"
#include "analysis/history/minmax_pyramid.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kParts = 8;               // in each of which memory must rise
constexpr uint32_t kLeastBirths = 8 * 32;  // fewer tell nothing

bool sets_up(StackRole role) {
  return role == StackRole::kLoading || role == StackRole::kModuleSetUp;
}

// The first allocation after the model has been set up.
uint32_t first_of_work(const DeviceEvidence& d) {
  auto first = static_cast<uint32_t>(d.model->allocations.size());
  for (; first != 0; --first) {
    d.model->passed(first);
    const bool older = d.model->allocations.seeded(first - 1);
    if (older || sets_up(d.roles->of(d.model->allocations.stack(first - 1)))) break;
  }
  return first;
}

// The events of the work, or of the last part of it, in parts of equal length.
struct Span {
  uint32_t work = 0;  // row of the first allocation of the work
  uint32_t row = 0;   // and of the span
  uint32_t first = 0;
  uint32_t end = 0;

  size_t part_of(uint32_t event) const {
    return static_cast<size_t>(uint64_t{event - first} * kParts / (end - first));
  }
};

// Whether memory is higher in the last part than it was in the second, by all that is allocated:
// most runs are done with here, without a look at their events.
bool may_grow(const MinMaxPyramid& curves, const Span& span, uint64_t least_bytes) {
  const auto low_of = [&](uint64_t part) {
    const auto begin_of = [&](uint64_t p) {
      return span.first + static_cast<uint32_t>(p * (span.end - span.first) / kParts);
    };
    return curves.extremes(begin_of(part), begin_of(part + 1))
        .min[static_cast<size_t>(Curve::kAllocated)];
  };
  return low_of(kParts - 1) >= low_of(1) + least_bytes;
}

// The stacks that allocate all along. What others allocate, once or twice, is a pool or a state.
std::unordered_set<uint32_t> recurring_stacks(const AllocationHistory& model, const Span& span) {
  std::unordered_map<uint32_t, std::bitset<kParts>> parts;
  for (uint32_t i = span.row; i < model.allocations.size(); ++i) {
    const uint32_t birth = model.allocations.birth(i);
    if (birth >= span.end) break;
    parts[model.allocations.stack(i)].set(span.part_of(birth));
  }
  std::unordered_set<uint32_t> recurring;
  for (const auto& [stack, in] : parts) {
    if (in.count() >= kParts / 2) recurring.insert(stack);
  }
  return recurring;
}

// The lowest level in each part, and what it was freed and allocated by.
struct Part {
  uint64_t low_bytes = UINT64_MAX;
  uint32_t low_event = 0;
  uint64_t late_low_bytes = UINT64_MAX;  // in the last half of it
  uint64_t born_bytes = 0;
  uint64_t freed_bytes = 0;
};

std::vector<Part> parts_of(const AllocationHistory& model, const Span& span,
                           const std::unordered_set<uint32_t>& recurring) {
  std::vector<Part> parts(kParts);
  uint64_t level = span.first == 0 ? 0 : model.totals_after(span.first - 1).allocated;
  for (uint32_t e = span.first; e < span.end; ++e) {
    model.passed(e);
    Part& part = parts[span.part_of(e)];
    const uint32_t s = model.subject[e];
    const bool born = model.change[e] == Change::kBirth;
    if (born || model.change[e] == Change::kRelease) {
      const uint64_t bytes = model.allocations.block_bytes(s);
      // What is older than the work is part of the level.
      const bool counts =
          recurring.contains(model.allocations.stack(s)) || model.allocations.birth(s) < span.first;
      if (counts) {
        level = born ? level + bytes : level - bytes;
        (born ? part.born_bytes : part.freed_bytes) += bytes;
      }
    }
    if (level < part.low_bytes) {
      part.low_bytes = level;
      part.low_event = e;
    }
    if (uint64_t{e - span.first} * kParts * 2 / (span.end - span.first) % 2 != 0) {
      part.late_low_bytes = std::min(part.late_low_bytes, level);
    }
  }
  return parts;
}

struct Line {
  std::vector<uint32_t> lives;   // in events, of those that were freed
  std::vector<uint32_t> early;   // and of those that were freed before the span
  std::vector<uint32_t> freed;   // rows of those that were freed in the span
  std::vector<uint32_t> before;  // rows of those that were not: of the work, before the span
  std::vector<uint32_t> held;    // and in the span, or older than the history

  // How old a block becomes. A few that were freed late are no rule.
  static uint32_t most_of(std::vector<uint32_t>& lives) {
    if (lives.empty()) return 0;
    const auto long_one = lives.begin() + static_cast<ptrdiff_t>(lives.size() * 19 / 20);
    std::nth_element(lives.begin(), long_one, lives.end());
    return *long_one;
  }
  // A queue that is worked off too slowly from some moment on frees its blocks later and later: how
  // old they should become is known from the time before.
  bool has_early() const { return early.size() >= kParts; }
  uint32_t life() {
    const uint32_t all = most_of(lives);
    return has_early() ? std::min(all, 2 * most_of(early)) : all;
  }
};

std::map<uint32_t, Line> lines_of(const AllocationHistory& model, const Span& span,
                                  const std::unordered_set<uint32_t>& recurring) {
  const auto& blocks = model.allocations;
  std::map<uint32_t, Line> lines;
  for (uint32_t i = 0; i < blocks.size() && blocks.birth(i) < span.end; ++i) {
    if (!recurring.contains(blocks.stack(i))) continue;
    Line& line = lines[blocks.stack(i)];
    if (blocks.release(i) < span.end) {
      if (i < span.work) continue;
      line.lives.push_back(blocks.release(i) - blocks.birth(i));
      if (blocks.release(i) < span.first) {
        line.early.push_back(line.lives.back());
      } else {
        line.freed.push_back(i);
      }
    } else if (i >= span.row || blocks.seeded(i)) {
      line.held.push_back(i);
    } else if (i >= span.work) {
      line.before.push_back(i);
    }
  }
  return lines;
}

// Without stacks, what a program sets up is known by its sizes: they are not added to later.
void drop_set_up(const AllocationHistory& model, const Span& span, std::vector<uint32_t>& held) {
  const auto& blocks = model.allocations;
  const auto is_early = [&](uint32_t i) {
    return blocks.birth(i) < span.first || span.part_of(blocks.birth(i)) < kParts / 4;
  };
  std::unordered_set<uint64_t> sizes;
  for (const uint32_t i : held) {
    if (!is_early(i)) sizes.insert(blocks.asked_bytes(i));
  }
  std::erase_if(held,
                [&](uint32_t i) { return is_early(i) && !sizes.contains(blocks.asked_bytes(i)); });
}

// What is older than blocks of the same stack become that are freed, and is still added to: blocks
// of running requests are younger, and a cache that is full gets no more. Lines that leave blocks
// in the span left those before it as well. `last_part`: in which, or later, it must have been
// added to. Returns what is of the span.
uint64_t count_left(const AllocationHistory& model, const Span& span,
                    const std::unordered_set<uint32_t>& recurring, size_t last_part,
                    TimeGrowth& growth) {
  const auto& blocks = model.allocations;
  uint64_t of_span = 0;
  Rehearsal freed(model);
  for (auto& [stack, line] : lines_of(model, span, recurring)) {
    if (line.held.empty() || blocks.birth(line.held.back()) < span.first ||
        span.part_of(blocks.birth(line.held.back())) < last_part) {
      continue;
    }
    const uint32_t life = line.life();
    std::erase_if(line.held, [&](uint32_t i) { return span.end - blocks.birth(i) <= life; });
    if (stack == 0) drop_set_up(model, span, line.held);
    if (line.held.size() < kParts / 2) continue;
    for (const uint32_t i : line.held) of_span += blocks.block_bytes(i);
    if (stack != 0) {
      std::copy(line.before.begin(), line.before.end(), std::back_inserter(line.held));
    }
    LeftByStack left{stack, 0, line.held.size(),
                     *std::min_element(line.held.begin(), line.held.end())};
    for (const uint32_t i : line.held) {
      // What is older than the history was too old when it began.
      freed.leave_out_from(blocks[i], blocks.birth(i) + (blocks.seeded(i) ? 0 : life));
      left.bytes += blocks.block_bytes(i);
    }
    if (!line.has_early()) line.freed.clear();
    for (const uint32_t i : line.freed) freed.leave_out_from(blocks[i], blocks.birth(i) + life);
    growth.left.push_back(left);
  }
  std::sort(growth.left.begin(), growth.left.end(),
            [](const LeftByStack& a, const LeftByStack& b) { return a.bytes > b.bytes; });
  growth.saved_bytes = freed.saved_bytes();
  return of_span;
}

}  // namespace

uint64_t TimeGrowth::left_bytes() const {
  return std::accumulate(left.begin(), left.end(), uint64_t{0},
                         [](uint64_t sum, const LeftByStack& l) { return sum + l.bytes; });
}

uint64_t TimeGrowth::left_blocks() const {
  return std::accumulate(left.begin(), left.end(), uint64_t{0},
                         [](uint64_t sum, const LeftByStack& l) { return sum + l.blocks; });
}

namespace {

// Blocks of one stack that are alive.
struct Alive {
  double count = 0;
  double bytes = 0;
  double age_ns = 0;  // of all together

  void add(uint64_t block_bytes, int64_t age) {
    ++count;
    bytes += static_cast<double>(block_bytes);
    age_ns += static_cast<double>(age);
  }
};

// Whether memory grows because more blocks arrive. As many are alive as arrive in the time for
// which they live (Little's law): if they are not older than before, nothing is kept for longer. A
// cache of so many entries, or one block, grows with its sizes instead. `events`: in the middle and
// at the end, when least is in use.
bool more_arrive(const AllocationHistory& model, uint32_t first_row,
                 const std::array<uint32_t, 2>& events,
                 const std::unordered_set<uint32_t>& recurring) {
  const auto& blocks = model.allocations;
  if (model.time_ns[events[1]] == model.time_ns[events[0]]) return false;  // not recorded
  std::unordered_map<uint32_t, std::array<Alive, 2>> by_stack;
  for (uint32_t i = first_row; i < blocks.size() && blocks.birth(i) <= events[1]; ++i) {
    if (!recurring.contains(blocks.stack(i))) continue;
    auto& alive = by_stack[blocks.stack(i)];
    for (size_t k = 0; k < events.size(); ++k) {
      if (blocks.birth(i) > events[k] || blocks.release(i) <= events[k]) continue;
      alive[k].add(blocks.block_bytes(i),
                   model.time_ns[events[k]] - model.time_ns[blocks.birth(i)]);
    }
  }
  double gained = 0;
  double arrived = 0;
  for (const auto& [stack, alive] : by_stack) {
    const auto& [before, now] = alive;
    gained += std::max(0.0, now.bytes - before.bytes);
    const bool older = now.age_ns * before.count > 1.25 * before.age_ns * now.count;
    if (now.count > before.count && !older) {
      arrived += (now.count - before.count) * now.bytes / now.count;
    }
  }
  return arrived > gained / 2;
}

// Memory that rises in every part of the work.
std::optional<TimeGrowth> steady_growth(const DeviceEvidence& d, const Span& span,
                                        const std::unordered_set<uint32_t>& recurring,
                                        std::vector<Part> parts, uint64_t least_gain) {
  const Part last = parts.back();
  // A program that ends frees its model, too. If that stays, what is freed at the end was no leak.
  const uint32_t began = d.model->allocations.birth(span.work);
  const uint64_t before = began == 0 ? 0 : d.model->totals_after(began - 1).allocated;
  const uint64_t left = d.model->totals_after(d.model->event_count() - 1).allocated;
  if (before != 0 && left >= before) {
    parts.back().low_bytes = std::min(parts.back().low_bytes, left);
  }
  for (size_t i = kParts - 1; i-- > 0;) {
    parts[i].low_bytes = std::min(parts[i].low_bytes, parts[i + 1].low_bytes);
  }
  TimeGrowth growth;
  growth.risen_bytes = parts.back().low_bytes - parts.front().low_bytes;
  // The first requests are running in the first part already, and the last part grows to its end.
  growth.gained_bytes = (parts.back().low_bytes - parts[1].low_bytes) / (kParts - 2) * kParts;
  growth.saved_bytes = growth.gained_bytes;
  if (growth.gained_bytes < least_gain) return std::nullopt;
  size_t flat = 0;
  for (size_t i = 0; i < kParts; ++i) {
    // A program that only allocates is still being set up. One that works frees most of it.
    if (parts[i].freed_bytes < parts[i].born_bytes / 2) return std::nullopt;
    // Every part has its share: a cache that was filled has none at the end. Of what is left now
    // and then, one part may have none by chance.
    const uint64_t rise = i == 0 ? UINT64_MAX : parts[i].low_bytes - parts[i - 1].low_bytes;
    if (rise >= growth.gained_bytes / kParts / 4) continue;
    if (i + 1 == kParts || ++flat > 1) return std::nullopt;
  }
  if (more_arrive(*d.model, span.work, {parts[kParts / 2 - 1].low_event, last.low_event},
                  recurring)) {
    return std::nullopt;
  }
  TimeGrowth told = growth;
  const uint64_t left_in_span = count_left(*d.model, span, recurring, kParts - 1, told);
  if (left_in_span >= growth.gained_bytes / 2) return told;
  if (flat != 0) return std::nullopt;
  // Otherwise it is one block that is replaced by larger ones, for instance, up to the end; or a
  // cache that was full before.
  if (last.late_low_bytes < last.low_bytes + growth.gained_bytes / kParts / 8) return std::nullopt;
  return growth;
}

// Before an error, what is added in few large pieces counts as well: adapters that are loaded again
// without being dropped, say. Some parts of the work have none of them.
std::optional<TimeGrowth> growth_in_lumps(const DeviceEvidence& d, const Span& span,
                                          const std::unordered_set<uint32_t>& recurring,
                                          const std::vector<Part>& parts, uint64_t least_gain) {
  uint64_t born = 0;
  uint64_t freed = 0;
  for (const Part& part : parts) {
    born += part.born_bytes;
    freed += part.freed_bytes;
  }
  if (freed < born / 2) return std::nullopt;
  TimeGrowth growth;
  const uint64_t left_in_span = count_left(*d.model, span, recurring, kParts * 3 / 4, growth);
  if (left_in_span < least_gain || growth.saved_bytes < least_gain) return std::nullopt;
  growth.risen_bytes = growth.gained_bytes = growth.left_bytes();
  return growth;
}

}  // namespace

namespace {

// Growth from a row of the work on.
std::optional<TimeGrowth> growth_from(const DeviceEvidence& d, const MinMaxPyramid& curves,
                                      uint32_t work, uint32_t row) {
  constexpr uint64_t kLeastGain = uint64_t{8} << 20;
  if (row + kLeastBirths > d.model->allocations.size()) return std::nullopt;
  const Span span{work, row, d.model->allocations.birth(row), end_of_work(*d.model)};
  if (span.end < span.first + kLeastBirths) return std::nullopt;
  const uint64_t least_gain = std::max(kLeastGain, d.peak_bytes() / 20);
  if (!may_grow(curves, span, least_gain / kParts * (kParts - 2))) return std::nullopt;
  const std::unordered_set<uint32_t> recurring = recurring_stacks(*d.model, span);
  const std::vector<Part> parts = parts_of(*d.model, span, recurring);
  if (auto steady = steady_growth(d, span, recurring, parts, least_gain)) return steady;
  if (!d.ran_out() || d.categories.has_backward) return std::nullopt;
  return growth_in_lumps(d, span, recurring, parts, least_gain);
}

std::optional<TimeGrowth> find_growth(const DeviceEvidence& d) {
  constexpr uint32_t kBeginnings[] = {2, 4, 6, 7};  // eighths
  if (d.model == nullptr || (d.steps.count() != 0 && d.categories.has_backward)) {
    return std::nullopt;
  }
  const uint32_t work = first_of_work(d);
  const MinMaxPyramid curves(*d.model);
  if (auto growth = growth_from(d, curves, work, work)) return growth;
  if (d.categories.has_backward) return std::nullopt;
  // It may have begun late. A level that is higher for a while is not growth: blocks must be left.
  const auto rows = static_cast<uint32_t>(d.model->allocations.size()) - work;
  for (const uint32_t eighths : kBeginnings) {
    auto growth = growth_from(d, curves, work, work + rows / 8 * eighths);
    if (growth && !growth->left.empty()) return growth;
  }
  return std::nullopt;
}

// Layer after layer of a single forward pass adds what a graph keeps.
bool is_of_one_pass(const DeviceEvidence& d, const TimeGrowth& growth) {
  return !growth.left.empty() && d.roles != nullptr &&
         d.roles->of(growth.left.front().stack) == StackRole::kForward && calls_of_model(d) == 1;
}

}  // namespace

std::optional<TimeGrowth> growth_over_time(const DeviceEvidence& d) {
  std::optional<TimeGrowth> growth = find_growth(d);
  return growth && is_of_one_pass(d, *growth) ? std::nullopt : growth;
}

namespace {

// " (199.4 MiB), metrics.py:14 (52.5 MiB) and 2 other lines": who else leaves much of it.
std::string others_text(const DeviceEvidence& d, const TimeGrowth& growth) {
  constexpr size_t kNamed = 3;
  std::map<std::string, uint64_t> by_place;
  std::vector<std::string> places;  // in order of their first stack
  for (const LeftByStack& left : growth.left) {
    std::string place = place_of(d.process->names.stack_text(left.stack));
    if (!by_place.contains(place)) places.push_back(place);
    by_place[place] += left.bytes;
  }
  const uint64_t much = growth.left_bytes() / 20;
  std::erase_if(places, [&](const std::string& place) { return by_place[place] < much; });
  if (places.size() < 2) return {};
  std::string text = fmt::format(" ({})", size_text(by_place[places[0]]));
  for (size_t i = 1; i < std::min(places.size(), kNamed); ++i) {
    text += fmt::format(", {} ({})", places[i], size_text(by_place[places[i]]));
  }
  if (places.size() > kNamed)
    text += fmt::format(" and {}", counted(places.size() - kNamed, "other line"));
  return text;
}

// What may keep it: all variables of functions, or a view of a result of the model.
std::string how_it_is_left(const DeviceEvidence& d, const TimeGrowth& growth, uint32_t stack) {
  std::vector<std::vector<std::string>> stacks;
  for (const LeftByStack& left : growth.left) {
    if (left.bytes >= growth.left_bytes() / 100) {
      stacks.push_back(d.process->names.stack_text(left.stack));
    }
  }
  const std::string text = traceback_text(stacks);
  return text.empty() ? slice_text(d, stack) : text;
}

// When the first block was left by the line that leaves most.
std::string since_text(const DeviceEvidence& d, const LeftByStack& left) {
  const Allocation oldest = d.model->allocations[left.oldest];
  if (oldest.seeded) return "the first of them allocated before the recording began";
  return fmt::format("the first of them allocated {} after the recording began",
                     duration_text(oldest.birth_ns() - d.process->first_ns));
}

}  // namespace

Finding creep_over_time(const DeviceEvidence& d, const TimeGrowth& growth) {
  const std::string what_grew =
      growth.left.empty()
          ? fmt::format("what stays allocated rose by at least {} in the recording",
                        size_text(growth.risen_bytes))
          : fmt::format("{} in {} was never freed, {}", size_text(growth.left_bytes()),
                        counted(growth.left_blocks(), "block"), since_text(d, growth.left[0]));
  Finding f = d.finding("creep", d.ran_out() ? kError : kWarning,
                        fmt::format("memory grows: {}{}", what_grew,
                                    d.steps.count() == 0 ? " (the steps are not known)" : ""));
  f.evidence = {{"gained_bytes", growth.left.empty() ? growth.gained_bytes : growth.left_bytes()}};
  // A program that trains has no requests.
  const char* const unit = d.categories.has_backward ? "step" : "request";
  std::string what = fmt::format("what a finished {} leaves", unit);
  bool shared = false;
  StackGrowth line = growing_in_window(d);
  if (!growth.left.empty())
    line = {growth.left[0].stack, 0, growth.left[0].bytes, growth.left[0].blocks};
  if (line.stack != 0) {
    f.frames = d.process->names.stack_text(line.stack);
    f.evidence.emplace_back("held_bytes", line.held_bytes);
    f.evidence.emplace_back("held_blocks", line.held_count);
    if (!f.frames.empty()) {
      shared = !growth.left.empty() && requests_share_blocks(d, line.stack);
      what = fmt::format(
          "what {} allocates{} when {}", place_of(f.frames), others_text(d, growth),
          shared ? std::string(kNothingUsesIt) : fmt::format("its {} is finished", unit));
    }
  }
  const bool replaces = growth.left.empty() && !f.frames.empty() && replaces_its_block(d, line);
  const uint64_t saved = replaces ? saved_without(*d.model, line.stack) : growth.saved_bytes;
  f.advice.push_back(
      {"release_growth",
       fmt::format("{}: saves {} {}{}{}",
                   replaces ? advice_on_replacing(place_of(f.frames))
                            : fmt::format("free {}, or move it to host memory", what),
                   shared ? "up to" : "about", size_text(saved),
                   replaces || line.stack == 0 ? "" : how_it_is_left(d, growth, line.stack),
                   d.ran_out() ? "" : " (a cache that is still being filled looks the same)"),
       saved});
  return f;
}

}  // namespace tidemark
