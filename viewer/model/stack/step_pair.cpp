#include "viewer/model/stack/step_pair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tidemark::view {

namespace {

// High, low and growth of a step, in bytes. Not what is reserved: all steps until the highest one
// are below it, and all later ones are not.
using Traits = std::array<double, 3>;

Traits traits_of(const MinMaxPyramid& curves, uint32_t first, uint32_t last) {
  const Extremes range = curves.extremes(first, last);
  const auto before = first == 0 ? 0.0 : static_cast<double>(curves.values_after(first - 1)[0]);
  return {static_cast<double>(range.max[0]), static_cast<double>(range.min[0]),
          static_cast<double>(curves.values_after(last - 1)[0]) - before};
}

double distance(const Traits& a, const Traits& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum;
}

}  // namespace

std::optional<StepPair> steps_to_compare(const AllocationHistory& memory,
                                         const MinMaxPyramid& curves, const Steps& steps) {
  std::vector<uint32_t> chosen;
  std::vector<Traits> traits;
  for (uint32_t i = steps.count() > 2 ? 1 : 0; i < steps.count(); ++i) {
    const uint32_t first = steps.boundaries[i];
    const uint32_t last =
        i + 1 < steps.boundaries.size() ? steps.boundaries[i + 1] : memory.event_count();
    if (first >= last) continue;
    chosen.push_back(i);
    traits.push_back(traits_of(curves, first, last));
  }
  if (chosen.size() < 2) return std::nullopt;
  // The ordinary one is nearest to the medians of all.
  Traits middle{};
  for (size_t t = 0; t < middle.size(); ++t) {
    std::vector<double> values;
    for (const Traits& of : traits) values.push_back(of[t]);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    middle[t] = *at;
  }
  size_t ordinary = 0;
  for (size_t i = 1; i < traits.size(); ++i) {
    if (distance(traits[i], middle) < distance(traits[ordinary], middle)) ordinary = i;
  }
  size_t unlike = ordinary == 0 ? 1 : 0;
  for (size_t i = 0; i < traits.size(); ++i) {
    if (i == ordinary) continue;
    if (distance(traits[i], traits[ordinary]) > distance(traits[unlike], traits[ordinary])) {
      unlike = i;
    }
  }
  return StepPair{chosen[ordinary], chosen[unlike]};
}

}  // namespace tidemark::view
