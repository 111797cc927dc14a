#include "analysis/findings/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "analysis/wording.h"

namespace tidemark {

std::string card_of(const ProcessModel& process, int64_t ordinal) {
  const Device* device = process.device(ordinal);
  const std::string_view uuid = device == nullptr ? "" : process.names.string(device->uuid);
  return fmt::format("{} {} {}", process.names.string(process.info.host), uuid,
                     uuid.empty() ? ordinal : 0);
}

bool DeviceEvidence::is_tight() const {
  if (ran_out()) return true;
  if (model == nullptr || !limit.is_known()) return false;
  return model->reserved_peak.bytes >= limit.bytes / 10 * 9;
}

bool DeviceEvidence::has_room() const {
  constexpr uint64_t kSmallCard = uint64_t{16} << 30;  // where the card is not known
  if (ran_out() || model == nullptr) return false;
  return model->reserved_peak.bytes < (limit.is_known() ? limit.bytes : kSmallCard) / 2;
}

bool DeviceEvidence::is_card_full() const {
  const auto& failures = process->driver.failures;
  const bool own_limit = limit.source == LimitSource::kFraction;  // says nothing about the card
  return (is_tight() && !own_limit) ||
         std::any_of(failures.begin(), failures.end(),
                     [&](const FailedAllocation& f) { return f.device == device; }) ||
         (total_bytes != 0 && device_used_peak(*process, device).bytes >= total_bytes / 10 * 9);
}

uint64_t DeviceEvidence::at_peak(Category category) const {
  if (model == nullptr) return 0;
  const uint32_t peak = model->allocated_peak.event;
  uint64_t bytes = 0;
  for (size_t i = 0; i < model->allocations.size(); ++i) {
    const Allocation& a = model->allocations[i];
    if (a.birth > peak) break;  // in order of birth
    if (categories.of[i] == category && a.release > peak) bytes += a.block_bytes;
  }
  return bytes;
}

MemoryTotals DeviceEvidence::at_failure() const {
  return ran_out() ? model->totals_after(model->failures.back().event) : MemoryTotals{};
}

bool DeviceEvidence::ends_at_failure() const {
  constexpr uint64_t kFew = 20;  // 5 % of the allocations: what a program does to report the error
  if (!ran_out()) return false;
  const uint32_t failed = model->failures.back().event;
  if (steps.count() != 0) return steps.after_event(failed) == 0;
  const AllocationColumns& all = model->allocations;
  uint64_t since = 0;
  for (size_t i = all.size(); i-- > 0 && all.birth(i) > failed;) ++since;
  return since * kFew <= all.size();
}

namespace {

const Phase* forward_only_at(const std::vector<Phase>& phases, uint32_t event) {
  const auto found = std::find_if(phases.begin(), phases.end(), [&](const Phase& p) {
    return is_forward_only(p.kind) && p.holds(event);
  });
  return found == phases.end() ? nullptr : &*found;
}

}  // namespace

const Phase* DeviceEvidence::failing_phase() const {
  return ran_out() ? forward_only_at(phases, model->failures.back().event) : nullptr;
}

const Phase* DeviceEvidence::decisive_phase() const {
  if (model == nullptr || ran_out()) return failing_phase();
  return forward_only_at(phases, model->allocated_peak.event);
}

bool DeviceEvidence::fails_for_kept_graph() const {
  if (!ran_out() || categories.kept_without_backward.empty()) return false;
  if (fails_in_validation()) return true;
  const FailedAllocation& failure = model->failures.back();
  uint64_t held = 0;
  for (const uint32_t i : categories.kept_without_backward) {
    const Allocation& a = model->allocations[i];
    if (a.birth <= failure.event && a.release > failure.event) held += a.block_bytes;
  }
  return held >= std::max(failure.requested_bytes, at_failure().allocated / 5);
}

namespace {

// What runs without a backward pass in nearly every step, and is not named after a validation, is a
// teacher or a frozen part of the model.
bool is_rare_or_named(const DeviceEvidence& d, const Phase& phase) {
  constexpr size_t kOften = 4;
  const auto count = static_cast<size_t>(std::count_if(
      d.phases.begin(), d.phases.end(), [&](const Phase& p) { return p.kind == phase.kind; }));
  return phase.kind != PhaseKind::kForwardOnly || count < kOften ||
         4 * count < size_t{3} * d.steps.count();
}

}  // namespace

std::string DeviceEvidence::out_of_memory_text() const {
  const std::string text = "out of memory";
  if (!ran_out()) return text;
  const Phase* const phase = failing_phase();
  if (phase != nullptr && is_rare_or_named(*this, *phase))
    return fmt::format("{} in {}", text, phase_text(phase->kind));
  switch (roles->of(model->failures.back().stack)) {
    case StackRole::kForward:
      return text + " in the forward pass";
    case StackRole::kBackward:
      return text + " in the backward pass";
    case StackRole::kOptimizer:
    case StackRole::kOptimizerInit:
      return text + " in the optimizer's step";
    case StackRole::kLoading:
      return text + " while weights were loaded";
    case StackRole::kModuleSetUp:
      return text + " while the model was set up";
    case StackRole::kSaving:
      return text + " while a checkpoint was saved";
    default:
      return text;
  }
}

Finding DeviceEvidence::finding(const char* id, const char* severity, std::string summary) const {
  Finding f;
  f.id = id;
  f.severity = severity;
  f.rank = process->info.rank;
  f.pid = process->info.pid;
  f.file = process->file;
  f.device = device;
  f.summary = std::move(summary);
  return f;
}

}  // namespace tidemark
