#include "analysis/findings/causes/held_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/history/rehearsal.h"
#include "analysis/load/number_width.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// The innermost line of the program that is not part of a constructor: what the layers of a model
// are made in is one line each.
uint32_t making_line(const Dictionary& names, uint32_t stack) {
  for (uint32_t id = stack; id != 0; id = names.stack(id).parent) {
    const std::string frame = names.frame_text(names.stack(id).frame);
    const bool makes_layer = frame.substr(0, frame.find(' ')).ends_with("__init__");
    if (is_users_code(frame) && !makes_layer) return id;
  }
  return stack;
}

class MakingLines {
 public:
  explicit MakingLines(const Dictionary& names) : names_(names) {}
  uint32_t of(uint32_t stack) {
    const auto [line, added] = lines_.try_emplace(stack, 0);
    if (added) line->second = making_line(names_, stack);
    return line->second;
  }

 private:
  const Dictionary& names_;
  std::unordered_map<uint32_t, uint32_t> lines_;
};

// What may be a copy of weights: no module computed it, and what else it is, nobody knows. What the
// program holds for some steps looks like inputs.
bool may_be_copy(const DeviceEvidence& d, size_t row) {
  const StackRole role = d.roles->of(d.model->allocations.stack(row));
  const Category category = d.categories.of[row];
  return (category == Category::kUnknown || category == Category::kInput) &&
         (role == StackRole::kUser || role == StackRole::kLoading ||
          role == StackRole::kModuleSetUp);
}

// `times`: how much larger the original's blocks are.
bool has_sizes_of(const DeviceEvidence& d, const WeightsOfLine& copy, const WeightsOfLine& original,
                  uint64_t times) {
  constexpr size_t kLeastBlocks = 4;  // two blocks of one size are a coincidence
  if (copy.rows.size() < kLeastBlocks) return false;
  std::unordered_map<uint64_t, size_t> sizes;
  for (const uint32_t row : original.rows) ++sizes[d.model->allocations.asked_bytes(row)];
  uint64_t equal = 0;
  for (const uint32_t row : copy.rows) {
    const auto size = sizes.find(times * d.model->allocations.asked_bytes(row));
    if (size == sizes.end() || size->second == 0) continue;
    --size->second;
    equal += d.model->allocations.block_bytes(row);
  }
  return equal >= copy.bytes / 10 * 9;
}

// Groups of blocks of one line without a forward pass in between, in the order of their first
// birth.
struct Groups {
  std::vector<WeightsOfLine> weights;
  std::vector<WeightsOfLine> unknown;
};

Groups groups_at(const DeviceEvidence& d, uint32_t event) {
  const AllocationColumns& all = d.model->allocations;
  MakingLines lines(d.process->names);
  std::map<std::pair<uint32_t, uint32_t>, size_t> known[2];
  Groups groups;
  uint32_t passes = 0;
  bool in_pass = false;
  for (size_t i = 0; i < all.size() && all.birth(i) <= event; ++i) {
    const bool forward = d.roles->of(all.stack(i)) == StackRole::kForward;
    if (forward && !in_pass) ++passes;
    in_pass = forward;
    if (all.release(i) <= event) continue;
    const bool weight = d.categories.of[i] == Category::kParameter;
    if (!weight && !may_be_copy(d, i)) continue;
    std::vector<WeightsOfLine>& list = weight ? groups.weights : groups.unknown;
    const uint32_t line = lines.of(all.stack(i));
    const auto [place, added] = known[weight ? 0 : 1].try_emplace({line, passes}, list.size());
    if (added) list.push_back({line, 0, {}});
    WeightsOfLine& group = list[place->second];
    group.bytes += all.block_bytes(i);
    group.rows.push_back(static_cast<uint32_t>(i));
  }
  return groups;
}

// The group with the sizes of an earlier one, or with half of them, of which most can be freed: of
// a copy in half the precision, the original. All are alive: few are as large as `least_bytes`.
void find_copy(const DeviceEvidence& d, const Groups& groups, uint64_t least_bytes,
               HeldWeights& held) {
  uint64_t most = 0;
  const auto compare = [&](const WeightsOfLine& group) {
    for (const WeightsOfLine& earlier : groups.weights) {
      if (std::max(group.bytes, earlier.bytes) < least_bytes) continue;
      if (earlier.bytes < group.bytes / 10 * 9) continue;
      if (earlier.rows.front() >= group.rows.front()) continue;
      const bool same = has_sizes_of(d, group, earlier, 1);
      if (!same && !has_sizes_of(d, group, earlier, 2)) continue;
      const uint64_t bytes = same ? group.bytes : earlier.bytes;
      const bool is_whole = same || group.bytes >= earlier.bytes / 4;  // or at least half of it
      if (!is_whole || bytes < least_bytes || bytes <= most) continue;
      most = bytes;
      held.copy = group;
      held.original = earlier;
      held.is_halved = !same;
      return;
    }
  };
  for (const WeightsOfLine& group : groups.weights) compare(group);
  for (const WeightsOfLine& group : groups.unknown) compare(group);
}

std::string place(const Dictionary& names, const WeightsOfLine& weights) {
  return weights.stack == 0 ? "the code before the recording"
                            : place_of(names.stack_text(weights.stack));
}

// "the weights of train.py:7"
std::string weights_of(const Dictionary& names, const WeightsOfLine& weights) {
  return weights.stack == 0 ? "the weights that are older than the recording"
                            : "the weights of " + place(names, weights);
}

// How often the line of the copy made it.
void count_times(const DeviceEvidence& d, const Groups& groups, HeldWeights& held) {
  if (!held.has_copy() || held.is_halved) return;
  const std::string line = place(d.process->names, held.copy);
  for (const WeightsOfLine& group : groups.weights) {
    if (place(d.process->names, group) != line || !has_sizes_of(d, group, held.original, 1))
      continue;
    ++held.times;
    held.times_bytes += group.bytes;
  }
}

bool are_side_by_side(const DeviceEvidence& d, const HeldWeights& held) {
  constexpr size_t kSeveral = 3;
  if (!held.has_copy()) return false;
  const AllocationColumns& all = d.model->allocations;
  const uint32_t last = std::max(held.copy.rows.back(), held.original.rows.back());
  const uint32_t end =
      std::min(all.release(held.copy.rows.front()), all.release(held.original.rows.front()));
  if (d.steps.before_event(end) < d.steps.before_event(all.birth(last)) + kSeveral) return false;
  for (uint32_t i = std::min(held.copy.rows.front(), held.original.rows.front()); i < last; ++i) {
    const StackRole role = d.roles->of(all.stack(i));
    if (role == StackRole::kForward || role == StackRole::kBackward) return false;
  }
  return true;
}

// What is saved if this share of them is not there.
uint64_t saved_without(const DeviceEvidence& d, const WeightsOfLine& weights, double share) {
  Rehearsal without(*d.model);
  for (const uint32_t row : weights.rows) without.leave_out(d.model->allocations[row], share);
  return without.saved_bytes();
}

}  // namespace

HeldWeights weights_held_at(const DeviceEvidence& d, uint32_t event, uint64_t least_copy_bytes) {
  HeldWeights held;
  const Groups groups = groups_at(d, event);
  find_copy(d, groups, least_copy_bytes, held);
  count_times(d, groups, held);
  held.side_by_side = are_side_by_side(d, held);
  const auto count = [&](const WeightsOfLine& group) {
    held.bytes += group.bytes;
    const auto same = std::find_if(held.lines.begin(), held.lines.end(),
                                   [&](const auto& line) { return line.stack == group.stack; });
    if (same == held.lines.end()) {
      held.lines.push_back(group);
      return;
    }
    same->bytes += group.bytes;
    same->rows.insert(same->rows.end(), group.rows.begin(), group.rows.end());
  };
  for (const WeightsOfLine& group : groups.weights) count(group);
  const bool of_unknown =
      held.has_copy() && d.categories.of[held.copy.rows.front()] != Category::kParameter;
  if (of_unknown) count(held.copy);
  std::stable_sort(held.lines.begin(), held.lines.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return held;
}

std::string weights_text(const Dictionary& names, const HeldWeights& weights) {
  constexpr size_t kMostLines = 3;
  std::string text =
      fmt::format("weights take {}, which the batch does not change", size_text(weights.bytes));
  std::vector<std::pair<std::string, uint64_t>> lines;  // one line may be called by several
  for (const WeightsOfLine& line : weights.lines) {
    const std::string at =
        line.stack == 0 ? "older than the recording" : "of " + place(names, line);
    const auto same = std::find_if(lines.begin(), lines.end(),
                                   [&](const auto& known) { return known.first == at; });
    (same == lines.end() ? lines.emplace_back(at, 0) : *same).second += line.bytes;
  }
  for (size_t i = 0; i < std::min(kMostLines, lines.size()); ++i) {
    const auto& [at, bytes] = lines[i];
    if (bytes < weights.bytes / 20) break;
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",",
                        lines.size() == 1 ? "all" : size_text(bytes), at);
  }
  if (!weights.has_copy()) return text;
  const std::string copy = place(names, weights.copy);
  const std::string original = place(names, weights.original);
  if (copy == original && weights.times > 2) {
    return text + fmt::format(", which made the same sizes {} times ({} in all)", weights.times,
                              size_text(weights.times_bytes));
  }
  if (copy == original) {
    return text + fmt::format(", which made the same sizes twice ({} and {})",
                              size_text(weights.original.bytes), size_text(weights.copy.bytes));
  }
  return text + fmt::format("; {} made a copy of those of {} ({})", copy, original,
                            weights.is_halved ? "half the sizes" : "the same sizes");
}

namespace {

// Under autocast, products of a model in 32 bits have 16 as well, but an optimizer tells then.
bool have_16_bits(const DeviceEvidence& d) {
  const NumberWidth optimized = width_of_optimized(d.process->names);
  return width_of_products(d.process->compute) == NumberWidth::k16 &&
         optimized != NumberWidth::k32 && optimized != NumberWidth::kBoth;
}

// How weights take half of what they do.
std::string_view fewer_bits(const DeviceEvidence& d) {
  return have_16_bits(d) ? "quantized to 8 bits" : "in half the precision";
}

}  // namespace

Advice smaller_weights(const DeviceEvidence& d, const HeldWeights& weights, bool failed) {
  const Dictionary& names = d.process->names;
  if (weights.has_copy()) {
    const std::string copy = place(names, weights.copy);
    if (copy == place(names, weights.original) && weights.side_by_side) {
      const uint64_t saved = saved_without(d, weights.copy, 1);
      return {"move_copy",
              fmt::format("if one of the models that {} makes is not trained (a teacher, a "
                          "reference model), compute its results beforehand, or keep it in host "
                          "memory or on another card: saves {}; {} it takes half of that",
                          copy, size_text(saved), fewer_bits(d)),
              saved};
    }
    if (copy == place(names, weights.original)) {
      const uint64_t bytes = freed_by_one_copy(weights);
      return {"free_old_weights",
              fmt::format("free the old weights before {} makes new ones (del, gc.collect(), "
                          "torch.cuda.empty_cache()), or load the new ones into them "
                          "(load_state_dict of a checkpoint in host memory){}: frees {}",
                          copy, weights.times > 2 ? ", or let all users share one copy" : "",
                          size_text(bytes)),
              bytes};
    }
    if (weights.is_halved) {
      return {
          "free_old_weights",
          fmt::format("the copy that {} makes has half the precision: if {} are "
                      "not needed then, load them in that precision at once (torch_dtype), or "
                      "free each one when it is converted: frees {}",
                      copy, weights_of(names, weights.original), size_text(weights.original.bytes)),
          weights.original.bytes};
    }
    const uint64_t saved = saved_without(d, weights.copy, 1);
    return {"move_copy",
            fmt::format("keep the copy that {} makes in host memory (device=\"cpu\") and update it "
                        "there: saves {}; {} it takes half of that",
                        copy, size_text(saved), fewer_bits(d)),
            saved};
  }
  const WeightsOfLine& largest = weights.lines.front();
  const uint64_t saved = saved_without(d, largest, 0.5);
  if (weights.lines.size() > 1 && !failed) {
    return {"smaller_weights",
            fmt::format("if {} are not trained (a teacher, a reference model), keep "
                        "them {}: saves {}; in host memory or on another card, they take nothing "
                        "here",
                        weights_of(names, largest), fewer_bits(d), size_text(saved)),
            saved};
  }
  const std::string_view smaller =
      have_16_bits(d) ? "quantized to 8 bits" : "half the precision or quantized";
  return {
      "smaller_weights",
      fmt::format(
          "make {} take less: {} ({}), a part of the layers in host memory "
          "(device_map=\"auto\"), or the model sharded over several cards (FSDP, tensor "
          "parallelism)",
          weights_of(names, largest), smaller,
          failed ? "more would have followed" : fmt::format("saves {} or more", size_text(saved))),
      saved};
}

uint64_t freed_by_one_copy(const HeldWeights& weights) {
  const uint64_t one = std::max(weights.original.bytes, weights.copy.bytes);
  return std::max(weights.original.bytes, weights.times_bytes - std::min(weights.times_bytes, one));
}

bool makes_weights(const DeviceEvidence& d, const HeldWeights& weights, uint32_t stack) {
  const StackRole role = d.roles->of(stack);
  if (role == StackRole::kLoading || role == StackRole::kModuleSetUp) return true;
  const uint32_t line = making_line(d.process->names, stack);
  return std::any_of(weights.lines.begin(), weights.lines.end(),
                     [&](const WeightsOfLine& w) { return w.stack == line && line != 0; });
}

}  // namespace tidemark
