#include "analysis/findings/largest_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/findings/largest_stack.h"
#include "analysis/names/stack_lines.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// The line that made what the request that failed works on: the newest block of another line of its
// function. "" if there is none.
std::string input_of_failure(const DeviceEvidence& d) {
  if (!d.ran_out()) return "";
  const Dictionary& names = d.process->names;
  const FailedAllocation& failure = d.model->failures.back();
  const auto function_of = [](const std::string& frame) {
    return frame.substr(0, frame.rfind(':'));
  };
  const std::string failing = headline_of(names.stack_text(failure.stack));
  const AllocationColumns& all = d.model->allocations;
  std::unordered_map<uint32_t, std::string> headlines;  // by stack
  for (size_t i = births_within(*d.model, 0, failure.event + 1).end; i-- > 0;) {
    if (all.release(i) <= failure.event || all.block_bytes(i) < failure.requested_bytes / 4)
      continue;
    const auto [line, added] = headlines.try_emplace(all.stack(i));
    if (added) line->second = headline_of(names.stack_text(all.stack(i)));
    if (line->second == failing) continue;
    if (function_of(line->second) != function_of(failing)) return "";
    return place_of(names.stack_text(all.stack(i)));
  }
  return "";
}

}  // namespace

std::optional<LargestLine> largest_line(const DeviceEvidence& d, uint32_t event) {
  using BytesByStack = std::unordered_map<uint32_t, uint64_t>;
  BytesByStack by_stack;
  BytesByStack activations;
  BytesByStack gradients;
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size() && all.birth(i) <= event; ++i) {
    if (all.release(i) <= event) continue;
    const bool gradient = d.categories.of[i] == Category::kGradient && all.stack(i) != 0;
    (gradient ? gradients : by_stack)[all.stack(i)] += all.block_bytes(i);
    if (d.categories.of[i] == Category::kActivation)
      activations[all.stack(i)] += all.block_bytes(i);
  }
  const uint64_t unknown = by_stack[0];
  if (2 * unknown > d.model->totals_after(event).allocated) {
    if (d.model->seeded_blocks == 0) return std::nullopt;
    LargestLine older;
    older.bytes = unknown;
    return older;
  }
  const Dictionary& names = d.process->names;
  std::map<std::string, BytesByStack> by_place;
  if (!gradients.empty()) by_place[""] = std::move(gradients);
  for (const auto& [stack, bytes] : by_stack) {
    if (stack != 0) by_place[place_of(names.stack_text(stack))][stack] = bytes;
  }
  std::vector<std::pair<uint64_t, std::string>> lines;  // the largest first
  for (const auto& [place, stacks] : by_place) {
    uint64_t bytes = 0;
    for (const auto& [stack, part] : stacks) bytes += part;
    if (largest_stack(stacks) != 0) lines.emplace_back(bytes, place);
  }
  if (lines.empty()) return std::nullopt;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto& [bytes, place] = lines.front();
  const BytesByStack& stacks = by_place.at(place);
  uint64_t waiting = 0;
  for (const auto& [stack, part] : stacks) {
    if (const auto a = activations.find(stack); a != activations.end()) waiting += a->second;
  }
  const uint32_t stack = largest_stack(stacks);
  const bool backward = d.roles->of(stack) == StackRole::kBackward;
  LargestLine largest{bytes,
                      names.stack_text(stack),
                      place,
                      backward && place.find(':') == place.npos,
                      in_optimizer(d.roles->of(stack)),
                      waiting > bytes / 2,
                      {},
                      true};
  constexpr uint64_t kNearly = 20;  // 5 % less
  for (size_t i = 1; i < lines.size() && lines[i].first >= bytes - bytes / kNearly; ++i) {
    if (lines[i].second.empty()) continue;
    largest.as_much.push_back(lines[i].second);
    largest.equal = largest.equal && lines[i].first == bytes;
  }
  if (largest.frames.empty()) return std::nullopt;
  return largest;
}

Advice look_at(const DeviceEvidence& d, const LargestLine& largest) {
  if (largest.frames.empty()) {
    return {"record_longer",
            "most of what is in use is older than the recorded history: record from the start, or "
            "with more entries (max_entries), to see what filled the memory",
            0};
  }
  const std::string bytes = size_text(largest.bytes);
  if (largest.place.empty()) {
    return {"look_at_largest",
            bytes +
                " are gradients, more than any line holds, as much as the weights they are of: "
                "train fewer (adapters), or share them out among several cards (FSDP, ZeRO)",
            0};
  }
  if (largest.in_backward_pass) {
    return {"look_at_largest",
            fmt::format("{} are results of {} in the backward pass, more than any line holds",
                        bytes, largest.place),
            0};
  }
  if (largest.in_optimizer && largest.as_much.empty()) {
    return {"look_at_largest",
            fmt::format("{} are of the optimizer that steps at {}, more than any line holds: one "
                        "with fewer or 8-bit states takes less",
                        bytes, largest.place),
            0};
  }
  std::string lines =
      fmt::format("{} are of {}, more than of any other line", bytes, largest.place);
  if (!largest.as_much.empty()) {
    lines = fmt::format("{} are of {}, and {}as much of {}{}", bytes, largest.place,
                        largest.equal ? "" : "about ", largest.as_much.front(),
                        largest.as_much.size() == 1
                            ? ""
                            : fmt::format(" and of {} more", largest.as_much.size() - 1));
  }
  if (largest.waits_for_backward) {
    return {"look_at_largest",
            lines +
                ": activations, kept for the backward pass: recompute the layers that call it "
                "there (torch.utils.checkpoint), or give a pass less of the batch",
            0};
  }
  const std::string input = input_of_failure(d);
  const bool is_input = !input.empty() && (largest.place == input ||
                                           std::find(largest.as_much.begin(), largest.as_much.end(),
                                                     input) != largest.as_much.end());
  if (is_input) {
    return {"look_at_largest",
            fmt::format("{}: make them smaller; the line that failed works on what {} made", lines,
                        input),
            0};
  }
  return {"look_at_largest", lines + ": make them smaller, or free them earlier", 0};
}

}  // namespace tidemark
