// The cache is repeatedly returned to the driver and reserved again.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/findings/rules.h"
#include "analysis/insight/lives/stacks_through.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

struct Thrash {
  uint64_t bursts = 0;  // of freed segments
  uint64_t given_back = 0;
  uint64_t taken_again = 0;
  uint32_t stack = 0;         // of the last one
  uint64_t for_requests = 0;  // of the bursts

  bool is_for_requests() const { return for_requests > bursts / 2; }
};

// Where a model is loaded in place of another, that takes much longer than to reserve its memory.
bool is_for_weights(const StackRoles& roles, uint32_t stack) {
  const StackRole role = roles.of(stack);
  return role == StackRole::kLoading || role == StackRole::kModuleSetUp;
}

// Tells the bursts that a request caused. It did not fit, so the allocator frees what it can with
// the stack of the request, and reserves the segment with the same. Segments have that stack anyway
// if they were reserved with it: freed by nobody known (context="alloc"), they keep their own.
class Causes {
 public:
  void freed(const SegmentChange& change) {
    const auto next = reserved_.upper_bound(change.address);
    const bool own = next != reserved_.begin() && std::prev(next)->second == change.stack;
    if (change.stack != 0 && !own) by_ = change.stack;
  }
  // Whether the segments freed last were freed for this one.
  bool reserved(const SegmentChange& change) {
    reserved_[change.address] = change.stack;
    return std::exchange(by_, 0) == change.stack && change.stack != 0;
  }

 private:
  std::map<uint64_t, uint32_t> reserved_;  // stack, by address
  uint32_t by_ = 0;                        // stack that the last ones were freed with
};

// torch.cuda.graph() empties the cache itself before it captures, so that the graph's own pool
// finds room.
bool captures_graph(std::string_view /*function*/, std::string_view file) {
  return file.ends_with("torch/cuda/graphs.py");
}

Thrash thrash_of(const AllocationHistory& model, const StackRoles& roles,
                 const std::vector<bool>& captures) {
  Thrash t;
  Causes causes;
  bool in_burst = false;
  uint64_t missing = 0;  // returned and not yet reserved again
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    if (model.change[e] == Change::kBirth) in_burst = false;
    if (model.change[e] != Change::kShrink && model.change[e] != Change::kGrow) continue;
    const SegmentChange& change = model.segment_changes[model.subject[e]];
    if (model.change[e] == Change::kShrink) {
      if (change.stack < captures.size() && captures[change.stack]) continue;
      if (!in_burst) ++t.bursts;
      in_burst = true;
      t.given_back += change.size_bytes;
      missing += change.size_bytes;
      t.stack = change.stack;
      causes.freed(change);
    } else {
      const uint64_t again = std::min(missing, change.size_bytes);
      if (!is_for_weights(roles, change.stack)) t.taken_again += again;
      missing -= again;
      if (causes.reserved(change)) ++t.for_requests;
    }
  }
  return t;
}

bool calls_empty_cache(const Dictionary& names, uint32_t stack) {
  for (const uint32_t frame : names.frames_of(stack)) {
    if (names.string(names.frame(frame).function) == "empty_cache") return true;
  }
  return false;
}

}  // namespace

void find_cache_thrash(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator()) continue;
    const Thrash t =
        thrash_of(*d.model, *d.roles, stacks_through(d.process->names, captures_graph));
    const uint64_t often = std::max<uint64_t>(3, d.steps.count() / 2);
    if (t.bursts < often || t.taken_again < d.model->reserved_peak.bytes) continue;
    // Segments are returned on request, or where the next one does not fit.
    const bool fits = d.limit.bytes != 0 && d.has_room();
    const bool asked =
        calls_empty_cache(d.process->names, t.stack) || (!t.is_for_requests() && fits);
    Finding f = d.finding(
        "cache_thrash", kWarning,
        fmt::format("the allocator returned its cache to the driver {} times and reserved {} of it "
                    "again: the program stalls each time",
                    grouped(t.bursts), size_text(t.taken_again)));
    f.evidence = {{"times", t.bursts},
                  {"given_back_bytes", t.given_back},
                  {"taken_again_bytes", t.taken_again}};
    f.frames = d.process->names.stack_text(t.stack);
    f.advice.push_back(
        asked ? Advice{"remove_empty_cache",
                       "remove torch.cuda.empty_cache() from the loop: PyTorch reuses its cache "
                       "itself. Where sizes vary, it may reserve more then; "
                       "expandable_segments:True keeps that low",
                       0}
              : Advice{"make_room",
                       t.is_for_requests() || d.limit.source == LimitSource::kRetries
                           ? "the allocator empties its cache because the next segment does not "
                             "fit: lower the peak or raise the limit"
                           : "either the next segment does not fit (lower the peak or raise the "
                             "limit), or the program calls torch.cuda.empty_cache(): the recording "
                             "does not name who returns segments",
                       0});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
