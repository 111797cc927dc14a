#include "analysis/findings/growth/run_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

uint32_t end_of_work(const AllocationHistory& model) {
  uint32_t end = model.event_count();
  if (!model.failures.empty()) end = std::min(end, model.failures.back().event + 1);
  while (end > model.seed_events && model.change[end - 1] != Change::kBirth) --end;
  return end;
}

namespace {

// The event at which least is allocated, in each quarter of the window.
std::vector<uint32_t> low_points(const AllocationHistory& model) {
  constexpr uint32_t kQuarters = 4;
  std::vector<uint32_t> lows;
  const uint32_t first = model.seed_events;
  const uint32_t count = end_of_work(model) - first;
  uint64_t level = first == 0 ? 0 : model.totals_after(first - 1).allocated;
  for (uint32_t quarter = 0; quarter < kQuarters; ++quarter) {
    const auto begin = static_cast<uint32_t>(uint64_t{count} * quarter / kQuarters) + first;
    const auto end = static_cast<uint32_t>(uint64_t{count} * (quarter + 1) / kQuarters) + first;
    uint64_t lowest = UINT64_MAX;
    uint32_t at = begin;
    for (uint32_t e = begin; e < end; ++e) {
      model.passed(e);
      const uint32_t s = model.subject[e];
      if (model.change[e] == Change::kBirth) level += model.allocations.block_bytes(s);
      if (model.change[e] == Change::kRelease) level -= model.allocations.block_bytes(s);
      if (level < lowest) {
        lowest = level;
        at = e;
      }
    }
    if (begin < end) lows.push_back(at);
  }
  return lows;
}

}  // namespace

StackGrowth growing_in_window(const DeviceEvidence& d) {
  StackGrowth most;
  if (d.model == nullptr) return most;
  struct Held {
    uint64_t first = 0;
    uint64_t bytes = 0;
    uint64_t count = 0;
    size_t lows = 0;   // at which it had as much as before or more
    size_t rises = 0;  // at which it had more
  };
  std::map<uint32_t, Held> held;
  const std::vector<uint32_t> lows = low_points(*d.model);
  for (size_t i = 0; i < lows.size(); ++i) {
    std::map<uint32_t, Held> now;
    const MemoryState state = state_after(*d.model, lows[i]);
    for (const uint32_t a : state.live) {
      if (state.is_pending(*d.model, a)) continue;
      Held& h = now[d.model->allocations.stack(a)];
      h.bytes += d.model->allocations.block_bytes(a);
      ++h.count;
    }
    for (const auto& [stack, h] : now) {
      Held& known = held[stack];
      if (i == 0) known.first = h.bytes;
      if (known.bytes == 0) known.lows = i;  // it had nothing before
      if (h.bytes < known.bytes || known.lows != i) continue;
      known.rises += i != 0 && h.bytes > known.bytes ? 1 : 0;
      known.bytes = h.bytes;
      known.count = h.count;
      ++known.lows;
    }
  }
  uint64_t gain = 0;
  for (const auto& [stack, h] : held) {
    // What is created once is not growth.
    if (stack == 0 || h.lows != lows.size() || h.rises < 2 || h.bytes - h.first <= gain) continue;
    gain = h.bytes - h.first;
    most = {stack, 0, h.bytes, h.count};
  }
  if (most.stack == 0 && !d.steps.growing.empty()) return d.steps.growing.front();
  return most;
}

namespace {

std::string time_until_full(const DeviceEvidence& d) {
  constexpr double kForeseeableNs = 30 * 86'400e9;
  if (d.limit.bytes == 0 || d.ran_out()) return {};
  const uint64_t high = d.run.parts.back().highest_bytes;
  const double rate = d.run.bytes_per_ns();
  const double left = static_cast<double>(d.limit.bytes - std::min(high, d.limit.bytes)) / rate;
  if (left > kForeseeableNs) return {};
  return fmt::format("; if it goes on like this, the card is full in about {}",
                     duration_text(static_cast<int64_t>(left)));
}

}  // namespace

Finding creep_of_run(const DeviceEvidence& d) {
  constexpr double kHourNs = 3.6e12;
  const WholeRun& run = d.run;
  const auto per_hour = static_cast<uint64_t>(run.bytes_per_ns() * kHourNs);
  const std::string per_step =
      run.steps == 0 ? "" : fmt::format(", {} per step", size_text(run.gained_bytes / run.steps));
  Finding f =
      d.finding("creep", d.ran_out() ? kError : kWarning,
                fmt::format("memory grew by {} over the last {} of the run ({} per hour{}){}",
                            size_text(run.gained_bytes),
                            duration_text(run.grows_until_ns - run.grows_from_ns),
                            size_text(per_hour), per_step, time_until_full(d)));
  f.evidence = {{"gained_bytes", run.gained_bytes},
                {"growth_bytes_per_hour", per_hour},
                {"grows_ns", static_cast<uint64_t>(run.grows_until_ns - run.grows_from_ns)}};
  if (run.steps != 0) {
    f.evidence.emplace_back("growth_bytes_per_step", run.gained_bytes / run.steps);
    f.evidence.emplace_back("steps", run.steps);
  }
  const StackGrowth line = growing_in_window(d);
  if (line.stack == 0) {
    f.advice.push_back({"keep_more",
                        "the window shows no line whose blocks become more: keep a longer one "
                        "(--keep), or record from the beginning",
                        0});
    return f;
  }
  f.frames = d.process->names.stack_text(line.stack);
  f.evidence.emplace_back("held_bytes", line.held_bytes);
  f.evidence.emplace_back("held_blocks", line.held_count);
  f.advice.push_back(
      {"release_growth",
       fmt::format("{} holds {} in {}, and they become more: keep only those that are still "
                   "needed, or move them to host memory",
                   f.frames.empty() ? "one line" : place_of(f.frames), size_text(line.held_bytes),
                   counted(line.held_count, "block")),
       std::min(line.held_bytes, run.gained_bytes)});
  return f;
}

}  // namespace tidemark
