#include "analysis/history/driver_history.h"

#include <algorithm>

namespace tidemark {

namespace {

void add_life(std::vector<StepChange>& steps, const DriverAllocation& a) {
  const auto bytes = static_cast<int64_t>(a.size_bytes);
  steps.push_back({a.birth_ns, bytes});
  if (a.death_ns != INT64_MAX) steps.push_back({a.death_ns, -bytes});
}

}  // namespace

StepSeries sum_of_changes(std::vector<StepChange> changes) {
  std::stable_sort(changes.begin(), changes.end(),
                   [](const StepChange& a, const StepChange& b) { return a.time_ns < b.time_ns; });
  StepSeries series;
  uint64_t now = 0;
  for (const StepChange& step : changes) {
    now += static_cast<uint64_t>(step.bytes);
    if (!series.empty() && series.time_ns.back() == step.time_ns) {
      series.value.back() = now;
    } else {
      series.time_ns.push_back(step.time_ns);
      series.value.push_back(now);
    }
  }
  return series;
}

uint64_t StepSeries::at(int64_t time) const {
  const auto after = std::upper_bound(time_ns.begin(), time_ns.end(), time);
  return after == time_ns.begin() ? 0 : value[static_cast<size_t>(after - time_ns.begin()) - 1];
}

uint64_t StepSeries::lowest(int64_t from, int64_t to) const {
  uint64_t least = at(from);
  for (auto i = std::upper_bound(time_ns.begin(), time_ns.end(), from); i != time_ns.end(); ++i) {
    if (*i > to) break;
    least = std::min(least, value[static_cast<size_t>(i - time_ns.begin())]);
  }
  return least;
}

DriverHistory::DriverHistory(const DriverModel& model, int64_t device) {
  std::vector<StepChange> card;
  std::vector<StepChange> code;
  std::map<uint32_t, std::vector<StepChange>> owners;
  std::array<std::vector<StepChange>, kMemoryKinds> kinds;
  for (const DriverAllocation& a : model.allocations) {
    if (a.device != device) continue;
    if ((a.flags & (kDriverRemote | kDriverHostLocated)) == 0) {
      const auto kind = static_cast<size_t>(a.kind);
      add_life(kinds[kind < kMemoryKinds ? kind : 0], a);
    }
    if (a.kind == MemoryKind::kCode) add_life(code, a);
    if (!a.on_card()) continue;
    add_life(card, a);
    add_life(owners[a.owner], a);
  }
  std::vector<StepChange> contexts;
  for (const DriverContext& c : model.contexts) {
    if (c.device != device) continue;
    contexts.push_back({c.birth_ns, 1});
    if (c.death_ns != INT64_MAX) contexts.push_back({c.death_ns, -1});
  }
  contexts_ = sum_of_changes(std::move(contexts));
  card_ = sum_of_changes(std::move(card));
  code_ = sum_of_changes(std::move(code));
  for (auto& [owner, steps] : owners) owners_[owner] = sum_of_changes(std::move(steps));
  for (size_t i = 0; i < kMemoryKinds; ++i) kinds_[i] = sum_of_changes(std::move(kinds[i]));
}

DriverState DriverHistory::state_at(int64_t time_ns) const {
  DriverState state;
  state.card_bytes = card_.at(time_ns);
  state.code_bytes = code_.at(time_ns);
  for (const auto& [owner, series] : owners_) {
    if (const uint64_t bytes = series.at(time_ns); bytes != 0) state.card_by_owner[owner] = bytes;
  }
  for (size_t i = 0; i < kMemoryKinds; ++i) state.by_kind[i] = kinds_[i].at(time_ns);
  return state;
}

}  // namespace tidemark
