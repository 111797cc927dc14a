// One rank needs more than the others.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "analysis/findings/growth/growth.h"
#include "analysis/findings/growth/time_growth.h"
#include "analysis/findings/rules.h"
#include "analysis/names/stack_lines.h"
#include "analysis/ranks/ranks.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{32} << 20;

const DeviceEvidence* device_of(const Evidence& evidence, const RankHeight& height) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.process->info.rank == height.rank && d.device == height.device) return &d;
  }
  return nullptr;
}

// The largest of the stacks with a line that only this rank runs, if most of the excess comes from
// such; else null.
const StackExcess* largest_of_its_own(const RankComparison& ranks) {
  const StackExcess* largest = nullptr;
  uint64_t exclusive = 0;
  uint64_t shared = 0;
  for (const StackExcess& e : ranks.stacks) {
    if (e.bytes <= e.typical_bytes) continue;
    (e.own_frames.empty() ? shared : exclusive) += e.bytes - e.typical_bytes;
    if (!e.own_frames.empty() && largest == nullptr) largest = &e;
  }
  return exclusive > shared ? largest : nullptr;
}

// Whether most of the excess is at lines that allocate what grows on this rank.
bool is_growth(const RankComparison& ranks, const DeviceEvidence& d, uint64_t extra) {
  std::set<std::string> lines;
  const auto add = [&](const auto& growing) {
    for (const auto& g : growing) lines.insert(headline_of(d.process->names.stack_text(g.stack)));
  };
  if (grows(d)) {
    add(d.steps.growing);
  } else if (const std::optional<TimeGrowth> growth = growth_over_time(d)) {
    add(growth->left);
  }
  uint64_t bytes = 0;
  for (const StackExcess& e : ranks.stacks) {
    if (e.bytes > e.typical_bytes && lines.contains(headline_of(e.frames))) {
      bytes += e.bytes - e.typical_bytes;
    }
  }
  return bytes >= extra / 2;
}

// The lines that allocate blocks of these categories.
std::set<std::string> lines_of(const DeviceEvidence& d, std::initializer_list<Category> wanted) {
  std::set<uint32_t> stacks;
  for (size_t i = 0; i < d.categories.of.size(); ++i) {
    if (std::find(wanted.begin(), wanted.end(), d.categories.of[i]) != wanted.end()) {
      stacks.insert(d.model->allocations.stack(i));
    }
  }
  std::set<std::string> lines;
  for (const uint32_t stack : stacks) lines.insert(headline_of(d.process->names.stack_text(stack)));
  return lines;
}

// More activations of the same sizes, of lines that the other rank runs as well.
bool is_of_more_passes(const StackExcess& e) {
  const auto size = e.bytes / std::max<uint64_t>(e.blocks, 1);
  const auto usual = e.typical_bytes / std::max<uint64_t>(e.typical_blocks, 1);
  return e.blocks > e.typical_blocks && size <= usual + usual / 8;
}

// Whether more passes are waiting for their backward pass, and little else makes the excess. Of
// three and more stages, the first may have an embedding as well: more weights, with their
// gradients and optimizer states. Ranks that share only the data have the same weights.
bool holds_more_passes(const RankComparison& ranks, const DeviceEvidence& d, uint64_t extra) {
  if (!d.categories.has_backward) return false;
  const std::set<std::string> activations = lines_of(d, {Category::kActivation});
  const std::set<std::string> weights = lines_of(d, {Category::kParameter});
  const std::set<std::string> trained =
      lines_of(d, {Category::kGradient, Category::kOptimizerState});
  uint64_t more = 0;
  uint64_t heavier = 0;  // weights
  uint64_t with_weights = 0;
  uint64_t other = 0;
  for (const StackExcess& e : ranks.stacks) {
    const uint64_t bytes = e.bytes - std::min(e.bytes, e.typical_bytes);
    const std::string line = headline_of(e.frames);
    if (is_of_more_passes(e) && activations.contains(line)) {
      more += bytes;
    } else if (weights.contains(line)) {
      heavier += bytes;
    } else {
      (trained.contains(line) ? with_weights : other) += bytes;
    }
  }
  const uint64_t modules = heavier != 0 ? heavier + with_weights : 0;
  if (modules == 0 || ranks.heights.size() == 2) {
    return more >= extra / 2 && other + heavier + with_weights <= more / 4;
  }
  return more >= extra / 8 && more + modules >= extra / 2 && other <= (more + modules) / 4;
}

// Whether the ranks hold less and less, as the stages of a pipeline do: while a later stage works
// on a micro-batch, an earlier one begins the next. The last stage also has the head, the
// logits and the loss.
bool fall_in_order(const RankComparison& ranks, uint64_t extra) {
  const std::vector<RankHeight>& heights = ranks.heights;
  if (ranks.highest.bytes - heights.front().bytes > extra / 8) return false;
  if (heights.size() == 2) return true;
  size_t levels = 1;
  for (size_t i = 1; i < heights.size(); ++i) {
    const uint64_t before = heights[i - 1].bytes;
    const uint64_t here = heights[i].bytes;
    if (here > before + extra / 8) return i + 1 == heights.size() && levels > 2;
    if (here + extra / 8 < before) ++levels;
  }
  return levels > 2;
}

Advice advice_for(const RankComparison& ranks, const DeviceEvidence& d, const StackExcess* own,
                  bool is_pipeline, uint64_t extra) {
  if (is_pipeline) {
    return {"balance_stages",
            "if the ranks are stages of a pipeline (1F1B), their schedule does this: the first "
            "stage holds the most micro-batches; where its memory is short, give it fewer layers, "
            "or checkpoint its activations. If not, give every rank as many passes before the "
            "backward pass",
            0};
  }
  if (own != nullptr) {
    return {"move_extras",
            fmt::format("only this rank runs {}: move what it keeps to host memory, or spread it "
                        "over the ranks: saves {}",
                        place_of(own->own_frames), size_text(extra)),
            extra};
  }
  if (is_growth(ranks, d, extra)) {
    return {"stop_growth",
            fmt::format("memory grows on this rank (see {}), and most of the difference is that "
                        "growth: stop it first",
                        grows_by_graphs(d) ? "retained_graph" : "creep"),
            0};
  }
  return {"balance_ranks",
          fmt::format("the same lines hold more memory on this rank: give every rank the same "
                      "share of the batch, the layers and the caches: saves {}",
                      size_text(extra)),
          extra};
}

// Where only this rank ran out, what it needs more than the others is why.
const char* severity_of(const Evidence& evidence, const DeviceEvidence& d) {
  if (!d.ran_out()) return kWarning;
  const bool alone =
      std::none_of(evidence.devices.begin(), evidence.devices.end(), [&](const DeviceEvidence& o) {
        return o.process->info.rank != d.process->info.rank && o.ran_out();
      });
  return alone ? kError : kWarning;
}

}  // namespace

void find_rank_imbalance(const Evidence& evidence, std::vector<Finding>& out) {
  if (evidence.ranks == nullptr || !evidence.ranks->compared) return;
  const RankComparison& ranks = *evidence.ranks;
  const RankHeight& high = ranks.highest;
  const RankHeight& typical = ranks.typical;
  if (high.bytes <= typical.bytes) return;
  const uint64_t extra = high.bytes - typical.bytes;
  if (extra < kWorthSaying || extra < typical.bytes / 10) return;
  const DeviceEvidence* d = device_of(evidence, high);
  if (d == nullptr) return;  // the report is about another rank
  const StackExcess* own = largest_of_its_own(ranks);
  const bool is_pipeline = own == nullptr && !is_growth(ranks, *d, extra) &&
                           fall_in_order(ranks, extra) && holds_more_passes(ranks, *d, extra);
  Finding f = d->finding(
      "rank_imbalance", is_pipeline && !d->ran_out() ? kInfo : severity_of(evidence, *d),
      fmt::format("rank {} needs {} more than rank {} ({} versus {}{}){}", high.rank,
                  size_text(extra), typical.rank, size_text(high.bytes), size_text(typical.bytes),
                  ranks.in_windows ? ", peaks within the kept windows" : "",
                  is_pipeline ? ": it holds more passes of the same sizes" : ""));
  f.evidence = {
      {"peak_bytes", high.bytes}, {"median_peak_bytes", typical.bytes}, {"extra_bytes", extra}};
  if (own != nullptr) {
    f.frames = own->frames;
  } else if (!ranks.stacks.empty()) {
    f.frames = ranks.stacks.front().frames;
  }
  f.advice.push_back(advice_for(ranks, *d, own, is_pipeline, extra));
  out.push_back(std::move(f));
}

}  // namespace tidemark
