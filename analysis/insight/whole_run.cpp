#include "analysis/insight/whole_run.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "analysis/insight/outside_history.h"
#include "analysis/steps/level_growth.h"
#include "analysis/steps/median.h"

namespace tidemark {

namespace {

constexpr size_t kParts = 48;

void join(RunPart& part, const RunPart& next) {
  part.end_ns = next.end_ns;
  part.lowest_bytes = std::min(part.lowest_bytes, next.lowest_bytes);
  part.highest_bytes = std::max(part.highest_bytes, next.highest_bytes);
  part.reserved_bytes = std::max(part.reserved_bytes, next.reserved_bytes);
  part.device_used_bytes = std::max(part.device_used_bytes, next.device_used_bytes);
  part.steps = std::max(part.steps, next.steps);
}

// A point is at the end of the time that it stands for: since the point before, which may be of
// another device, or since the recording began.
int64_t begin_of(const ProcessModel& process, const std::vector<Summary>& points) {
  const int64_t first = points[0].time_ns;
  int64_t begin = process.info.start_ns < first ? process.info.start_ns : 0;
  for (const Summary& point : process.summaries) {
    if (point.time_ns < first) begin = std::max(begin, point.time_ns);
  }
  if (begin != 0) return begin;
  // All stand for the same time, but those of the window's first instant, of a seal and of the end.
  std::vector<int64_t> periods;
  for (size_t i = 1; i < points.size(); ++i) {
    periods.push_back(points[i].time_ns - points[i - 1].time_ns);
  }
  return first - median(std::move(periods));
}

std::vector<RunPart> divide(const std::vector<Summary>& points, int64_t begin) {
  std::vector<RunPart> parts;
  const int64_t length = std::max<int64_t>(points.back().time_ns - begin, 1);
  size_t last = SIZE_MAX;
  int64_t before = begin;
  for (const Summary& point : points) {
    const RunPart one{before,
                      point.time_ns,
                      point.lowest_bytes,
                      point.highest_bytes,
                      point.reserved_bytes,
                      point.device_used_bytes,
                      point.steps};
    before = point.time_ns;
    const auto share = static_cast<double>(point.time_ns - begin) / static_cast<double>(length);
    const size_t number = std::min(static_cast<size_t>(share * kParts), kParts - 1);
    if (number == last) {
      join(parts.back(), one);
    } else {
      parts.push_back(one);
    }
    last = number;
  }
  return parts;
}

// Before its first step a program loads its model.
std::span<const RunPart> from_first_step(std::span<const RunPart> parts) {
  if (parts.back().steps == 0) return parts;
  const auto first =
      std::find_if(parts.begin(), parts.end(), [](const RunPart& part) { return part.steps != 0; });
  return parts.subspan(static_cast<size_t>(first - parts.begin()));
}

// The levels below which memory never fell again.
std::vector<uint64_t> floors_of(std::span<const RunPart> parts) {
  std::vector<uint64_t> floors(parts.size());
  uint64_t lowest = UINT64_MAX;
  for (size_t i = parts.size(); i-- > 0;) {
    floors[i] = lowest = std::min(lowest, parts[i].lowest_bytes);
  }
  return floors;
}

// A rise larger than any in the second half is not part of the steady growth: the program was
// creating its model, or a cache.
size_t steady_from(const std::vector<uint64_t>& floors, size_t first) {
  const size_t half = first + (floors.size() - first) / 2;
  uint64_t largest = 0;
  for (size_t i = half + 1; i < floors.size(); ++i) {
    largest = std::max(largest, floors[i] - floors[i - 1]);
  }
  for (size_t i = half; i > first; --i) {
    if (floors[i] - floors[i - 1] > 2 * largest) return i;
  }
  return first;
}

// The same shapes as within a recording (level_growth.h), and of an amount that matters. The first
// part creates the model; in the last one the program may be freeing it.
void measure_growth(std::span<const RunPart> parts, WholeRun& run) {
  constexpr size_t kLeastParts = 12;
  constexpr uint64_t kLeastGain = uint64_t{8} << 20;
  constexpr int64_t kLeastNs = 60'000'000'000;  // where no steps tell work from loading
  parts = from_first_step(parts);
  if (parts.size() < kLeastParts) return;
  parts = parts.subspan(1, parts.size() - 2);
  std::vector<uint64_t> lows;
  uint64_t highest = 0;
  for (const RunPart& part : parts) {
    lows.push_back(part.lowest_bytes);
    highest = std::max(highest, part.highest_bytes);
  }
  const std::optional<LevelGrowth> growth = find_growth(lows);
  if (!growth) return;
  const std::vector<uint64_t> floors = floors_of(parts);
  // find_growth() leaves the first two levels out, in case states are created there.
  const size_t first = steady_from(floors, growth->first_step <= 2 ? 0 : growth->first_step - 1);
  const size_t length = floors.size() - first;
  const uint64_t gained = floors.back() - floors[first];
  if (gained < std::max(kLeastGain, highest / 20) || length * 3 < floors.size()) return;
  // It goes on: of what it gained, the last third has its share.
  if (floors.back() - floors[floors.size() - 1 - length / 3] < gained / 6) return;
  const int64_t span = parts.back().end_ns - parts[first].end_ns;
  if (parts.back().steps == 0 && span < kLeastNs) return;
  run.gained_bytes = gained;
  run.grows_from_ns = parts[first].end_ns;
  run.grows_until_ns = parts.back().end_ns;
  run.steps = parts.back().steps - std::min(parts[first].steps, parts.back().steps);
}

void raise(Peak& peak, uint64_t bytes, const Summary& point) {
  if (bytes > peak.bytes) peak = {bytes, point.time_ns, 0};
}

// Of the window itself the events tell the peaks, and exactly. The first point behind its beginning
// may still tell of the time before.
void find_earlier_peaks(const ProcessModel& process, int64_t device, WholeRun& run) {
  const bool has_framework = process.framework_on(device) != nullptr;
  int64_t before_ns = INT64_MIN;  // the point before
  int64_t now_ns = INT64_MIN;
  for (const Summary& point : process.summaries) {
    if (point.time_ns != now_ns) before_ns = now_ns;
    now_ns = point.time_ns;
    if (before_ns > run.kept_from_ns) break;
    if (point.device == device) {
      raise(has_framework ? run.allocated_peak : run.driver_peak, point.highest_bytes, point);
      raise(run.reserved_peak, point.reserved_bytes, point);
      raise(run.device_used_peak, point.device_used_bytes, point);
    } else if (point.device == -1 - device) {
      raise(run.driver_peak, point.highest_bytes, point);
    }
  }
}

}  // namespace

// A killed process has no point of its last moments, but their events.
static void add_last_moments(const ProcessModel& process, int64_t device,
                             std::vector<Summary>& points) {
  const int64_t from_ns = points.back().time_ns;
  if (!process.was_killed() || process.last_ns <= from_ns) return;
  const AllocationHistory* const framework = process.framework_on(device);
  const AllocationHistory of_driver =
      framework != nullptr ? AllocationHistory() : history_of_driver(process.driver, device);
  const AllocationHistory& model = framework != nullptr ? *framework : of_driver;
  uint32_t event = 0;
  if (!model.state_event_at(from_ns, event)) return;
  Summary last = points.back();
  last.time_ns = process.last_ns;
  last.lowest_bytes = last.highest_bytes = model.totals_after(event).allocated;
  last.reserved_bytes = framework != nullptr ? model.totals_after(event).reserved : 0;
  for (++event; event < model.event_count(); ++event) {
    const MemoryTotals totals = model.totals_after(event);
    last.lowest_bytes = std::min(last.lowest_bytes, totals.allocated);
    last.highest_bytes = std::max(last.highest_bytes, totals.allocated);
    if (framework != nullptr) last.reserved_bytes = std::max(last.reserved_bytes, totals.reserved);
  }
  for (const Counter& c : process.counters) {
    if (c.device != device || c.kind != CounterKind::kDeviceUsed || c.time_ns < from_ns) continue;
    last.device_used_bytes = std::max(last.device_used_bytes, c.value);
  }
  points.push_back(last);
}

double WholeRun::bytes_per_ns() const {
  const int64_t span = grows_until_ns - grows_from_ns;
  return span <= 0 ? 0 : static_cast<double>(gained_bytes) / static_cast<double>(span);
}

std::vector<RunPart> thinned(const std::vector<RunPart>& parts, size_t most) {
  const size_t each = (parts.size() + most - 1) / most;
  std::vector<RunPart> fewer;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % each == 0) {
      fewer.push_back(parts[i]);
    } else {
      join(fewer.back(), parts[i]);
    }
  }
  return fewer;
}

WholeRun whole_run(const ProcessModel& process, int64_t device, int64_t until_ns) {
  WholeRun run;
  run.kept_from_ns = process.window.from_ns;
  if (!run.is_window()) return run;
  const auto errors = process.window.errors_before.find(device);
  if (errors != process.window.errors_before.end()) run.earlier_errors = errors->second;
  std::vector<Summary> points;
  for (const Summary& point : process.summaries) {
    if (point.device == device) points.push_back(point);
  }
  if (!points.empty()) add_last_moments(process, device, points);
  if (points.size() < 2) return run;
  find_earlier_peaks(process, device, run);
  run.points = points.size();
  const int64_t begin = begin_of(process, points);
  run.parts = divide(points, begin);
  const int64_t length = run.end_ns() - run.begin_ns();
  std::erase_if(points, [&](const Summary& point) { return point.time_ns > until_ns; });
  const bool dropped_much = run.kept_from_ns - run.begin_ns() >= length / 8;
  if (dropped_much && points.size() > 1) measure_growth(divide(points, begin), run);
  return run;
}

bool was_as_high(const ProcessModel& process, int64_t device, uint64_t bytes, int64_t span_ns) {
  int64_t before_ns = INT64_MIN;
  int64_t high_ns = 0;  // for so long
  for (const Summary& point : process.summaries) {
    if (point.device != device || point.time_ns > process.window.from_ns) continue;
    const int64_t length = before_ns == INT64_MIN ? 0 : point.time_ns - before_ns;
    before_ns = point.time_ns;
    high_ns = point.lowest_bytes >= bytes ? high_ns + length : 0;
    if (high_ns > span_ns) return true;
  }
  return false;
}

}  // namespace tidemark
