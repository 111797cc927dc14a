// What was read from a checkpoint is still on the card after it has been copied into the model.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stacks_with.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{8} << 20;
constexpr uint32_t kStepsKept = 2;  // so many steps began while it was alive

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool loads(std::string_view function, std::string_view file) {
  if (!contains(function, "load")) return false;
  return contains(file, "torch/serialization.py") || contains(file, "safetensors/") ||
         contains(file, "torch/distributed/checkpoint/");
}

// Which stacks, by id, read a checkpoint.
std::vector<bool> loading_stacks(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& frame) {
    return loads(names.string(frame.function), names.string(frame.file));
  });
}

// Whether a model can hold another copy of a loaded block, in the same or in another precision.
// Each block of the model is the copy of one.
class Copies {
 public:
  void add(uint64_t bytes) { ++sizes_[bytes]; }
  bool take(uint64_t bytes) {
    for (const uint64_t size : {bytes, bytes / 2, bytes * 2}) {
      const auto found = sizes_.find(size);
      if (found == sizes_.end() || found->second == 0) continue;
      --found->second;
      return true;
    }
    return false;
  }

 private:
  std::unordered_map<uint64_t, uint64_t> sizes_;
};

struct Kept {
  std::vector<size_t> rows;
  uint64_t bytes = 0;
  uint64_t copied_bytes = 0;  // of which the model has a copy
  std::unordered_map<uint32_t, uint64_t> by_stack;
};

bool is_kept(const DeviceEvidence& d, const Allocation& a) {
  uint32_t event = a.birth;
  for (uint32_t i = 0; i < kStepsKept; ++i) {
    event = d.steps.end_of_step(event);
    if (event == kNever || event >= a.release) return false;
  }
  return true;
}

// Loaded blocks that are not themselves the model's, as they are after
// load_state_dict(assign=True), after loading a whole model, or in an optimizer that continues.
Kept kept_by_checkpoint(const DeviceEvidence& d) {
  Kept kept;
  const std::vector<bool> loading = loading_stacks(d.process->names);
  if (std::find(loading.begin(), loading.end(), true) == loading.end()) return kept;
  const AllocationColumns& all = d.model->allocations;
  Copies copies;
  bool makes_states = !d.categories.has_optimizer;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t stack = all.stack(i);
    makes_states = makes_states || d.roles->of(stack) == StackRole::kOptimizerInit;
    if (stack < loading.size() && loading[stack]) continue;
    if (d.categories.of[i] == Category::kParameter) copies.add(all.asked_bytes(i));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const Allocation a = all[i];
    if (a.stack >= loading.size() || !loading[a.stack]) continue;
    if (a.category != Category::kUnknown || !is_kept(d, a)) continue;
    const bool copied = copies.take(a.asked_bytes());
    // An optimizer that makes no states of its own may use the loaded ones.
    if (!copied && !makes_states) continue;
    kept.rows.push_back(i);
    kept.bytes += a.block_bytes;
    if (copied) kept.copied_bytes += a.block_bytes;
    kept.by_stack[a.stack] += a.block_bytes;
  }
  return kept;
}

bool computes(const DeviceEvidence& d) {
  if (d.model == nullptr) return false;
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    if (d.roles->of(all.stack(i)) == StackRole::kForward) return true;
  }
  return false;
}

// Blocks of a card on which the process reads a checkpoint and does nothing else, while it computes
// on another one: what was saved from cuda:0 is loaded to it by every rank.
Kept kept_on_foreign_card(const Evidence& evidence, const DeviceEvidence& d) {
  const auto computes_elsewhere = [&](const DeviceEvidence& other) {
    return other.process == d.process && other.device != d.device && computes(other);
  };
  Kept kept;
  const auto& devices = evidence.devices;
  if (computes(d) || std::none_of(devices.begin(), devices.end(), computes_elsewhere)) return kept;
  const std::vector<bool> loading = loading_stacks(d.process->names);
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t stack = all.stack(i);
    if (stack >= loading.size() || !loading[stack] || all.release(i) != kNever) continue;
    kept.rows.push_back(i);
    kept.bytes += all.block_bytes(i);
    kept.by_stack[stack] += all.block_bytes(i);
  }
  return kept;
}

void find_on_foreign_card(const Evidence& evidence, const DeviceEvidence& d,
                          std::vector<Finding>& out) {
  const Kept kept = kept_on_foreign_card(evidence, d);
  if (kept.bytes < std::max(kWorthSaying, d.peak_bytes() / 10 * 9)) return;
  Finding f = d.finding("checkpoint_kept", kWarning,
                        fmt::format("{} that a checkpoint was read into stay on cuda:{}, where "
                                    "this process computes nothing",
                                    size_text(kept.bytes), d.device));
  f.evidence = {{"checkpoint_bytes", kept.bytes},
                {"blocks", kept.rows.size()},
                {"allocated_peak_bytes", d.peak_bytes()}};
  f.frames = d.process->names.stack_text(largest_stack(kept.by_stack));
  f.advice.push_back(
      {"load_on_host",
       fmt::format("load with map_location=\"cpu\", or to the process's own card, and "
                   "del what was loaded once it is copied into the model: saves {} "
                   "on that card, for each process that does this",
                   size_text(kept.bytes)),
       kept.bytes});
  out.push_back(std::move(f));
}

// Without it, the request that failed would have fitted.
const char* severity_of(const DeviceEvidence& d, const Kept& kept, uint64_t saved) {
  if (d.ran_out()) {
    const FailedAllocation& failure = d.model->failures.back();
    uint64_t held = 0;
    for (const size_t i : kept.rows) {
      const Allocation& a = d.model->allocations[i];
      if (a.birth <= failure.event && a.release > failure.event) held += a.block_bytes;
    }
    if (held >= failure.requested_bytes) return kError;
  }
  return saved >= d.peak_bytes() / 20 ? kWarning : kInfo;
}

}  // namespace

void find_checkpoint_kept(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr) continue;
    find_on_foreign_card(evidence, d, out);
    if (d.steps.count() <= kStepsKept) continue;
    const Kept kept = kept_by_checkpoint(d);
    if (kept.bytes < kWorthSaying || kept.copied_bytes < kept.bytes / 3) continue;
    Rehearsal without(*d.model);
    for (const size_t i : kept.rows) without.leave_out(d.model->allocations[i]);
    const uint64_t saved = without.saved_bytes();
    if (saved < d.peak_bytes() / 50) continue;
    Finding f = d.finding(
        "checkpoint_kept", severity_of(d, kept, saved),
        fmt::format("{} that a checkpoint was read into stay on the card while the program goes on",
                    size_text(kept.bytes)));
    f.evidence = {{"checkpoint_bytes", kept.bytes},
                  {"blocks", kept.rows.size()},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(largest_stack(kept.by_stack));
    f.advice.push_back({"load_on_host",
                        fmt::format("load with map_location=\"cpu\", and del what was loaded once "
                                    "it is copied into the model: saves {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
