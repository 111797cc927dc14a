#include "analysis/steps/step_marks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/steps/step_rounds.h"

namespace tidemark {

namespace {

// "Step 12", "iter_12" and "ProfilerStep#12" without their number, in lower case.
std::string unnumbered(std::string_view name) {
  while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 ||
                           std::string_view(" _-#:[]()/").find(name.back()) != name.npos)) {
    name.remove_suffix(1);
  }
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// 0: not a mark of a step; otherwise how well it fits.
constexpr int kOptimizerRank = 2;
int mark_rank(const Mark& mark, std::string_view name, std::string_view text) {
  constexpr std::array<std::string_view, 8> kStepNames = {
      "profilerstep", "step",          "iter",  "iteration",
      "train_step",   "training_step", "batch", "train_batch"};
  if (mark.kind == MarkKind::kIteration) return 3;
  if (mark.kind == MarkKind::kOptimizerStep || name.starts_with("Optimizer.step")) {
    return kOptimizerRank;
  }
  return std::find(kStepNames.begin(), kStepNames.end(), text) != kStepNames.end() ? 1 : 0;
}

// The events after these times, each once.
std::vector<uint32_t> events_after(const AllocationHistory& model, std::vector<int64_t> times) {
  std::vector<uint32_t> events;
  std::sort(times.begin(), times.end());
  for (const int64_t time : times) {
    uint32_t event = 0;
    if (!model.event_at(time, event)) continue;
    const uint32_t next = event + 1;  // none follows where the history ends with the step
    if (events.empty() || events.back() < next) events.push_back(next);
  }
  return events;
}

// Several optimizers may step one after the other: between their marks nothing but optimizers
// allocates.
std::vector<uint32_t> without_repeats(const AllocationHistory& model, const StackRoles& roles,
                                      const std::vector<uint32_t>& marks) {
  std::vector<uint32_t> boundaries;
  uint32_t next = 0;
  bool works = true;
  for (const uint32_t mark : marks) {
    for (; next < model.allocations.size() && model.allocations.birth(next) < mark; ++next) {
      works |= !in_optimizer(roles.of(model.allocations.stack(next)));
    }
    if (!works && !boundaries.empty()) boundaries.pop_back();
    boundaries.push_back(mark);
    works = false;
  }
  return boundaries;
}

// Errors whose step was done again: the program works between the error and the end of the next
// optimizer step.
std::vector<uint32_t> failures_done_again(const AllocationHistory& model, const StackRoles& roles,
                                          const std::vector<uint32_t>& ends) {
  std::vector<uint32_t> done_again;
  for (const FailedAllocation& failure : model.failures) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), failure.event);
    if (end == ends.end()) break;
    for (uint32_t e = failure.event; e < std::min(*end, model.event_count()); ++e) {
      if (model.change[e] != Change::kBirth) continue;
      if (in_optimizer(roles.of(model.allocations.stack(model.subject[e])))) continue;
      done_again.push_back(failure.event);
      break;
    }
  }
  return done_again;
}

}  // namespace

MarkedSteps steps_from_marks(const ProcessModel& process, const AllocationHistory& model,
                             const StackRoles& roles) {
  // A program may have several optimizers: the most frequent name marks the step.
  struct Named {
    int rank = 0;
    std::vector<int64_t> times;
  };
  std::map<std::string, Named> names;
  std::map<std::pair<uint32_t, MarkKind>, Named*> known;  // marks are many, their names few
  // A snapshot has annotations of each device; those of other devices may be of other loops.
  const bool has_own = std::any_of(process.marks.begin(), process.marks.end(),
                                   [&](const Mark& m) { return m.device == model.device; });
  for (const Mark& mark : process.marks) {
    // The step ends where its optimizer does.
    if (mark.phase == MarkPhase::kBegin) continue;
    if (has_own && mark.device >= 0 && mark.device != model.device) continue;
    const auto [place, fresh] = known.try_emplace({mark.name, mark.kind}, nullptr);
    if (fresh) {
      const std::string_view name = process.names.string(mark.name);
      const std::string text = unnumbered(name);
      if (const int rank = mark_rank(mark, name, text); rank != 0) {
        place->second = &names[text];
        place->second->rank = rank;
      }
    }
    if (place->second != nullptr) place->second->times.push_back(mark.time_ns);
  }
  const Named* best = nullptr;
  for (const auto& [name, named] : names) {
    if (best == nullptr || named.rank > best->rank ||
        (named.rank == best->rank && named.times.size() > best->times.size())) {
      best = &named;
    }
  }
  if (best == nullptr) return {};
  if (best->rank != kOptimizerRank) return {events_after(model, best->times), {}};
  std::vector<int64_t> all;
  for (const auto& [name, named] : names) {
    if (named.rank == kOptimizerRank) all.insert(all.end(), named.times.begin(), named.times.end());
  }
  std::vector<uint32_t> rounds = boundaries_of_rounds(
      model, roles, without_repeats(model, roles, events_after(model, std::move(all))));
  if (rounds.empty()) rounds = without_repeats(model, roles, events_after(model, best->times));
  std::vector<uint32_t> done_again = failures_done_again(model, roles, rounds);
  return {std::move(rounds), std::move(done_again)};
}

}  // namespace tidemark
