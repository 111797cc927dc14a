#include "analysis/findings/rules.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

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
    {"creep", find_creep},
    {"retained_graph", find_retained_graph},
    {"eval_keeps_graph", find_eval_keeps_graph},
    {"accumulated_graphs", find_accumulated_graphs},
    {"unused_gradients", find_unused_gradients},
    {"checkpoint_kept", find_checkpoint_kept},
    {"one_operation_peak", find_one_operation_peak},
    {"activation_peak", find_activation_peak},
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

// What filled the memory comes before the request that no longer fitted, and a limit that the
// program set in between.
int order_of_cause(const Finding& f) {
  if (f.severity != kError) return 2;
  if (f.id == "creep" || f.id == "retained_graph" || f.id == "eval_keeps_graph" ||
      f.id == "accumulated_graphs" || f.id == "one_operation_peak" || f.id == "checkpoint_kept" ||
      f.id == "rank_imbalance" || f.id == "stray_context") {
    return 0;
  }
  return f.id == "memory_fraction" ? 1 : 2;
}

// What a cause and its effect have in common.
using WhereFound = std::tuple<std::string, int64_t, int64_t, int64_t, std::string>;

WhereFound where_found(const Finding& f) {
  return {f.severity, f.rank, f.pid, f.device, headline_of(f.frames)};
}

// A large operation of a part that is computed for nothing comes after that part, and what one rank
// needs more than the others after the growth that it is. Returns the effect; empty: not a cause.
std::string_view effect_of(const Finding& f) {
  if (f.id == "unused_gradients" || f.id == "eval_keeps_graph") return "one_operation_peak";
  return f.id == "creep" || f.id == "retained_graph" ? "rank_imbalance" : "";
}

void put_causes_first(std::vector<Finding>& findings) {
  std::map<std::pair<std::string_view, WhereFound>, size_t> last_cause;  // by effect
  for (size_t i = 0; i < findings.size(); ++i) {
    const std::string_view effect = effect_of(findings[i]);
    if (!effect.empty()) last_cause[{effect, where_found(findings[i])}] = i;
  }
  if (last_cause.empty()) return;
  std::map<size_t, std::vector<Finding>> waiting;  // by their cause
  std::vector<Finding> ordered;
  for (size_t i = 0; i < findings.size(); ++i) {
    const auto cause = last_cause.find({findings[i].id, where_found(findings[i])});
    if (cause != last_cause.end() && cause->second > i) {
      waiting[cause->second].push_back(std::move(findings[i]));
      continue;
    }
    ordered.push_back(std::move(findings[i]));
    if (const auto effects = waiting.find(i); effects != waiting.end()) {
      std::move(effects->second.begin(), effects->second.end(), std::back_inserter(ordered));
    }
  }
  findings = std::move(ordered);
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
  for (Finding& f : findings) {
    std::stable_sort(f.advice.begin(), f.advice.end(), [](const Advice& a, const Advice& b) {
      return a.saves_bytes > b.saves_bytes;
    });
  }
  sort_findings(findings);
  return findings;
}

void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    const int x = weight(a.severity);
    const int y = weight(b.severity);
    if (x != y) return x > y;
    // What the program itself does comes first.
    const bool others_a = a.id == "other_process";
    const bool others_b = b.id == "other_process";
    if (others_a != others_b) return others_b;
    const int cause_a = order_of_cause(a);
    const int cause_b = order_of_cause(b);
    if (cause_a != cause_b) return cause_a < cause_b;
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
