#include "analysis/insight/categories/serving_cache.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/insight/lives/block_life.h"
#include "analysis/insight/lives/stacks_through.h"
#include "analysis/names/stacks_with.h"
#include "proto/base/in_parallel.h"

namespace tidemark {

namespace {

constexpr uint32_t kIndexed = 256;  // events
// A cache that is concatenated anew with every token has a block for no longer than that.
constexpr uint32_t kBrief = 8;  // events

// Functions of vLLM and Hugging Face's transformers, and methods of a class that is called a cache.
bool names_cache(std::string_view function, std::string_view file) {
  const auto has = [](std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
  };
  return !has(file, "torch/") && (has(function, "kv_cache") || has(function, "Cache.") ||
                                  has(file, "cache_utils") || has(file, "kv_cache"));
}

// Images are resampled with functions of torch.nn, too.
bool resamples(std::string_view function) {
  constexpr std::array<std::string_view, 9> kOfImages = {
      "grid_sample", "affine_grid", "interpolate",   "upsample", "pad",
      "fold",        "unfold",      "pixel_shuffle", "pool"};
  return std::any_of(kOfImages.begin(), kOfImages.end(),
                     [&](std::string_view part) { return function.find(part) != function.npos; });
}

// A model of convolutions alone has no keys and values, nor has a program without a model. Where
// neither is named, it may have them.
bool may_attend(const Dictionary& names) {
  constexpr std::array<std::string_view, 5> kOfAttention = {"attn", "ttention", "sdpa", "softmax",
                                                            "flash"};
  bool convolves = false;
  bool has_images = false;
  bool has_layers = false;
  for (uint32_t i = 0; i < names.frame_count(); ++i) {
    const std::string_view function = names.string(names.frame(i).function);
    const std::string_view file = names.string(names.frame(i).file);
    for (const std::string_view part : kOfAttention) {
      if (function.find(part) != function.npos || file.find(part) != file.npos) return true;
    }
    convolves |= function.find("_conv_forward") != function.npos ||
                 function.find("at::native::convolution") != function.npos ||
                 file.ends_with("torch/nn/modules/conv.py");
    if (file.ends_with("torch/nn/functional.py")) {
      (resamples(function) ? has_images : has_layers) = true;
    }
    has_layers |= file.find("torch/nn/modules/") != file.npos;
  }
  return !convolves && (has_layers || !has_images);
}

}  // namespace

ServingCache::ServingCache(const ProcessModel& process, const AllocationHistory& model,
                           const StackRoles& roles, const Steps& steps)
    : model_(model),
      names_(process.names),
      roles_(roles),
      steps_(steps),
      named_(stacks_through(process.names, names_cache)),
      below_named_(stacks_with(process.names,
                               [&](const Frame& f) {
                                 return f.kind == FrameKind::kPython &&
                                        names_cache(process.names.string(f.function),
                                                    process.names.string(f.file));
                               })),
      may_attend_(may_attend(process.names)) {}

void ServingCache::survey(const std::unordered_set<uint64_t>& parameter_sizes,
                          const std::unordered_set<uint32_t>& workspaces,
                          std::unordered_set<uint64_t>& kept_sizes) {
  index_passes();
  const auto find = [&](size_t part) {
    if (part == 0) find_kept(parameter_sizes, workspaces, kept_sizes);
    if (part == 1) find_concatenations();
    if (part == 2) find_lists();
    if (part == 3) find_copies();
  };
  in_parallel(4, find);
  find_alike();
}

void ServingCache::find_kept(const std::unordered_set<uint64_t>& parameter_sizes,
                             const std::unordered_set<uint32_t>& workspaces,
                             std::unordered_set<uint64_t>& kept_sizes) {
  constexpr size_t kSizesOfModel = 3;
  std::vector<std::pair<size_t, uint32_t>> in_pass(named_.size());    // by stack: pass, blocks
  std::unordered_map<uint32_t, std::unordered_set<uint64_t>> copied;  // stack -> parameter sizes
  std::vector<bool> noted(model_.allocations.kinds().size());  // kinds whose size is in kept_sizes
  size_t pass = 0;  // those begun so far: allocations are in the order of their births
  for (size_t i = 0; i < model_.allocations.size(); ++i) {
    model_.passed(i);
    const Allocation& a = model_.allocations[i];
    if (a.seeded) continue;
    while (pass < passes_.size() && passes_[pass] <= a.birth) ++pass;
    if (pass == passes_.size() || passes_[pass] >= a.release) continue;  // none begins in its life
    const StackRole role = roles_.of(a.stack);
    if (role == StackRole::kModuleSetUp || role == StackRole::kLoading) continue;
    if (const uint32_t kind = model_.allocations.kind(i);
        a.block_bytes > kSmallBytes && !noted[kind]) {
      noted[kind] = true;
      kept_sizes.insert(a.asked_bytes());
    }
    if (role == StackRole::kUser && pass == 0 && is_kept_to_end(a)) {
      ++first_buffers_[a.asked_bytes()];
      first_sizes_[names_.stack(a.stack).frame].insert(a.asked_bytes());
    }
    if (role == StackRole::kUser && parameter_sizes.contains(a.asked_bytes())) {
      auto& sizes = copied[a.stack];
      sizes.insert(a.asked_bytes());
      if (sizes.size() >= kSizesOfModel) copies_.insert(a.stack);
    }
    if (role != StackRole::kForward || workspaces.contains(a.birth)) continue;
    auto& [last, blocks] = in_pass[a.stack];
    blocks = last == pass ? blocks + 1 : 1;
    last = pass;
    if (blocks > 1) cache_stacks_.insert(a.stack);
  }
}

// With every token, each layer makes a copy of its keys and values that is longer by as much, and
// then frees the one before, which results of ever longer prompts do not wait for. Outside a
// module, a single block that grows may be a list of results.
void ServingCache::find_concatenations() {
  constexpr uint32_t kLeastLengths = 4;
  struct Chain {
    uint64_t bytes = 0;  // of the last copies
    uint64_t longer = 0;
    uint64_t first_bytes = 0;  // of the first copies
    uint32_t lengths = 0;
    uint32_t blocks = 0;  // of the last length
    uint32_t first = 0;   // birth of the first copy, and of the first longer one
    uint32_t second = 0;
    uint32_t freed = 0;         // when the last one of this length is
    uint32_t freed_before = 0;  // of the length before
  };
  std::vector<Chain> chains(named_.size());  // by stack
  for (size_t i = 0; i < model_.allocations.size(); ++i) {
    model_.passed(i);
    const Allocation& a = model_.allocations[i];
    const StackRole role = roles_.of(a.stack);
    if (a.seeded || (role != StackRole::kForward && role != StackRole::kUser)) continue;
    Chain& c = chains[a.stack];
    const uint64_t bytes = a.asked_bytes();
    if (bytes == c.bytes) {
      ++c.blocks;
      c.freed = std::max(c.freed, a.release);
      continue;
    }
    const uint64_t longer = bytes - std::min(bytes, c.bytes);
    const bool goes_on = longer != 0 && longer <= c.bytes / 2 && c.freed_before <= a.birth &&
                         a.birth < c.freed && (c.lengths < 2 || longer == c.longer) &&
                         (role == StackRole::kForward || (c.blocks > 1 && !passes_.empty()));
    if (!goes_on) {
      c = {bytes, 0, bytes, 1, 1, a.birth, 0, a.release, 0};
      continue;
    }
    if (c.lengths == 1) c.second = a.birth;
    c.bytes = bytes;
    c.longer = longer;
    c.blocks = 1;
    c.freed_before = std::exchange(c.freed, a.release);
    if (++c.lengths != kLeastLengths) continue;
    concatenating_.insert(a.stack);
    beginnings_.push_back({c.first, c.second, c.first_bytes - c.longer});
  }
  std::sort(beginnings_.begin(), beginnings_.end(),
            [](const Beginning& a, const Beginning& b) { return a.first < b.first; });
}

// The keys and values of a prompt are freed when those of the first token have been added to them.
// So may its logits be, but each layer has keys and values, or one layer has them in the size that
// the first copy was made of.
bool ServingCache::is_before_concatenation(const Allocation& a) const {
  const auto next =
      std::upper_bound(beginnings_.begin(), beginnings_.end(), a.birth,
                       [](uint32_t birth, const Beginning& b) { return birth < b.first; });
  if (next == beginnings_.end() || a.release <= next->first || a.release >= next->second) {
    return false;
  }
  return cache_stacks_.contains(a.stack) || a.asked_bytes() == next->prompt_bytes;
}

// What lines of the program keep over several passes, and is no cache: a list that grows by a block
// in each of them and is never cleared, or when the last one is there, and a queue, whose oldest
// blocks go while younger ones wait.
void ServingCache::find_lists() {
  constexpr size_t kLeastPasses = 3;
  struct Line {
    std::vector<uint32_t> rows;
    std::unordered_set<uint32_t> stacks;  // of all who call it
  };
  std::unordered_map<uint32_t, Line> lines;  // by innermost frame
  const AllocationColumns& allocations = model_.allocations;
  for (uint32_t i = 0; i < allocations.size(); ++i) {
    if (allocations.block_bytes(i) <= kSmallBytes || allocations.seeded(i)) continue;
    const uint32_t stack = allocations.stack(i);
    if (roles_.of(stack) != StackRole::kUser) continue;
    Line& line = lines[names_.stack(stack).frame];
    line.rows.push_back(i);
    line.stacks.insert(stack);
  }
  for (const auto& [frame, line] : lines) {
    const std::vector<uint32_t>& rows = line.rows;
    const uint32_t last_birth = allocations.birth(allocations.size() - 1);
    size_t passes = 0;  // in which it allocates
    size_t last_pass = SIZE_MAX;
    size_t freed = 0;  // after several passes
    size_t overtaken = 0;
    size_t collected = 0;
    Collection collection;
    for (size_t row = 0; row < rows.size(); ++row) {
      const uint32_t birth = allocations.birth(rows[row]);
      const uint32_t release = allocations.release(rows[row]);
      const size_t pass = passes_until(birth);
      if (pass != std::exchange(last_pass, pass)) ++passes;
      if (release > last_birth || passes_in(birth, release) < kLeastPasses) continue;
      ++freed;
      overtaken += is_overtaken(row, rows) ? 1U : 0U;
      if (const size_t end = passes_until(release); end != collection.end) {
        collected += collection.size();
        collection = {pass, pass, 0, end};
      }
      collection.last = pass;
      ++collection.blocks;
    }
    collected += collection.size();
    if (2 * collected > freed) collecting_.insert(line.stacks.begin(), line.stacks.end());
    const bool never = freed == 0 && passes >= kLeastPasses && rows.size() < 2 * passes;
    if (never || 2 * overtaken > freed || 2 * collected > freed) {
      lists_.insert(line.stacks.begin(), line.stacks.end());
    }
  }
}

void ServingCache::find_alike() {
  struct End {
    uint32_t event;
    bool birth;
  };
  std::unordered_map<uint64_t, std::vector<End>> ends;  // by size
  const AllocationColumns& all = model_.allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.block_bytes(i) <= kSmallBytes || all.seeded(i)) continue;
    if (roles_.of(all.stack(i)) != StackRole::kUser || makes_weights(all.stack(i))) continue;
    if (passes_in(all.birth(i), all.release(i)) < 3) continue;
    std::vector<End>& of_size = ends[all.asked_bytes(i)];
    of_size.push_back({all.birth(i), true});
    of_size.push_back({all.release(i), false});
  }
  for (auto& [bytes, of_size] : ends) {
    std::sort(of_size.begin(), of_size.end(), [](const End& a, const End& b) {
      return a.event != b.event ? a.event < b.event : !a.birth && b.birth;
    });
    uint32_t now = 0;
    uint32_t& most = alike_[bytes];
    for (const End& end : of_size) most = std::max(most, end.birth ? ++now : --now);
    most_alike_ = std::max(most_alike_, most);
  }
}

bool ServingCache::is_single(const Allocation& a) const {
  constexpr uint32_t kTwoLayers = 4;  // keys and values of each
  const auto alike = alike_.find(a.asked_bytes());
  return most_alike_ >= kTwoLayers && alike != alike_.end() && alike->second == 1;
}

bool ServingCache::holds_weights(const Allocation& a) const {
  return !passes_.empty() && a.birth < passes_.front() && is_kept_to_end(a) && !copies_model(a) &&
         makes_weights(a.stack);
}

bool ServingCache::makes_weights(uint32_t stack) const {
  constexpr size_t kSizesOfModel = 3;
  const auto sizes = first_sizes_.find(names_.stack(stack).frame);
  return sizes != first_sizes_.end() && sizes->second.size() >= kSizesOfModel;
}

// Between two passes of a request a line of the program makes a copy, and then frees the one
// before. So is the input of the next pass, but a pass allocates more than its input has.
void ServingCache::find_copies() {
  constexpr uint32_t kLeastCopies = 3;  // one after the other
  struct Blocks {                       // of one line, between two passes
    size_t pass = SIZE_MAX;             // those begun before
    uint64_t bytes = 0;
    uint64_t asked = 0;  // of the last one
    uint32_t count = 0;
    uint32_t first = 0;  // birth
    uint32_t freed = 0;  // when the last one is
    uint32_t copies = 0;
  };
  const AllocationColumns& allocations = model_.allocations;
  std::vector<uint64_t> pass_bytes(passes_.size() + 1, 0);
  size_t begun = 0;  // passes: allocations are in the order of their births
  for (size_t i = 0; i < allocations.size(); ++i) {
    if (roles_.of(allocations.stack(i)) != StackRole::kForward) continue;
    while (begun < passes_.size() && passes_[begun] <= allocations.birth(i)) ++begun;
    pass_bytes[begun] += allocations.block_bytes(i);
  }
  const auto is_copy = [&](const Blocks& now, const Blocks& before) {
    return before.pass + 1 == now.pass && before.bytes == now.bytes && before.count == now.count &&
           before.freed > now.first && before.freed != kNever &&
           passes_in(now.first, before.freed) == 0 && before.bytes >= pass_bytes[now.pass] &&
           steps_.end_of_step(before.first) == steps_.end_of_step(now.first);
  };
  std::unordered_map<uint32_t, std::pair<Blocks, Blocks>> lines;  // by stack: before, now
  for (size_t i = 0; i < allocations.size(); ++i) {
    const uint32_t stack = allocations.stack(i);
    if (allocations.seeded(i) || allocations.block_bytes(i) <= kSmallBytes) continue;
    if (roles_.of(stack) != StackRole::kUser) continue;
    const uint32_t birth = allocations.birth(i);
    const size_t pass = passes_until(birth);
    auto& [before, now] = lines[stack];
    if (now.pass != pass) {
      now.copies = is_copy(now, before) ? before.copies + 1 : 0;
      if (now.copies >= kLeastCopies) {
        copying_.insert(stack);
        copied_.insert(now.asked);
      }
      before = std::exchange(now, {pass, 0, 0, 0, birth, 0, 0});
    }
    now.bytes += allocations.block_bytes(i);
    ++now.count;
    now.asked = allocations.asked_bytes(i);
    now.freed = std::max(now.freed, allocations.release(i));
  }
}

// Whether the youngest block of its line is of a later pass when it is freed, and lives on into
// another pass. A request frees its blocks together.
bool ServingCache::is_overtaken(size_t row, const std::vector<uint32_t>& rows) const {
  const AllocationColumns& allocations = model_.allocations;
  const uint32_t release = allocations.release(rows[row]);
  // Most are freed soon: the steps of the search double from here.
  const auto is_born = [&](uint32_t i) { return allocations.birth(i) < release; };
  size_t step = 1;
  while (row + step < rows.size() && is_born(rows[row + step])) step *= 2;
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(row + step / 2);
  const auto last = rows.begin() + static_cast<std::ptrdiff_t>(std::min(row + step, rows.size()));
  const uint32_t youngest = *std::prev(std::partition_point(first, last, is_born));
  const size_t next_pass = passes_until(release);
  return passes_until(allocations.birth(youngest)) > passes_until(allocations.birth(rows[row])) &&
         next_pass != passes_.size() && passes_[next_pass] < allocations.release(youngest);
}

void ServingCache::index_passes() {
  passes_before_.assign(model_.event_count() / kIndexed + 2, 0);
  for (const uint32_t pass : passes_) ++passes_before_[pass / kIndexed + 1];
  std::partial_sum(passes_before_.begin(), passes_before_.end(), passes_before_.begin());
}

// The number of passes begun up to and with this event.
size_t ServingCache::passes_until(uint32_t event) const {
  const size_t group = event / kIndexed;
  if (group + 1 >= passes_before_.size()) return passes_.size();
  const auto first = passes_.begin() + passes_before_[group];
  const auto last = passes_.begin() + passes_before_[group + 1];
  return static_cast<size_t>(std::upper_bound(first, last, event) - passes_.begin());
}

// Forward passes that begin during a life.
size_t ServingCache::passes_in(uint32_t birth, uint32_t release) const {
  return release <= birth ? 0 : passes_until(release - 1) - passes_until(birth);
}

// A request takes its buffers from those that were there before the first pass, as from a pool.
// There are several of a size, of keys and of values; a single one may as well be data, unless
// passes are known to follow each other within a request.
bool ServingCache::is_of_pool(const Allocation& a) const {
  if (a.birth >= passes_.front() || !is_kept_to_end(a)) return true;
  const auto alike = first_buffers_.find(a.asked_bytes());
  return !stays(a) && (steps_.count() != 0 || (alike != first_buffers_.end() && alike->second > 1));
}

bool ServingCache::may_be_data(const Allocation& a) const {
  return passes_in(a.birth, a.release) >= 3 && !is_of_pool(a);
}

bool ServingCache::is_kept_to_end(const Allocation& a) const {
  return a.release > model_.allocations.birth(model_.allocations.size() - 1);
}

bool ServingCache::is_named(const Allocation& a, uint32_t pass_end, bool kept_long) const {
  if (a.stack >= named_.size()) return false;
  if (named_[a.stack]) return kept_long || a.release - a.birth > kBrief;
  return below_named_[a.stack] && kept_long && meets(a, pass_end);
}

bool ServingCache::holds(const Allocation& a, uint32_t pass_end, bool kept_long) const {
  if (is_named(a, pass_end, kept_long)) return true;
  if (concatenating_.contains(a.stack)) return kept_long || a.release - a.birth > kBrief;
  if (copied_.contains(a.asked_bytes()) &&
      (copying_.contains(a.stack) ||
       (roles_.of(a.stack) == StackRole::kUser && passes_in(a.birth, a.release) != 0))) {
    return true;
  }
  if (roles_.of(a.stack) == StackRole::kForward && a.block_bytes > kSmallBytes &&
      a.release - a.birth > kBrief && is_before_concatenation(a)) {
    return true;
  }
  // A step that is less sure may be a round of an engine, which runs a pass for all requests.
  const bool sure = steps_.count() != 0 && steps_.confidence >= 0.9;
  const uint32_t requests = sure ? steps_.count() : 1;
  if (passes_.size() < size_t{3} * requests) return false;
  if (roles_.of(a.stack) == StackRole::kUser) {
    return is_of_pool(a) && !copies_model(a) && !makes_weights(a.stack) && !is_single(a) &&
           !lists_.contains(a.stack) && a.block_bytes > kSmallBytes &&
           passes_in(a.birth, a.release) >= 3;
  }
  // No pass follows the last token of a request.
  return cache_stacks_.contains(a.stack) && meets(a, pass_end);
}

}  // namespace tidemark
