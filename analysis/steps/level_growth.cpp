#include "analysis/steps/level_growth.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/steps/median.h"

namespace tidemark {

namespace {

// The median of the slopes between each value and the one about half the window after it: the
// Theil-Sen estimator on n / 2 pairs, which keeps its robustness in linear time. The distance is a
// multiple of the usual gap between rises, so that growth in every fourth step is not counted once
// too often or too seldom.
double robust_slope(const std::vector<double>& values, const std::vector<uint32_t>& rises) {
  std::vector<uint32_t> gaps;
  for (size_t i = 1; i < rises.size(); ++i) gaps.push_back(rises[i] - rises[i - 1]);
  const size_t gap = std::max<size_t>(median(std::move(gaps)), 1);
  const size_t distance = std::max(values.size() / 2 / gap, size_t{1}) * gap;
  std::vector<double> slopes;
  for (size_t i = 0; i + distance < values.size(); ++i) {
    slopes.push_back((values[i + distance] - values[i]) / static_cast<double>(distance));
  }
  return median(std::move(slopes));
}

// Steps after which memory never falls below a higher level again.
std::vector<uint32_t> rises_of(const std::vector<double>& floor) {
  std::vector<double> amounts;
  for (size_t i = 2; i < floor.size(); ++i) {  // states are created in the first step
    if (floor[i] > floor[i - 1]) amounts.push_back(floor[i] - floor[i - 1]);
  }
  std::vector<uint32_t> rises;
  if (amounts.empty()) return rises;
  const double least = median(std::move(amounts)) / 20;  // a list of numbers grows, too
  for (uint32_t i = 2; i < floor.size(); ++i) {
    if (floor[i] - floor[i - 1] >= least && floor[i] > floor[i - 1]) rises.push_back(i);
  }
  return rises;
}

// What happens once in several steps, as a validation, may begin in one step and end in the next:
// two rises that are one.
std::vector<uint32_t> without_halves(const std::vector<uint32_t>& rises) {
  constexpr size_t kMostSteps = 2;
  constexpr size_t kLeastRuns = 3;
  std::vector<uint32_t> firsts;  // of runs of rises in consecutive steps
  size_t length = 0;
  for (size_t i = 0; i < rises.size(); ++i) {
    length = i != 0 && rises[i] == rises[i - 1] + 1 ? length + 1 : 1;
    if (length > kMostSteps) return rises;
    if (length == 1) firsts.push_back(rises[i]);
  }
  return firsts.size() >= kLeastRuns ? firsts : rises;
}

// A level that goes up and down seems to rise at its end: long after the others, a rise of its own
// is none.
void drop_stragglers(std::vector<uint32_t>& rises) {
  constexpr size_t kLeast = 4;
  while (rises.size() >= kLeast) {
    uint32_t longest = 1;  // gap before the last one
    for (size_t i = 1; i + 1 < rises.size(); ++i) {
      longest = std::max(longest, rises[i] - rises[i - 1]);
    }
    if (rises.back() - rises[rises.size() - 2] <= 3 * longest) return;
    rises.pop_back();
  }
}

// The rises that belong to the last one: in every step, or once in each epoch. Empty if they ended
// long before the last step, as those of a cache that was filled.
std::vector<uint32_t> continued(std::vector<uint32_t> rises, uint32_t last_step) {
  drop_stragglers(rises);
  uint32_t longest = 1;
  size_t first = rises.empty() ? 0 : rises.size() - 1;
  while (first > 0) {
    const uint32_t gap = rises[first] - rises[first - 1];
    if (first + 1 < rises.size() && gap > 3 * longest) break;
    longest = std::max(longest, gap);
    --first;
  }
  if (rises.empty() || last_step - rises.back() > longest + longest / 2) return {};
  rises.erase(rises.begin(), rises.begin() + static_cast<std::ptrdiff_t>(first));
  return rises;
}

}  // namespace

std::optional<LevelGrowth> find_growth(const std::vector<uint64_t>& lows) {
  constexpr uint32_t kLeastRises = 3;
  constexpr uint32_t kManyRises = 8;
  const auto count = static_cast<uint32_t>(lows.size());
  if (count < 4) return std::nullopt;
  std::vector<double> floor(count);
  double lowest = std::numeric_limits<double>::max();
  for (uint32_t i = count; i-- > 0;) {
    lowest = std::min(lowest, static_cast<double>(lows[i]));
    floor[i] = lowest;
  }
  const std::vector<uint32_t> rises = continued(without_halves(rises_of(floor)), count - 1);
  if (rises.size() < kLeastRises) return std::nullopt;
  const uint32_t first = rises.front() - 1;
  const double gained = floor.back() - floor[first];
  // What began late must be plain to see.
  const bool is_plain = rises.size() >= kManyRises && gained * 5 >= floor.back();
  if (!is_plain && (count - first) * 3 < count) return std::nullopt;
  if (gained * 1000 < floor.back()) return std::nullopt;  // small blocks come and go
  // Levels that go up and down are not growth, nor is one that was as high before.
  std::vector<double> above;
  for (uint32_t i = first; i < count; ++i) {
    above.push_back(static_cast<double>(lows[i]) - floor[i]);
  }
  if (median(std::move(above)) * 4 > gained) return std::nullopt;
  for (uint32_t i = 0; i < first; ++i) {
    if (static_cast<double>(lows[i]) > floor.back() - gained / 4) return std::nullopt;
  }
  return LevelGrowth{
      first + 1,
      robust_slope({floor.begin() + static_cast<std::ptrdiff_t>(first), floor.end()}, rises)};
}

}  // namespace tidemark
