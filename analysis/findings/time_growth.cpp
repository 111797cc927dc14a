#include "analysis/findings/time_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "analysis/findings/run_growth.h"
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

// A range of events, and the lowest level in it.
struct Part {
  uint32_t first = 0;
  uint32_t end = 0;
  uint64_t low_bytes = 0;
};

std::vector<Part> parts_of(const AllocationHistory& model, uint32_t first, uint32_t end) {
  const MinMaxPyramid curves(model);
  std::vector<Part> parts(kParts);
  for (size_t i = 0; i < kParts; ++i) {
    const auto begin_of = [&](size_t part) {
      return first + static_cast<uint32_t>((part * (end - first) + kParts - 1) / kParts);
    };
    const uint32_t begin = begin_of(i);
    const uint32_t next = begin_of(i + 1);
    const Extremes extremes = curves.extremes(begin, next);
    parts[i] = {begin, next, extremes.min[static_cast<size_t>(Curve::kAllocated)]};
  }
  return parts;
}

// Whether at least half of what each part allocates is freed in it: a program that only allocates
// is still being set up.
bool frees_most(const AllocationHistory& model, uint32_t row, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    uint64_t born_bytes = 0;
    for (; row < model.allocations.size() && model.allocations.birth(row) < part.end; ++row) {
      model.passed(row);
      born_bytes += model.allocations.block_bytes(row);
    }
    const uint64_t before = part.first == 0 ? 0 : model.totals_after(part.first - 1).allocated;
    const uint64_t freed_bytes = before + born_bytes - model.totals_after(part.end - 1).allocated;
    if (freed_bytes < born_bytes / 2) return false;
  }
  return true;
}

// What was allocated all along, and is older than blocks of the same stack become that are freed:
// those of running requests are younger, and what was allocated once is in one part alone.
void count_left(const AllocationHistory& model, uint32_t row, uint32_t end, TimeGrowth& growth) {
  struct Line {
    std::vector<uint32_t> lives;  // in events, of those that were freed
    std::vector<uint32_t> held;   // rows of those that were not
  };
  const auto& blocks = model.allocations;
  std::map<uint32_t, Line> lines;
  for (uint32_t i = row; i < blocks.size() && blocks.birth(i) < end; ++i) {
    Line& line = lines[blocks.stack(i)];
    if (blocks.release(i) < end) {
      line.lives.push_back(blocks.release(i) - blocks.birth(i));
    } else {
      line.held.push_back(i);
    }
  }
  const uint32_t first = blocks.birth(row);
  Rehearsal freed(model);
  for (auto& [stack, line] : lines) {
    uint32_t life = 0;
    if (!line.lives.empty()) {
      // A few that were freed late are no rule.
      const auto long_one =
          line.lives.begin() + static_cast<ptrdiff_t>(line.lives.size() * 19 / 20);
      std::nth_element(line.lives.begin(), long_one, line.lives.end());
      life = *long_one;
    }
    std::set<uint64_t> parts;
    std::erase_if(line.held, [&](uint32_t i) { return end - blocks.birth(i) <= life; });
    for (const uint32_t i : line.held) {
      parts.insert(uint64_t{blocks.birth(i) - first} * kParts / (end - first));
    }
    if (parts.size() < kParts / 2) continue;
    for (const uint32_t i : line.held) {
      freed.leave_out_from(blocks[i], blocks.birth(i) + life);
      growth.left_bytes += blocks.block_bytes(i);
      ++growth.left_blocks;
    }
  }
  growth.saved_bytes = freed.saved_bytes();
}

}  // namespace

std::optional<TimeGrowth> growth_over_time(const DeviceEvidence& d) {
  constexpr uint64_t kLeastGain = uint64_t{8} << 20;
  if (d.model == nullptr || (d.steps.count() != 0 && d.categories.has_backward)) {
    return std::nullopt;
  }
  const uint32_t row = first_of_work(d);
  if (row + kLeastBirths > d.model->allocations.size()) return std::nullopt;
  const uint32_t first = d.model->allocations.birth(row);
  const uint32_t end = end_of_work(*d.model);
  if (end < first + kLeastBirths) return std::nullopt;
  std::vector<Part> parts = parts_of(*d.model, first, end);
  // A program that ends frees its model, too. If that stays, what is freed at the end was no leak.
  const uint64_t before = first == 0 ? 0 : d.model->totals_after(first - 1).allocated;
  const uint64_t left = d.model->totals_after(d.model->event_count() - 1).allocated;
  if (before != 0 && left >= before) {
    parts.back().low_bytes = std::min(parts.back().low_bytes, left);
  }
  for (size_t i = kParts - 1; i-- > 0;) {
    parts[i].low_bytes = std::min(parts[i].low_bytes, parts[i + 1].low_bytes);
  }
  TimeGrowth growth{.from_bytes = parts.front().low_bytes, .to_bytes = parts.back().low_bytes};
  // The first requests are running in the first part already, and the last part grows to its end.
  growth.gained_bytes = (growth.to_bytes - parts[1].low_bytes) / (kParts - 2) * kParts;
  growth.saved_bytes = growth.gained_bytes;
  if (growth.gained_bytes < std::max(kLeastGain, d.peak_bytes() / 20)) return std::nullopt;
  // Every part has its share: a cache that was filled has none at the end.
  for (size_t i = 1; i < kParts; ++i) {
    const uint64_t rise = parts[i].low_bytes - parts[i - 1].low_bytes;
    if (rise < growth.gained_bytes / kParts / 4) return std::nullopt;
  }
  if (!frees_most(*d.model, row, parts)) return std::nullopt;
  TimeGrowth told = growth;
  count_left(*d.model, row, end, told);
  // Otherwise it is one block that is replaced by larger ones, for instance.
  return told.left_bytes < growth.gained_bytes / 2 ? growth : told;
}

Finding creep_over_time(const DeviceEvidence& d, const TimeGrowth& growth) {
  const std::string what_grew =
      growth.left_blocks != 0
          ? fmt::format("{} of what was allocated all along, {}, was never freed",
                        size_text(growth.left_bytes), counted(growth.left_blocks, "block"))
          : fmt::format("what stays allocated rose from {} to at least {} in the recording",
                        size_text(growth.from_bytes), size_text(growth.to_bytes));
  Finding f = d.finding("creep", d.ran_out() ? kError : kWarning,
                        fmt::format("memory grows: {}{}", what_grew,
                                    d.steps.count() == 0 ? " (the steps are not known)" : ""));
  f.evidence = {
      {"gained_bytes", growth.left_blocks != 0 ? growth.left_bytes : growth.gained_bytes}};
  const StackGrowth line = growing_in_window(d);
  // A program that trains has no requests.
  const char* const unit = d.categories.has_backward ? "step" : "request";
  std::string what = fmt::format("what a finished {} leaves", unit);
  if (line.stack != 0) {
    f.frames = d.process->names.stack_text(line.stack);
    f.evidence.emplace_back("held_bytes", line.held_bytes);
    f.evidence.emplace_back("held_blocks", line.held_count);
    if (!f.frames.empty()) {
      what = fmt::format("what {} allocates when its {} is finished", place_of(f.frames), unit);
    }
  }
  f.advice.push_back({"release_growth",
                      fmt::format("free {}, or move it to host memory: saves about {}{}", what,
                                  size_text(growth.saved_bytes),
                                  d.ran_out() ? ""
                                              : " (a cache that is still being filled looks "
                                                "the same)"),
                      growth.saved_bytes});
  return f;
}

}  // namespace tidemark
