#include "analysis/findings/causes/held_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/insight/categories/queued_inputs.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Whether a line of the program itself made a block, and not for its step. `queued`: batches are
// loaded far ahead by its line.
bool may_be_held(const DeviceEvidence& d, size_t row, uint32_t step_begin, bool queued) {
  switch (d.roles->of(d.model->allocations.stack(row))) {
    case StackRole::kUser:
    case StackRole::kLoading:
    case StackRole::kModuleSetUp:
    case StackRole::kData:
    case StackRole::kSaving:
      break;
    default:
      return false;
  }
  const Category category = d.categories.of[row];
  if (category == Category::kUnknown || category == Category::kKvCache) return true;
  return category == Category::kInput && (queued || d.model->allocations.birth(row) < step_begin);
}

// The end of the last step that is over when an event happens.
uint32_t begin_of_step(const DeviceEvidence& d, uint32_t event) {
  const auto& boundaries = d.steps.boundaries;
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  uint32_t begin = next == boundaries.begin() ? 0 : *std::prev(next);
  for (const BackwardPass& pass : d.backward_passes) {
    if (pass.last < event) begin = std::max(begin, pass.last);
  }
  return begin;
}

// Whether the passes of the model keep hardly anything, as those of a program that serves: what
// other lines keep belongs to none of them.
bool passes_keep_little(const DeviceEvidence& d, uint32_t event) {
  if (d.categories.has_backward) return false;
  const AllocationColumns& all = d.model->allocations;
  uint64_t made = 0;
  uint64_t kept = 0;
  for (size_t i = 0; i < all.size() && all.birth(i) <= event; ++i) {
    if (d.roles->of(all.stack(i)) != StackRole::kForward) continue;
    made += all.block_bytes(i);
    if (all.release(i) > event) kept += all.block_bytes(i);
  }
  return kept <= made / 4;
}

// Collects what lines hold. What a line makes in the running step, between passes of the model or
// in a few blocks, belongs to the step.
class Collection {
 public:
  Collection(const DeviceEvidence& d, uint32_t event)
      : d_(d),
        step_begin_(std::max(begin_of_step(d, event), begin_of_first_pass(d))),
        serves_(passes_keep_little(d, event)) {
    if (d.categories.has_backward) {
      for (const QueuedLine& line : lines_queued_ahead(*d.model, *d.roles, d.steps)) {
        queued_.insert(line.stack);
      }
    }
    const AllocationColumns& all = d.model->allocations;
    for (size_t i = 0; i < all.size() && all.birth(i) <= event; ++i) {
      const bool in_pass = d.roles->of(all.stack(i)) == StackRole::kForward;
      if (in_pass && !in_pass_) ++passes_;
      in_pass_ = in_pass;
      const bool alive = all.release(i) > event && all.stack(i) != 0;
      if (alive && may_be_held(d, i, step_begin_, queued_.contains(all.stack(i))))
        add(static_cast<uint32_t>(i));
    }
  }

  std::vector<HeldLine> lines(uint64_t least_bytes) {
    constexpr size_t kFewBlocks = 4;
    std::vector<HeldLine> held;
    for (auto& [headline, line] : lines_) {
      const bool collected = !line.among_passes && line.of_step.rows.size() > kFewBlocks;
      if (collected) take(line.of_step, line.held);
      line.held.line = headline;
      if (!line.held.rows.empty() && line.held.bytes >= least_bytes)
        held.push_back(std::move(line.held));
    }
    // Of equal ones, the first that was made.
    std::sort(held.begin(), held.end(), [](const HeldLine& a, const HeldLine& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.rows.front() < b.rows.front();
    });
    return held;
  }

 private:
  struct Line {
    HeldLine held;
    HeldLine of_step;     // made in the running step
    uint32_t passes = 0;  // before the first of these
    bool among_passes = false;
  };

  static void take(const HeldLine& from, HeldLine& to) {
    if (to.rows.empty()) to.stack = from.stack;
    to.bytes += from.bytes;
    to.rows.insert(to.rows.end(), from.rows.begin(), from.rows.end());
  }

  void add(uint32_t row) {
    const AllocationColumns& all = d_.model->allocations;
    const auto [headline, added] = headlines_.try_emplace(all.stack(row));
    if (added) headline->second = headline_of(d_.process->names.stack_text(all.stack(row)));
    Line& line = lines_[headline->second];
    const HeldLine block{all.stack(row), {}, all.block_bytes(row), {row}};
    if (serves_ || all.seeded(row) || all.birth(row) < step_begin_ ||
        queued_.contains(all.stack(row))) {
      take(block, line.held);
      return;
    }
    if (line.of_step.rows.empty()) line.passes = passes_;
    line.among_passes = line.among_passes || line.passes != passes_;
    take(block, line.of_step);
  }

  const DeviceEvidence& d_;
  const uint32_t step_begin_;
  const bool serves_;
  uint32_t passes_ = 0;
  bool in_pass_ = false;
  std::unordered_set<uint32_t> queued_;                  // stacks
  std::unordered_map<uint32_t, std::string> headlines_;  // by stack
  std::map<std::string, Line> lines_;
};

std::string place(const DeviceEvidence& d, const HeldLine& line) {
  return place_of(d.process->names.stack_text(line.stack));
}

}  // namespace

uint32_t begin_of_first_pass(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    if (d.roles->of(all.stack(i)) == StackRole::kForward) return all.birth(i);
  }
  return 0;
}

std::vector<HeldLine> lines_held_at(const DeviceEvidence& d, uint32_t event, uint64_t least_bytes) {
  return Collection(d, event).lines(least_bytes);
}

std::string held_text(const DeviceEvidence& d, const std::vector<HeldLine>& lines) {
  constexpr size_t kMostLines = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kMostLines, lines.size()); ++i) {
    text += fmt::format("{}{}{} {} ({})", i == 0 ? "" : ", ", place(d, lines[i]),
                        i == 0 ? " holds" : "", size_text(lines[i].bytes),
                        counted(lines[i].rows.size(), "block"));
  }
  // Batches that are loaded ahead are as large as those that are used.
  const bool are_inputs = std::all_of(lines.begin(), lines.end(), [&](const HeldLine& line) {
    return d.categories.of[line.rows.front()] == Category::kInput;
  });
  return are_inputs ? text : text + ", whatever the batch is";
}

Advice hold_less(const DeviceEvidence& d, const HeldLine& line,
                 const std::vector<HeldLine>& lines) {
  std::string places = place(d, line);
  uint64_t bytes = line.bytes;
  for (const HeldLine& other : lines) {
    const bool alike = other.bytes == line.bytes && other.rows.size() == line.rows.size();
    if (!alike || other.line == line.line) continue;
    places += " and " + place(d, other);
    bytes += other.bytes;
  }
  return {"hold_less",
          fmt::format("hold less at {}: free what is no longer used, make a pool or cache smaller, "
                      "or keep it in host memory and move what a batch needs: frees up to {}",
                      places, size_text(bytes)),
          bytes};
}

}  // namespace tidemark
