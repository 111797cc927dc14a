// A few blocks of one operation, far larger than what the rest of the program computes, are the
// largest part of the peak: logits of a large vocabulary, an attention matrix, a broadcast.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/findings/advice.h"
#include "analysis/findings/causes/carried_blocks.h"
#include "analysis/findings/causes/failed_for_holes.h"
#include "analysis/findings/causes/held_blocks.h"
#include "analysis/findings/causes/layer_blocks.h"
#include "analysis/findings/causes/unrelated_halves.h"
#include "analysis/findings/causes/unusual_request.h"
#include "analysis/findings/growth/kept_outputs.h"
#include "analysis/findings/operation.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
constexpr uint64_t kNotMuch = 128;  // one part in so many of the limit, where there is room
// Times the size of the largest other block. A layer's hidden state is four times its input.
constexpr uint64_t kOutlier = 5;
constexpr size_t kLeastStacks = 4;  // to compare with
constexpr size_t kMostNamed = 6;
constexpr size_t kNearBirths = 256;     // before and after the peak: about a pass of a model
constexpr uint32_t kBriefBirths = 64;   // a cache of keys and values lives longer
constexpr uint32_t kScratchEvents = 4;  // the workspace of a matrix product is gone after these
constexpr double kChunks = 16;

class Search {
 public:
  explicit Search(const DeviceEvidence& d) : d_(d), carried_(d) {
    for (const uint32_t i : d.categories.kept_without_backward) kept_.insert(i);
    first_pass_ = begin_of_first_pass(d);
    in_first_call_ = fails_in_first_call(d);
    if (const std::optional<KeptOutputs> outputs = outputs_kept(d)) {
      kept_.insert(outputs->collected.begin(), outputs->collected.end());
    }
    for (size_t i = 0; i < d.categories.of.size(); ++i) {
      if (d.categories.of[i] != Category::kParameter) continue;
      weights_.insert(d.model->allocations.block_bytes(i));
    }
    if (d.ran_out() && is_of_operation(d.model->failures.back())) {
      failure_ = &d.model->failures.back();
    }
  }

  // Whether a block is the result of a computation, and not input, a cache or a collection.
  bool is_computed(size_t i) const {
    const Allocation a = d_.model->allocations[i];
    const Category category = d_.categories.of[i];
    if (a.seeded || is_of_model(category) || category == Category::kCommunication) return false;
    const StackRole role = d_.roles->of(a.stack);
    if (role == StackRole::kData || role == StackRole::kOptimizer) return false;
    if (role == StackRole::kUser && a.birth < first_pass_ && a.release == kNever) return false;
    if (is_added_to_gradient(a) || kept_.contains(i) || carried_.contains(i)) return false;
    const uint32_t lives = std::min(a.release, d_.model->event_count()) - a.birth;
    const bool stays = d_.categories.has_backward ? outlives_step(a)
                                                  : !in_first_call_ && lives >= 3 * kBriefBirths;
    if (stays) return false;
    return a.release != kNever || d_.ran_out();
  }

  Operation run() const {
    const uint32_t instant = failure_ != nullptr ? failure_->event : d_.model->allocated_peak.event;
    std::vector<size_t> live;
    Operation found;
    found.all_bytes = d_.peak_bytes();
    if (failure_ != nullptr) {
      found.largest_bytes = failure_->requested_bytes;
      found.all_bytes = d_.at_failure().allocated + failure_->requested_bytes;
    }
    for (size_t i = 0; i < d_.model->allocations.size(); ++i) {
      const AllocationColumns& all = d_.model->allocations;
      if (all.birth(i) > instant) break;
      if (all.release(i) <= instant || all.seeded(i) || is_of_model(d_.categories.of[i])) continue;
      if (!is_computed(i)) {
        found.others_bytes += all.block_bytes(i);
        continue;
      }
      live.push_back(i);
      found.largest_bytes = std::max(found.largest_bytes, all.block_bytes(i));
    }
    describe(live, found);
    compare(instant, found);
    return found;
  }

 private:
  static bool computes(StackRole role) {
    return role == StackRole::kForward || role == StackRole::kUser;
  }

  // Whether a request would have been the highest peak, and a line of the program that computes
  // something made it, not for the first time; or one of the shape of such a line's result that is
  // there, as for its gradient.
  bool is_of_operation(const FailedAllocation& failure) const {
    const StackRole role = d_.roles->of(failure.stack);
    if (!computes(role) && role != StackRole::kBackward) return false;
    if (d_.at_failure().allocated + failure.requested_bytes < d_.peak_bytes()) return false;
    const AllocationColumns& all = d_.model->allocations;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool of_line = computes(role) && all.stack(i) == failure.stack;
      const bool is_there =
          !all.seeded(i) && all.release(i) > failure.event && computes(d_.roles->of(all.stack(i)));
      const bool of_shape = is_there && of_one_shape(failure.requested_bytes, all.block_bytes(i));
      if ((of_line || of_shape) && is_computed(i)) return true;
    }
    return false;
  }

  static bool is_of_model(Category category) {
    return category == Category::kParameter || category == Category::kGradient ||
           category == Category::kOptimizerState;
  }
  bool outlives_step(const Allocation& a) const {
    const uint32_t end = d_.steps.end_of_step(a.birth);
    const uint32_t next = end == kNever ? kNever : d_.steps.end_of_step(end);
    return next != kNever && a.release > next;
  }

  // Also of half the precision. The allocator rounds sizes up.
  static bool is_exactly(uint64_t bytes, uint64_t largest) {
    constexpr uint64_t kRounding = 512;
    return largest - std::min(largest, bytes) <= kRounding ||
           (largest >= 2 * bytes ? largest - 2 * bytes : 2 * bytes - largest) <= 2 * kRounding;
  }

  void describe(const std::vector<size_t>& live, Operation& found) const {
    const AllocationColumns& all = d_.model->allocations;
    std::unordered_map<uint32_t, uint64_t> by_stack;
    uint64_t whole = 0;
    uint64_t half = 0;
    std::vector<size_t> others;
    for (const size_t i : live) {
      const uint64_t bytes = all.block_bytes(i);
      if (!of_one_shape(bytes, found.largest_bytes)) {
        found.others_bytes += bytes;
        others.push_back(i);
        continue;
      }
      found.rows.push_back(i);
      found.varies = found.varies || !is_exactly(bytes, found.largest_bytes);
      found.bytes += bytes;
      ++found.blocks;
      (3 * bytes > 2 * found.largest_bytes ? whole : half) += bytes;
      by_stack[all.stack(i)] += bytes;
    }
    if (failure_ != nullptr && of_one_shape(failure_->requested_bytes, found.largest_bytes)) {
      const uint64_t bytes = failure_->requested_bytes;
      found.failed = true;
      found.varies = found.varies || !is_exactly(bytes, found.largest_bytes);
      found.bytes += bytes;
      ++found.blocks;
      (3 * bytes > 2 * found.largest_bytes ? whole : half) += bytes;
      by_stack[failure_->stack] += bytes;
    }
    found.next_live = blocks_of_layers(d_, others).largest_bytes;
    found.converted = found.blocks == 2 && whole != 0 && half != 0;
    found.usual_bytes = whole >= half ? found.largest_bytes : found.largest_bytes / 2;
    // A line of the program says more than an operation of the backward pass.
    uint64_t most = 0;
    for (const auto& [stack, bytes] : by_stack) {
      found.stacks.push_back(stack);
      const bool named = d_.roles->of(stack) != StackRole::kBackward;
      found.named += named ? 1U : 0U;
      const uint64_t weight = named ? bytes + found.bytes : bytes;
      if (weight < most || (weight == most && stack > found.stack)) continue;
      most = weight;
      found.stack = stack;
    }
  }

  // The early layers of a network are alone when they run: what is alive at the peak says nothing
  // of the sizes that the program computes otherwise. Where batches or prompts differ, so do the
  // operation's results.
  void compare(uint32_t instant, Operation& found) const {
    const AllocationColumns& all = d_.model->allocations;
    const size_t at = births_within(*d_.model, 0, instant + 1).end;
    const size_t begin = at - std::min(at, kNearBirths);
    const size_t end = std::min(all.size(), at + kNearBirths);
    std::unordered_set<uint64_t> sizes;
    for (size_t i = begin; i < end; ++i) {
      if (is_named_part(i, found)) sizes.insert(all.block_bytes(i));
    }
    std::unordered_set<uint32_t> stacks;
    for (size_t i = begin; i < end; ++i) {
      const uint64_t bytes = all.block_bytes(i);
      if (!is_computed(i) || is_scratch(i)) continue;
      // Of booleans, for numbers of 32 bits.
      const bool is_mask =
          4 * bytes == found.largest_bytes && d_.roles->of(all.stack(i)) == StackRole::kBackward;
      if (of_one_shape(bytes, found.largest_bytes) || sizes.contains(bytes) || is_mask) {
        ++found.near;
        continue;
      }
      ++found.near_others;
      found.next_bytes = std::max(found.next_bytes, bytes);
      stacks.insert(all.stack(i));
    }
    found.other_stacks = stacks.size();
    found.sizes = sizes_of_results(found);
  }

  // A line of the program that computes the operation.
  bool is_named_part(size_t i, const Operation& found) const {
    const uint32_t stack = d_.model->allocations.stack(i);
    return d_.roles->of(stack) != StackRole::kBackward &&
           std::find(found.stacks.begin(), found.stacks.end(), stack) != found.stacks.end();
  }

  std::unordered_set<uint64_t> sizes_of_results(const Operation& found) const {
    std::unordered_set<uint64_t> sizes;
    for (size_t i = 0; i < d_.model->allocations.size(); ++i) {
      if (is_named_part(i, found)) sizes.insert(d_.model->allocations.block_bytes(i));
    }
    return sizes;
  }

  // What one operation of the backward pass needs while it runs: no tensor of the program, and as
  // large as the library likes.
  bool is_scratch(size_t i) const {
    const Allocation a = d_.model->allocations[i];
    return d_.roles->of(a.stack) == StackRole::kBackward && a.release - a.birth <= kScratchEvents;
  }

  // In the size of a weight, or of half its precision.
  bool is_added_to_gradient(const Allocation& a) const {
    return d_.roles->of(a.stack) == StackRole::kBackward &&
           (weights_.contains(a.block_bytes) || weights_.contains(2 * a.block_bytes));
  }

  const DeviceEvidence& d_;
  const CarriedBlocks carried_;
  const FailedAllocation* failure_ = nullptr;  // the request that would have been the highest peak
  uint32_t first_pass_ = 0;                    // event
  bool in_first_call_ = false;                 // of the model; nothing is left of an earlier one
  std::unordered_set<uint64_t> weights_;       // sizes of blocks
  std::unordered_set<size_t> kept_;            // rows of unused graphs and of lists of outputs
};

// Whether the line of the request that failed was given as much before: its size is nothing new.
bool has_fitted_before(const DeviceEvidence& d) {
  const FailedAllocation& failure = d.model->failures.back();
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size() && all.birth(i) <= failure.event; ++i) {
    if (all.stack(i) == failure.stack && all.block_bytes(i) >= failure.requested_bytes &&
        all.release(i) <= failure.event) {
      return true;
    }
  }
  return false;
}

// A peak that fits is nothing wrong. Holes are to blame for a request that has fitted before.
const char* severity_of(const DeviceEvidence& d, const Operation& o) {
  const bool for_holes = o.failed && failed_for_holes(d) && has_fitted_before(d);
  if (o.failed && !for_holes) return kError;
  return d.is_tight() ? kWarning : kInfo;
}

// One request of a server that makes the peak. If it failed, capacity says so.
void find_unusual_request(const DeviceEvidence& d, const std::optional<UnusualRequest>& request,
                          std::vector<Finding>& out) {
  if (!request || d.ran_out() || d.has_room()) return;
  Finding f = d.finding("one_operation_peak", d.is_tight() ? kWarning : kInfo,
                        unusual_text(*request) + ", and made the peak");
  f.evidence = {{"bytes", request->bytes},
                {"usual_bytes", request->usual_bytes},
                {"allocated_peak_bytes", d.peak_bytes()}};
  f.frames = d.process->names.stack_text(request->stack);
  f.advice.push_back(bound_request(d, *request));
  out.push_back(std::move(f));
}

// Where memory is scarce, a few blocks that hold more than everything else together, weights too,
// count as well, whatever the size of others. Not in training, where the first layers of a network
// are like that.
bool is_outlier(const Operation& o, const DeviceEvidence& d) {
  constexpr uint64_t kFewBlocks = 4;
  const bool scarce = d.is_tight() && !d.categories.has_backward;
  const bool most = scarce && o.blocks <= kFewBlocks && o.bytes > o.all_bytes / 2;
  if (o.bytes < kWorthSaying || o.bytes < o.all_bytes / 4 || o.bytes < o.others_bytes) return false;
  if (o.other_stacks < kLeastStacks) return false;
  // A loss and its logits are a few; so many are the layers of a network, of which some are wide.
  if (d.categories.has_backward && o.named > kMostNamed) return false;
  if (!most && o.usual_bytes < kOutlier * o.next_bytes) return false;
  return o.near <= o.near_others;  // layer by layer: that is what the program computes
}

// Whether an operation is large because its request is: it has grown with the others of its pass,
// and is a small part of what usual requests need.
bool is_of_request(const Operation& o, const UnusualRequest& request) {
  const uint64_t others = o.all_bytes - std::min(o.all_bytes, o.bytes);
  const uint64_t usual = o.blocks * request.usual_bytes;
  return o.usual_bytes < kOutlier * o.next_bytes && usual < (others + usual) / 4;
}

// Whether a line always holds several blocks and replaces them all, as a batch of caches that is
// rebuilt in every step. Of an operation, at most the results of its last run are there.
bool is_rebuilt(const AllocationHistory& model, uint32_t stack) {
  constexpr int64_t kSeveral = 2;
  std::vector<std::pair<uint32_t, int64_t>> changes;  // by event
  uint32_t first_release = kNever;
  uint32_t last_birth = 0;
  for (const Allocation& a : model.allocations) {
    if (a.stack != stack || a.seeded) continue;
    changes.emplace_back(a.birth, 1);
    if (a.release != kNever) changes.emplace_back(a.release, -1);
    first_release = std::min(first_release, a.release);
    last_birth = a.birth;
  }
  std::sort(changes.begin(), changes.end());
  int64_t held = 0;
  int64_t first_ones = 0;  // before the first release
  int64_t released = 0;
  for (const auto& [event, change] : changes) {
    if (event > last_birth) break;
    held += change;
    if (event < first_release) {
      first_ones = held;
      continue;
    }
    released += change < 0 ? 1 : 0;
    if (held < kSeveral) return false;
  }
  return first_ones != 0 && released >= first_ones;
}

// Whether a block goes if the loss is computed in parts. What the program computes beside it needs
// its own results, and those of the model, whole.
bool is_of_loss_alone(const DeviceEvidence& d, const Allocation& a) {
  if (d.side_graphs.empty()) return true;
  const auto& passes = d.backward_passes;
  auto next = std::upper_bound(passes.begin(), passes.end(), a.birth,
                               [](uint32_t birth, const BackwardPass& p) { return birth < p.end; });
  return next != passes.end() && a.release >= next->first && a.release <= next->last;
}

// Whether what an operation computes is kept for a backward pass, as far as that came.
bool waits_for_backward(const DeviceEvidence& d, const Operation& o, const Search& search) {
  if (!d.categories.has_backward || d.decisive_phase() != nullptr) return false;
  bool freed_before = false;
  const AllocationColumns& all = d.model->allocations;
  const auto& passes = d.backward_passes;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!o.has_size(all.block_bytes(i)) || !search.is_computed(i)) continue;
    const auto next =
        std::lower_bound(passes.begin(), passes.end(), all.birth(i),
                         [](const BackwardPass& p, uint32_t birth) { return p.first < birth; });
    if (next == passes.end()) continue;
    if (next->first < all.release(i)) return true;
    freed_before = true;
  }
  // What the pass that failed would have kept is not known, unless no other one kept it.
  return d.ran_out() && !freed_before;
}

// Whether each layer makes a matrix of its own beside a fused kernel of attention, which has no
// scores. What it works on is far smaller.
bool is_mask(const DeviceEvidence& d, const Operation& o, const LayerBlocks& layers) {
  if (o.bytes < kWorthSaying || o.bytes < o.all_bytes / 4) return false;
  return layers.layers != 0 && layers.bytes >= kOutlier * o.next_live &&
         has_fused_attention(d.process->names);
}

Remedy remedy_of(const DeviceEvidence& d, const Operation& o, const LayerBlocks& layers) {
  const Remedy remedy = remedy_for(d.process->names, o);
  if (remedy != Remedy::kAttention) return remedy;
  if (is_mask(d, o, layers)) return Remedy::kShareMask;
  return has_fused_attention(d.process->names) ? Remedy::kSplitInLayer : remedy;
}

// Whether a block is one that later layers make again, by the layer that makes the first.
class LaterLayers {
 public:
  LaterLayers(const DeviceEvidence& d, const Operation& o, const LayerBlocks& layers)
      : all_(d.model->allocations), knows_(d.process->names.nn_module_count() > 1) {
    share_ = 1 - 1 / static_cast<double>(std::max<size_t>(layers.layers, 1));
    for (const size_t i : o.rows) {
      if (all_.stack(i) != layers.stack) continue;
      first_ = all_.nn_module(i);
      break;
    }
  }
  // The part of it that goes if all use the block of the first.
  double share_of(size_t row) const {
    if (!knows_) return share_;
    return all_.nn_module(row) == first_ ? 0 : 1;
  }

 private:
  const AllocationColumns& all_;
  const bool knows_;
  double share_ = 0;
  uint32_t first_ = 0;  // nn.Module
};

std::string summary_of(const DeviceEvidence& d, const Operation& o, Remedy remedy,
                       const LayerBlocks& layers) {
  std::string subject = subject_of(o, remedy);
  if (remedy == Remedy::kShareMask) {
    const bool one_more = o.failed && d.model->failures.back().stack == layers.stack;
    subject = fmt::format("{} layers each make {} of their own at one line, which {}",
                          layers.layers + (one_more ? 1 : 0), size_text(layers.bytes),
                          o.failed ? "need" : "hold");
  }
  return fmt::format("{} {}: {}", subject, share_text(o), blocks_text(o));
}

}  // namespace

void find_one_operation_peak(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.model->event_count() == 0) continue;
    const Search search(d);
    const Operation o = search.run();
    const std::optional<UnusualRequest> request = unusual_request(d);
    const LayerBlocks layers = blocks_of_layers(d, o.rows);
    const Remedy remedy = remedy_of(d, o, layers);
    // What each layer computes is no single operation.
    const bool of_layers = layers.are_most && !o.failed && remedy <= Remedy::kSplitInLayer;
    const bool outlier = (remedy == Remedy::kShareMask || (is_outlier(o, d) && !of_layers)) &&
                         !is_rebuilt(*d.model, o.stack);
    const bool unusual = outlier && request && d.roles->caller_of(o.stack) == request->stack;
    if (!outlier || (unusual && remedy <= Remedy::kSplitInLayer && is_of_request(o, *request) &&
                     !failed_for_holes(d))) {
      find_unusual_request(d, request, out);
      continue;
    }
    const double share = remedy == Remedy::kLoss ? 1 - 1 / kChunks : 1;
    Rehearsal without(*d.model);
    const LaterLayers later(d, o, layers);
    std::unordered_set<uint32_t> left_out;  // stacks
    const std::vector<bool> others = unrelated_halves(d.model->allocations, o.largest_bytes);
    for (size_t i = 0; i < d.model->allocations.size(); ++i) {
      if (!o.has_size(d.model->allocations.block_bytes(i)) || others[i]) continue;
      if (!search.is_computed(i)) continue;
      const Allocation a = d.model->allocations[i];
      if (remedy == Remedy::kLoss && !is_of_loss_alone(d, a)) continue;
      without.leave_out(a, remedy == Remedy::kShareMask ? later.share_of(i) : share);
      left_out.insert(a.stack);
    }
    const uint64_t saved = std::min(without.saved_bytes(), o.bytes);
    if (!o.failed && saved < d.peak_bytes() / 20) continue;  // others are as high
    if (d.limit.is_known() && d.has_room() && saved < d.limit.bytes / kNotMuch) continue;
    const bool of_output = remedy == Remedy::kSplit && o.converted && !d.categories.has_backward;
    std::string text = text_of(remedy, waits_for_backward(d, o, search), of_output);
    if (remedy == Remedy::kSplit || remedy == Remedy::kSplitInLayer) {
      text += together_text(d, left_out) + shape_text(d, o);
    }
    Finding f =
        d.finding("one_operation_peak", severity_of(d, o), summary_of(d, o, remedy, layers));
    f.evidence = {{"bytes", o.bytes},
                  {"blocks", o.blocks},
                  {"largest_block_bytes", o.largest_bytes},
                  {"next_block_bytes", o.next_bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(remedy == Remedy::kShareMask ? layers.stack : o.stack);
    // What the failed request itself would have held is not part of the recorded peak.
    f.advice.push_back({"split_operation",
                        saved == 0
                            ? text
                            : fmt::format("{}: saves {}{}", text, o.failed ? "at least " : "about ",
                                          size_text(saved)),
                        saved});
    add(f.advice, single_precision(d));
    if (unusual) {
      f.summary += "; " + unusual_text(*request);
      f.advice.push_back(bound_request(d, *request));
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
