#include "analysis/findings/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "analysis/findings/one_cause.h"
#include "analysis/names/stack_lines.h"
#include "proto/base/in_parallel.h"

namespace tidemark {

namespace {

struct NamedRule {
  const char* id;
  Rule rule;
};

constexpr NamedRule kRules[] = {
    {"capacity", find_capacity},
    {"fragmentation", find_fragmentation},
    {"rank_imbalance", find_rank_imbalance},
    {"device_imbalance", find_device_imbalance},
    {"creep", find_creep},
    {"retained_graph", find_retained_graph},
    {"eval_keeps_graph", find_eval_keeps_graph},
    {"accumulated_graphs", find_accumulated_graphs},
    {"unused_gradients", find_unused_gradients},
    {"trained_base", find_trained_base},
    {"checkpoint_kept", find_checkpoint_kept},
    {"kept_by_error", find_kept_by_error},
    {"one_operation_peak", find_one_operation_peak},
    {"queued_inputs", find_queued_inputs},
    {"joined_results", find_joined_results},
    {"activation_peak", find_activation_peak},
    {"autocast_copies", find_autocast_copies},
    {"stale_gradients", find_stale_gradients},
    {"optimizer_state_spike", find_optimizer_state_spike},
    {"shape_variance", find_shape_variance},
    {"cache_thrash", find_cache_thrash},
    {"memory_fraction", find_memory_fraction},
    {"graph_private_pool", find_graph_private_pool},
    {"stream_pools", find_stream_pools},
    {"nccl_overhead", find_nccl_overhead},
    {"stray_context", find_stray_context},
    {"other_process", find_other_process},
    {"pinned_growth", find_pinned_growth},
    {"sleep_leftover", find_sleep_leftover},
};

int weight(std::string_view severity) {
  return severity == kError ? 2 : severity == kWarning ? 1 : 0;
}

size_t place_of_rule(std::string_view id) {
  return static_cast<size_t>(std::find_if(std::begin(kRules), std::end(kRules),
                                          [&](const NamedRule& rule) { return rule.id == id; }) -
                             std::begin(kRules));
}

uint64_t best_saving(const Finding& f) {
  return f.advice.empty() ? 0 : f.advice.front().saves_bytes;
}

// What filled the memory comes before the request that no longer fitted.
bool is_cause(const Finding& f) {
  if (f.severity != kError) return false;
  return f.id == "creep" || f.id == "retained_graph" || f.id == "eval_keeps_graph" ||
         f.id == "accumulated_graphs" || f.id == "one_operation_peak" ||
         f.id == "checkpoint_kept" || f.id == "kept_by_error" || f.id == "rank_imbalance" ||
         f.id == "stray_context";
}

// A limit that the program set comes before the request that no longer fitted; if it is known what
// filled the memory, a higher one only delays the error, and comes last.
int order_of_cause(const Finding& f, bool cause_is_known) {
  if (is_cause(f)) return 0;
  if (f.severity != kError || f.id != "memory_fraction") return 2;
  return cause_is_known ? 3 : 1;
}

// Of a run that does not fit a smaller card: what is wrong with the program, or costs nothing,
// comes before a smaller batch and layers that are computed twice. Where too much is allocated,
// packing it better does not help by itself: it comes after what does, and last if that does not
// save enough.
class OrderOnCard {
 public:
  explicit OrderOnCard(const std::vector<Finding>& findings) {
    const FindingsByDevice all(findings);
    for (const Finding& f : findings) {
      if (f.id != "capacity" || f.severity != kWarning) continue;
      const auto allocated = evidence_of(f, "allocated_bytes");
      const auto limit = evidence_of(f, "limit_bytes");
      if (!allocated || !limit) continue;
      const uint64_t excess = *allocated - std::min(*allocated, *limit);
      const auto& beside = all.beside(f);
      const bool enough = std::any_of(beside.begin(), beside.end(), [&](const Finding* other) {
        return !costs_computation(*other) && !lowers_reserved_only(*other) &&
               best_saving(*other) >= excess;
      });
      packing_[FindingsByDevice::device_of(f)] = excess == 0 ? kFree : enough ? kPacking : kLast;
    }
  }

  int operator()(const Finding& f) const {
    const auto packing = packing_.find(FindingsByDevice::device_of(f));
    if (packing == packing_.end() || f.severity != kWarning) return kFree;
    if (costs_computation(f)) return kCostly;
    return lowers_reserved_only(f) ? packing->second : kFree;
  }

 private:
  enum Order : uint8_t { kFree, kPacking, kCostly, kLast };
  std::map<FindingsByDevice::Device, Order> packing_;
};

// What a cause and its effect have in common.
using WhereFound = std::tuple<std::string, int64_t, uint64_t, std::string, int64_t, std::string>;

WhereFound where_found(const Finding& f) {
  return {f.severity, f.rank, f.pid, f.file, f.device, headline_of(f.frames)};
}

// A large operation of a part that is computed for nothing comes after that part; what one rank
// needs more than the others, and holes, after the growth that they are or come from.
bool causes(const Finding& cause, const Finding& effect) {
  if (cause.id == "unused_gradients" || cause.id == "eval_keeps_graph") {
    return effect.id == "one_operation_peak";
  }
  if (cause.id != "creep" && cause.id != "retained_graph") return false;
  return effect.id == "rank_imbalance" || effect.id == "fragmentation";
}

void put_causes_first(std::vector<Finding>& findings) {
  std::map<WhereFound, std::vector<size_t>> found;
  for (size_t i = 0; i < findings.size(); ++i) found[where_found(findings[i])].push_back(i);
  std::map<size_t, std::vector<size_t>> waiting;  // effects, by their last cause
  std::vector<bool> waits(findings.size(), false);
  for (size_t i = 0; i < findings.size(); ++i) {
    const std::vector<size_t>& same = found[where_found(findings[i])];
    const auto cause = std::find_if(same.rbegin(), same.rend(), [&](size_t other) {
      return causes(findings[other], findings[i]);
    });
    if (cause == same.rend() || *cause < i) continue;
    waiting[*cause].push_back(i);
    waits[i] = true;
  }
  if (waiting.empty()) return;
  std::vector<Finding> ordered;
  for (size_t i = 0; i < findings.size(); ++i) {
    if (!waits[i]) ordered.push_back(std::move(findings[i]));
    for (const size_t effect : waiting[i]) ordered.push_back(std::move(findings[effect]));
  }
  findings = std::move(ordered);
}

// What fills the memory until a request fails: without end, or until a validation ends.
enum class Filling : uint8_t { kNone, kBounded, kEndless };

Filling filling_of(const DeviceEvidence& d, const Finding& f) {
  if (f.severity != kError) return Filling::kNone;
  if (f.id == "creep") {
    return evidence_of(f, "may_end_with_phase") ? Filling::kBounded : Filling::kEndless;
  }
  if (f.id == "retained_graph") return Filling::kEndless;
  return f.id == "eval_keeps_graph" && !d.categories.has_backward &&
                 !d.categories.graphs_end_with_pass
             ? Filling::kEndless
             : Filling::kNone;
}

void put_before(Advice& advice, const std::string& text) {
  advice.detail = fmt::format("{}; until that is mended, {}", text, advice.detail);
}

// More memory, or memory that is packed better, does not help where it fills up.
void say_what_delays(const Evidence& evidence, std::vector<Finding>& findings) {
  std::map<FindingsByDevice::Device, const DeviceEvidence*> devices;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr) continue;
    devices[FindingsByDevice::device_of(d.finding("", kError, ""))] = &d;
  }
  std::map<FindingsByDevice::Device, std::string> delays;
  for (const Finding& f : findings) {
    const auto device = devices.find(FindingsByDevice::device_of(f));
    if (device == devices.end()) continue;
    const Filling filling = filling_of(*device->second, f);
    if (filling == Filling::kNone) continue;
    delays.try_emplace(
        device->first,
        filling == Filling::kEndless
            ? fmt::format("memory fills up as {} says, and more of it only delays the error", f.id)
            : fmt::format("memory fills up as {} says, which comes first", f.id));
  }
  for (Finding& f : findings) {
    const auto text = delays.find(FindingsByDevice::device_of(f));
    if (text == delays.end()) continue;
    const bool holes = f.id == "fragmentation" && f.severity == kError;
    if (holes) {
      // The blocks that stay are those that should not.
      std::erase_if(f.advice, [](const Advice& a) {
        return a.action == "move_pins" || a.action == "group_lifetimes";
      });
      for (Advice& advice : f.advice) put_before(advice, text->second);
    } else if (f.id == "memory_fraction" && !f.advice.empty()) {
      put_before(f.advice.front(), text->second);
    }
    if ((f.id == "capacity" || holes) && f.advice.empty()) {
      f.advice.push_back({"stop_growth", text->second, 0});
    }
  }
}

// An error without advice names the finding that has it.
void refer_to_cause(std::vector<Finding>& findings) {
  std::map<FindingsByDevice::Device, std::string_view> causes;
  for (const Finding& f : findings) {
    if (is_cause(f) && !f.advice.empty()) causes.try_emplace(FindingsByDevice::device_of(f), f.id);
  }
  for (Finding& f : findings) {
    const auto cause = causes.find(FindingsByDevice::device_of(f));
    if (f.id != "capacity" || !f.advice.empty() || cause == causes.end()) continue;
    f.advice.push_back(
        {"see_cause", fmt::format("{} tells what filled the memory, and what to do", cause->second),
         0});
  }
}

}  // namespace

std::vector<Finding> diagnose(const Evidence& evidence) {
  std::array<std::vector<Finding>, std::size(kRules)> found;
  in_parallel(found.size(), [&](size_t i) {
    kRules[i].rule(evidence, found[i]);
    for (const DeviceEvidence& d : evidence.devices) {
      if (d.model != nullptr) d.model->release_pages();  // some rules read all events
    }
  });
  std::vector<Finding> findings;
  for (std::vector<Finding>& of_rule : found) {
    std::move(of_rule.begin(), of_rule.end(), std::back_inserter(findings));
  }
  say_what_delays(evidence, findings);
  refer_to_cause(findings);
  for (Finding& f : findings) {
    std::stable_sort(f.advice.begin(), f.advice.end(), [](const Advice& a, const Advice& b) {
      return a.saves_bytes > b.saves_bytes;
    });
  }
  keep_one_of_each_cause(findings);
  sort_findings(findings);
  return findings;
}

void sort_findings(std::vector<Finding>& findings) {
  const auto device_of = [](const Finding& f) { return std::tie(f.rank, f.pid, f.file, f.device); };
  std::set<std::tuple<int64_t, uint64_t, std::string, int64_t>> with_cause;
  for (const Finding& f : findings) {
    const bool holes = f.severity == kError && f.id == "fragmentation";
    if (is_cause(f) || holes) with_cause.insert(device_of(f));
  }
  const OrderOnCard on_card(findings);
  std::stable_sort(findings.begin(), findings.end(), [&](const Finding& a, const Finding& b) {
    const int x = weight(a.severity);
    const int y = weight(b.severity);
    if (x != y) return x > y;
    // What the program itself does comes first.
    const bool others_a = a.id == "other_process";
    const bool others_b = b.id == "other_process";
    if (others_a != others_b) return others_b;
    const int cause_a = order_of_cause(a, with_cause.contains(device_of(a)));
    const int cause_b = order_of_cause(b, with_cause.contains(device_of(b)));
    if (cause_a != cause_b) return cause_a < cause_b;
    const int card_a = on_card(a);
    const int card_b = on_card(b);
    if (card_a != card_b) return card_a < card_b;
    const uint64_t saving_a = best_saving(a);
    const uint64_t saving_b = best_saving(b);
    if (saving_a != saving_b) return saving_a > saving_b;
    return place_of_rule(a.id) < place_of_rule(b.id);
  });
  put_causes_first(findings);
}

std::vector<std::string> finding_ids() {
  std::vector<std::string> ids;
  for (const NamedRule& rule : kRules) ids.emplace_back(rule.id);
  return ids;
}

}  // namespace tidemark
