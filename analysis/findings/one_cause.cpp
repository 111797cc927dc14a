#include "analysis/findings/one_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/wording.h"

namespace tidemark {

namespace {

uint64_t most_saved(const Finding& f) {
  return f.advice.empty() ? 0 : f.advice.front().saves_bytes;
}

// What a finding says of memory that is reserved for one pool or stream only.
uint64_t kept_apart(const Finding& f) {
  if (f.severity == kInfo || f.advice.empty()) return 0;
  if (f.id == "stream_pools") return f.advice.front().saves_bytes;
  return f.id == "graph_private_pool" ? evidence_of(f, "idle_bytes").value_or(0) : 0;
}

bool is_explained(const Finding& f, const FindingsByDevice& all) {
  if (f.severity == kError || (f.id != "fragmentation" && f.id != "shape_variance")) return false;
  const uint64_t cost = evidence_of(f, "peak_cost_bytes").value_or(0);
  const auto& beside = all.beside(f);
  return std::any_of(beside.begin(), beside.end(), [&](const Finding* other) {
    const uint64_t apart = kept_apart(*other);
    return apart != 0 && 2 * apart >= cost && most_saved(*other) > most_saved(f);
  });
}

// Whether its advice lowers something else than what PyTorch needs in this process.
bool is_about_others(const Finding& f) {
  return f.id == "other_process" || f.id == "stray_context" || f.id == "pinned_growth" ||
         f.id == "rank_imbalance" || f.id == "device_imbalance";
}

// The finding that alone, in a replay of its change, makes the run fit. What lowers the allocated
// peak lowers the reserved one about as much.
const Finding* enough_to_fit(const Finding& capacity, const FindingsByDevice& all) {
  const uint64_t reserved = *evidence_of(capacity, "reserved_bytes");
  const uint64_t limit = *evidence_of(capacity, "limit_bytes");
  const Finding* best = nullptr;
  for (const Finding* const f : all.beside(capacity)) {
    if (costs_computation(*f) || is_about_others(*f)) continue;
    const uint64_t saved = most_saved(*f);
    if (saved > reserved || reserved - saved > limit) continue;
    if (best == nullptr || saved > most_saved(*best)) best = f;
  }
  return best;
}

void say_what_is_enough(Finding& capacity, const Finding& other) {
  const uint64_t saved = most_saved(other);
  const uint64_t reserved = *evidence_of(capacity, "reserved_bytes") - saved;
  // What costs something is not needed where less is allocated.
  const bool less = !lowers_reserved_only(other);
  std::erase_if(capacity.advice, [less](const Advice& a) {
    const bool costs =
        a.action == "halve_batch" || a.action == "checkpoint" || a.action == "mixed_precision";
    return a.action == "look_at_largest" || (less && costs);
  });
  capacity.advice.insert(
      capacity.advice.begin(),
      {"see_" + other.id,
       fmt::format("the advice of {} alone is enough: {}{} would be reserved of {}", other.id,
                   less ? "about " : "", size_text(reserved),
                   size_text(*evidence_of(capacity, "limit_bytes"))),
       saved});
}

}  // namespace

std::optional<uint64_t> evidence_of(const Finding& f, std::string_view name) {
  const auto found = std::find_if(f.evidence.begin(), f.evidence.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == f.evidence.end()) return std::nullopt;
  return found->second;
}

bool lowers_reserved_only(const Finding& f) {
  return f.id == "fragmentation" || f.id == "shape_variance" || f.id == "stream_pools" ||
         f.id == "graph_private_pool";
}

bool costs_computation(const Finding& f) {
  return f.id == "capacity" || f.id == "activation_peak" || f.id == "optimizer_state_spike";
}

void keep_one_of_each_cause(std::vector<Finding>& findings) {
  std::vector<bool> repeats;
  const FindingsByDevice before(findings);
  for (const Finding& f : findings) repeats.push_back(is_explained(f, before));
  size_t next = 0;
  std::erase_if(findings, [&](const Finding&) { return repeats[next++]; });
  const FindingsByDevice left(findings);
  std::set<FindingsByDevice::Device> fitting;
  for (Finding& f : findings) {
    if (f.id != "capacity" || f.severity == kError) continue;
    if (!evidence_of(f, "reserved_bytes") || !evidence_of(f, "limit_bytes")) continue;
    const Finding* const other = enough_to_fit(f, left);
    if (other == nullptr) continue;
    say_what_is_enough(f, *other);
    if (!lowers_reserved_only(*other)) fitting.insert(FindingsByDevice::device_of(f));
  }
  // Memory is not scarce then.
  std::erase_if(findings, [&](const Finding& f) {
    return f.id == "activation_peak" && fitting.contains(FindingsByDevice::device_of(f));
  });
}

}  // namespace tidemark
