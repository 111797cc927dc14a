// A program that does not train keeps the result of each pass in a list and then joins them
// (torch.stack, torch.cat): for a moment, everything is there twice.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/findings/rules.h"
#include "analysis/history/memory_state.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/module_stacks.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
constexpr size_t kLeastParts = 4;

struct JoinedLines {
  uint32_t parts = 0;  // stacks
  uint32_t whole = 0;
};

struct Join {
  std::vector<uint32_t> parts;  // rows, in the order of birth
  uint32_t whole = 0;           // row
};

class Search {
 public:
  explicit Search(const DeviceEvidence& d)
      : d_(d), all_(d.model->allocations), in_module_(module_stacks(d.process->names)) {}

  // The lines of the largest join whose result is there at the peak.
  std::optional<JoinedLines> lines() const {
    const MemoryState peak = state_after(*d_.model, d_.model->allocated_peak.event);
    std::optional<JoinedLines> found;
    uint64_t most = std::max(kWorthSaying, d_.peak_bytes() / 5) - 1;
    for (const uint32_t row : peak.live) {
      if (all_.seeded(row) || all_.block_bytes(row) <= most || is_of_model(row)) continue;
      const uint32_t parts = parts_of(row);
      if (parts == 0) continue;
      most = all_.block_bytes(row);
      found = JoinedLines{parts, all_.stack(row)};
    }
    return found;
  }

  // All that these lines join, in the whole history.
  std::vector<Join> joins(const JoinedLines& lines) const {
    std::vector<Join> found;
    std::vector<uint32_t> held;  // a heap: what is released first is at its front
    uint64_t sum = 0;
    const auto later = [&](uint32_t a, uint32_t b) { return all_.release(a) > all_.release(b); };
    for (uint32_t i = 0; i < all_.size(); ++i) {
      if (all_.seeded(i)) continue;
      if (all_.stack(i) == lines.whole && all_.block_bytes(i) >= kWorthSaying) {
        while (!held.empty() && all_.release(held.front()) <= all_.birth(i)) {
          sum -= all_.asked_bytes(held.front());
          std::pop_heap(held.begin(), held.end(), later);
          held.pop_back();
        }
        if (are_joined(held.size(), sum, i)) {
          std::sort(held.begin(), held.end());
          found.push_back({std::exchange(held, {}), i});
          sum = 0;
        }
      }
      if (all_.stack(i) != lines.parts) continue;
      sum += all_.asked_bytes(i);
      held.push_back(i);
      std::push_heap(held.begin(), held.end(), later);
    }
    return found;
  }

 private:
  bool is_of_model(uint32_t row) const {
    const uint32_t stack = all_.stack(row);
    return d_.roles->of(stack) != StackRole::kUser ||
           (stack < in_module_.size() && in_module_[stack]);
  }

  // The line whose blocks make up this one; 0: none.
  uint32_t parts_of(uint32_t whole) const {
    std::map<uint32_t, std::vector<uint32_t>> by_stack;
    for (const uint32_t row : state_after(*d_.model, all_.birth(whole)).live) {
      if (row != whole && !all_.seeded(row)) by_stack[all_.stack(row)].push_back(row);
    }
    for (auto& [stack, rows] : by_stack) {
      std::sort(rows.begin(), rows.end());
      uint64_t sum = 0;
      for (const uint32_t row : rows) sum += all_.asked_bytes(row);
      if (stack != 0 && are_joined(rows.size(), sum, whole) && are_of_passes(rows)) return stack;
    }
    return 0;
  }

  // Blocks are rounded up.
  bool are_joined(size_t parts, uint64_t sum, uint32_t whole) const {
    const uint64_t bytes = all_.asked_bytes(whole);
    return parts >= kLeastParts && std::max(sum, bytes) - std::min(sum, bytes) <= bytes / 64;
  }

  // Whether the model ran before each of them.
  bool are_of_passes(const std::vector<uint32_t>& parts) const {
    for (size_t i = 1; i < parts.size(); ++i) {
      bool passed = false;
      for (uint32_t row = parts[i - 1] + 1; row <= parts[i] && !passed; ++row) {
        passed = d_.roles->of(all_.stack(row)) == StackRole::kForward;
      }
      if (!passed) return false;
    }
    return true;
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const std::vector<bool> in_module_;  // by stack
};

}  // namespace

void find_joined_results(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.model->event_count() == 0 || d.categories.has_backward) continue;
    const Search search(d);
    const std::optional<JoinedLines> lines = search.lines();
    if (!lines) continue;
    const AllocationColumns& all = d.model->allocations;
    Rehearsal on_host(*d.model);   // only the newest result is there
    Rehearsal in_place(*d.model);  // the joined block is there from the beginning, instead
    const Join* most = nullptr;
    const std::vector<Join> joins = search.joins(*lines);
    for (const Join& join : joins) {
      for (size_t i = 0; i < join.parts.size(); ++i) {
        const uint32_t next = i + 1 < join.parts.size() ? join.parts[i + 1] : join.whole;
        on_host.leave_out_from(all[join.parts[i]], all.birth(next));
        in_place.leave_out_from(all[join.parts[i]], all.birth(next));
      }
      on_host.leave_out(all[join.whole]);
      in_place.hold_from(all[join.whole], all.birth(join.parts.front()));
      if (most == nullptr || all.block_bytes(join.whole) > all.block_bytes(most->whole)) {
        most = &join;
      }
    }
    const uint64_t saved = on_host.saved_bytes();
    if (most == nullptr || saved < d.peak_bytes() / 5) continue;
    const uint64_t bytes = all.block_bytes(most->whole);
    const std::string parts = place_of(d.process->names.stack_text(lines->parts));
    Finding f = d.finding("joined_results", d.is_tight() ? kWarning : kInfo,
                          fmt::format("results of {} passes are kept until they are joined into "
                                      "one block of as much: twice {}",
                                      grouped(most->parts.size()), size_text(bytes)));
    f.evidence = {
        {"bytes", bytes}, {"blocks", most->parts.size()}, {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(lines->whole);
    f.advice.push_back(
        {"collect_on_host",
         fmt::format("keep only those results of {} that are used, or move each to host memory as "
                     "it is made: saves {}{}",
                     parts, d.ends_at_failure() ? "at least " : "up to ", size_text(saved)),
         saved});
    const uint64_t saved_in_place = in_place.saved_bytes();
    if (saved_in_place >= d.peak_bytes() / 20) {
      f.advice.push_back(
          {"collect_in_place",
           fmt::format("if all are needed on the card, write each into its place of one tensor "
                       "that is made before: saves {}{}",
                       d.ends_at_failure() ? "at least " : "", size_text(saved_in_place)),
           saved_in_place});
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
