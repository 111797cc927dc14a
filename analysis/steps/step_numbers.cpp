#include "analysis/steps/step_numbers.h"

#include <algorithm>

namespace tidemark {

namespace {

uint64_t marks_in_window(const ProcessModel& process, MarkKind kind) {
  return static_cast<uint64_t>(std::count_if(
      process.marks.begin(), process.marks.end(),
      [&](const Mark& mark) { return mark.kind == kind && mark.phase != MarkPhase::kBegin; }));
}

}  // namespace

std::optional<uint64_t> steps_before_window(const ProcessModel& process, const Steps& steps) {
  const KeptWindow& window = process.window;
  if (!window.exists()) return 0;
  if (steps.source != StepSource::kMarks) return std::nullopt;
  // As in steps_from_marks(): iterations that the program marks take precedence.
  const uint64_t iterations = marks_in_window(process, MarkKind::kIteration);
  const bool by_iteration = iterations != 0;
  const std::optional<uint64_t> before =
      by_iteration ? window.iterations_before : window.optimizer_steps_before;
  const uint64_t marks =
      by_iteration ? iterations : marks_in_window(process, MarkKind::kOptimizerStep);
  if (!before || marks == 0) return std::nullopt;
  const uint64_t ends = steps.boundaries.size() - (steps.boundaries.front() == 0 ? 1 : 0);
  const uint64_t each = std::max<uint64_t>((marks + ends / 2) / ends, 1);
  // A step at either end of the window may have a part of its marks outside.
  const uint64_t made = each * ends;
  const uint64_t off = marks > made ? marks - made : made - marks;
  if (off >= each) return std::nullopt;
  return *before / each;
}

}  // namespace tidemark
