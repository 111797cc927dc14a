#include "analysis/insight/training_lines.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark {

// Forward passes under one line of the program, until those of another line begin.
struct TrainingLines::Visit {
  uint32_t line = 0;
  uint64_t bytes = 0;
  uint64_t kept_bytes = 0;  // still alive when the next backward pass began
  uint64_t used_bytes = 0;  // of those, freed in the course of a backward pass
  uint64_t next_bytes = 0;  // of those, of the next one
  uint32_t births = 0;
  uint32_t kept_blocks = 0;
  uint32_t used_blocks = 0;
  bool ended = false;  // one of the passes did, as far as anybody knows

  // A stored loss also outlives its pass, but is tiny.
  bool keeps() const { return kept_bytes > bytes / 100; }
  // Of a graph that is not used, the result may be, without its graph.
  bool is_used() const { return used_bytes > bytes / 100 && 10 * used_blocks >= kept_blocks; }
};

namespace {

constexpr uint32_t kLongPass = 4;  // allocations

// From the first allocation of a backward pass to its last. What a pass that ran out of memory
// would have freed goes as the exception does, or is left where the history ends there.
struct Span {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t births = 0;

  bool holds(uint32_t event) const { return first <= event && event <= last; }
};

// `spans`: the last first.
bool is_within(const std::vector<Span>& spans, uint32_t event) {
  const auto span =
      std::lower_bound(spans.begin(), spans.end(), event,
                       [](const Span& s, uint32_t wanted) { return s.first > wanted; });
  return span != spans.end() && span->holds(event);
}

// Whether memory ran out between two allocations.
bool failed_between(const AllocationHistory& model, uint32_t from, uint32_t to) {
  const auto failure =
      std::lower_bound(model.failures.begin(), model.failures.end(), from,
                       [](const FailedAllocation& f, uint32_t event) { return f.event < event; });
  return failure != model.failures.end() && failure->event <= to;
}

}  // namespace

// `visits`: those before a backward pass, the last first. What lies between it and one that feeds
// it, as the computing of a loss, also trains. A graph that survives it while it uses another does
// not feed it. One that frees no graph (torch.autograd.grad with create_graph) is fed by what comes
// after the last graph that a later one uses. `is_long`: it would have freed something.
void TrainingLines::note(const std::vector<Visit>& visits, bool is_long) {
  const bool any_used =
      std::any_of(visits.begin(), visits.end(), [](const Visit& v) { return v.is_used(); });
  bool retains = is_long && std::none_of(visits.begin(), visits.end(),
                                         [](const Visit& v) { return v.next_bytes != 0; });
  std::vector<uint32_t> between;  // lines
  for (const Visit& visit : visits) {
    if (!visit.ended) continue;
    ++lines_[visit.line].visits;
    retains = retains && !visit.is_used();
    const bool feeds = visit.is_used() || (visit.keeps() && (!any_used || retains));
    if (feeds || !visit.keeps()) between.push_back(visit.line);
    if (!feeds) continue;
    for (const uint32_t line : between) ++lines_[line].feeding;
    between.clear();
  }
}

// Visits the allocations from the last to the first, so that the next backward pass is known.
TrainingLines::TrainingLines(const AllocationHistory& model, const StackRoles& roles) {
  uint32_t next_backward = kNever;
  std::vector<Span> backward;  // the last first
  StackRole role_after = StackRole::kNone;
  uint32_t later = kNever;  // the birth of the allocation visited before
  std::vector<Visit> visits;
  Visit visit;
  const auto leave = [&] {
    if (visit.ended && next_backward == kNever) ++lines_[visit.line].visits;
    if (visit.births != 0 && !visit.ended) cut_off_.insert(visit.line);
    if (visit.births != 0 && next_backward != kNever) visits.push_back(visit);
    visit = {};
  };
  const auto is_long = [&] { return !backward.empty() && backward.back().births >= kLongPass; };
  for (size_t i = model.allocations.size(); i-- > 0;) {
    model.passed(i);
    const Allocation& a = model.allocations[i];
    if (a.seeded) continue;
    const StackRole role = roles.of(a.stack);
    const bool ends = role != std::exchange(role_after, role);
    const uint32_t next = std::exchange(later, a.birth);
    if (role == StackRole::kBackward) {
      leave();
      note(visits, is_long());
      visits.clear();
      next_backward = a.birth;
      if (ends) {
        const bool failed = failed_between(model, a.birth, next);
        const uint32_t end = next == kNever ? kNever : kNever - 1;
        backward.push_back({a.birth, failed ? end : a.birth, 0});
      }
      backward.back().first = a.birth;
      ++backward.back().births;
    }
    if (role != StackRole::kForward) continue;
    const uint32_t caller = roles.caller_of(a.stack);
    const bool is_end = ends || caller != visit.line;
    if (caller != visit.line) {
      leave();
      visit.line = caller;
    }
    visit.ended = visit.ended || (is_end && !failed_between(model, a.birth, next));
    ++visit.births;
    visit.bytes += a.block_bytes;
    if (next_backward == kNever || a.release <= next_backward) continue;
    visit.kept_bytes += a.block_bytes;
    ++visit.kept_blocks;
    if (!is_within(backward, a.release)) continue;
    visit.used_bytes += a.block_bytes;
    ++visit.used_blocks;
    if (backward.back().holds(a.release)) visit.next_bytes += a.block_bytes;
  }
  leave();
  note(visits, is_long());
  take_same_lines(roles);
}

void TrainingLines::take_same_lines(const StackRoles& roles) {
  std::unordered_set<uint32_t> training;  // frames
  for (const auto& [caller, line] : lines_) {
    if (line.trains()) training.insert(roles.frame_of_caller(caller));
  }
  training.erase(0);
  for (const uint32_t caller : cut_off_) {
    const uint32_t same = training.contains(roles.frame_of_caller(caller)) ? 1 : 0;
    lines_.try_emplace(caller, Line{1, same});
  }
  cut_off_.clear();
}

bool TrainingLines::any() const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [](const auto& entry) { return entry.second.trains(); });
}

bool TrainingLines::trains(uint32_t caller) const {
  const auto line = lines_.find(caller);
  return line != lines_.end() && line->second.trains();
}

}  // namespace tidemark
