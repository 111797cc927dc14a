#include "analysis/whatif/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/whatif/allocator/own_search.h"
#include "analysis/whatif/context_size.h"
#include "analysis/whatif/history_window.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

void fill(Prediction& p, const CachingAllocator& a) {
  p.reserved_peak = a.peak().reserved;
  p.allocated_peak = a.allocated_peak();
  p.requested_peak = a.requested_peak();
  p.allocated_at_peak = a.peak().allocated;
  p.cached_free_at_peak = a.peak().cached_free;
  p.largest_hole_at_peak = a.peak().largest_hole;
  p.reserved_end = a.totals().reserved;
  p.driver_allocations = a.counts().driver_allocations;
  p.driver_frees = a.counts().driver_frees;
  p.retries = a.counts().retries;
  p.emptied = a.counts().emptied;
  p.collections = a.counts().collections;
}

// The settings stated by the recording: single values first, the configuration text for the rest.
AllocatorSettings settings_of(const ProcessModel& process, std::string& conf) {
  AllocatorSettings settings;
  std::string threshold;
  for (const Setting& s : process.settings) {
    const std::string_view key = process.names.string(s.key);
    const std::string_view value = process.names.string(s.value);
    if (key == "PYTORCH_CUDA_ALLOC_CONF" || (key == "PYTORCH_ALLOC_CONF" && conf.empty())) {
      conf = value;
    }
  }
  if (const auto parsed = AllocatorSettings::parse(conf)) settings = *parsed;
  settings.rules = process.rules;
  return settings;
}

bool sizes_missing(const AllocationHistory& model) {
  const DataColumn<AllocationKind>& kinds = model.allocations.kinds();
  return std::none_of(kinds.begin(), kinds.end(),
                      [](const AllocationKind& k) { return k.requested_bytes != 0; });
}

// The driver's view of torch's segments: their changes in order of time.
std::vector<std::pair<int64_t, int64_t>> driver_steps_of_torch(const ProcessModel& process,
                                                               int64_t device) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const DriverAllocation& a : process.driver.allocations) {
    if (!a.on_card() || a.device != device || process.names.string(a.owner) != "torch") continue;
    const auto bytes = static_cast<int64_t>(a.size_bytes);
    steps.emplace_back(a.birth_ns, bytes);
    if (a.death_ns != INT64_MAX) steps.emplace_back(a.death_ns, -bytes);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// The highest use of the card by anything but torch while torch has at least half of its most: what
// others have given back before that leaves it room. Torch's own peak had room beside them.
// Counters are in order of time. Torch records a segment after the driver has allocated it: a
// reading between the two already has it.
uint64_t other_use(const ProcessModel& process, int64_t device, const AllocationHistory& model) {
  const auto steps = driver_steps_of_torch(process, device);
  auto step = steps.begin();
  int64_t at_driver = 0;
  uint64_t other = 0;
  uint64_t beside_much = 0;
  uint64_t reserved = 0;
  uint32_t event = 0;
  for (const Counter& c : process.counters) {
    if (c.kind != CounterKind::kDeviceUsed || c.device != device) continue;
    for (; event < model.event_count() && model.time_ns[event] <= c.time_ns; ++event) {
      const uint32_t row = model.subject[event];
      if (model.change[event] == Change::kGrow) reserved += model.segment_changes[row].size_bytes;
      if (model.change[event] == Change::kShrink) reserved -= model.segment_changes[row].size_bytes;
    }
    for (; step != steps.end() && step->first <= c.time_ns; ++step) at_driver += step->second;
    const uint64_t torch =
        std::max(reserved, static_cast<uint64_t>(std::max<int64_t>(at_driver, 0)));
    if (c.value <= torch) continue;
    other = std::max(other, c.value - torch);
    if (torch >= model.reserved_peak.bytes / 2) {
      beside_much = std::max(beside_much, c.value - torch);
    }
  }
  const Device* card = process.device(device);
  if (beside_much != 0) other = beside_much;
  if (card == nullptr || card->total_bytes < model.reserved_peak.bytes) return other;
  return std::min(other, card->total_bytes - model.reserved_peak.bytes);
}

// Rejects sizes that no card has: their sums would overflow.
bool plausible(const AllocationHistory& model) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 44;
  constexpr uint64_t kHighestAddress = uint64_t{1} << 57;
  const auto kind = [](const AllocationKind& k) {
    return k.requested_bytes <= kMostBytes && k.block_bytes <= kMostBytes;
  };
  const AllocationColumns& all = model.allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    model.passed(i);
    if (all.address(i) > kHighestAddress) return false;
  }
  const auto segment = [](const SegmentChange& s) {
    return s.size_bytes <= kMostBytes && s.address <= kHighestAddress;
  };
  const auto failure = [](const FailedAllocation& f) { return f.requested_bytes <= kMostBytes; };
  return std::all_of(all.kinds().begin(), all.kinds().end(), kind) &&
         std::all_of(model.segment_changes.begin(), model.segment_changes.end(), segment) &&
         std::all_of(model.failures.begin(), model.failures.end(), failure);
}

// An error if the allocations of this device cannot be replayed.
Status check_replayable(const AllocationHistory* model, int64_t device) {
  if (model == nullptr || model->allocations.empty()) {
    return Error{fmt::format("no PyTorch allocations were recorded on cuda:{}", device)};
  }
  if (sizes_missing(*model)) {
    return Error{fmt::format(
        "this recording has no requested sizes for cuda:{}, and nothing can be replayed without "
        "them: take a snapshot with torch.cuda.memory._record_memory_history()",
        device)};
  }
  if (!plausible(*model)) {
    return Error{fmt::format(
        "the recording of cuda:{} has sizes or addresses that no real card has", device)};
  }
  return {};
}

EventWindow part_around_peak(const AllocationHistory& model, uint32_t most_events) {
  const uint32_t middle =
      model.failures.empty() ? model.reserved_peak.event : model.failures.back().event;
  return window_around(model, middle, most_events);
}

// The first row of the program's own at or after an event.
uint32_t first_row_from(const AllocationHistory& model, uint32_t event) {
  uint32_t row = 0;
  while (row < model.allocations.size() &&
         (model.allocations.seeded(row) || model.allocations.birth(row) < event)) {
    ++row;
  }
  return row;
}

// The versions that the recording may have been made with.
std::vector<TorchVersion> possible_versions(const ProcessModel& process,
                                            const WhatIfOptions& options) {
  if (options.version) return {*options.version};
  for (const Setting& s : process.settings) {
    if (s.scope != SettingScope::kTool || process.names.string(s.key) != "torch") continue;
    if (const auto named = TorchVersion::parse(process.names.string(s.value))) return {*named};
  }
  return {{2, 11}, {2, 12}, {2, 13}};
}

// The limit that a memory fraction set in the recorded run; 0: not known.
uint64_t allowed_by_fraction(const ProcessModel& process, int64_t device, double fraction,
                             uint64_t card_bytes) {
  if (fraction > 0 && fraction < 1) {
    return static_cast<uint64_t>(fraction * static_cast<double>(card_bytes));
  }
  uint64_t allowed = 0;
  for (const OutOfMemory& oom : process.ooms) {
    if (oom.device == device && oom.limit_bytes != 0) allowed = oom.limit_bytes;
  }
  return allowed;
}

Replay replay_of(const OwnSearch::Best& best, const AllocationHistory& model,
                 const std::string& conf) {
  Replay r;
  fill(r.prediction, best.replay->allocator());
  r.prediction.conf = conf;
  r.prediction.events = model.recorded_events;
  r.prediction.limit_bytes = best.limits.allowed != 0 ? best.limits.allowed : best.limits.capacity;
  r.prediction.out_of_memory = !model.failures.empty();
  const ReplayMatch& match = best.replay->match();
  r.blocks = match.blocks;
  r.misplaced_blocks = match.misplaced;
  r.reserved_mismatches = match.reserved_mismatches;
  r.first_mismatch_ns = match.first_mismatch_ns;
  r.version = best.settings.version;
  return r;
}

}  // namespace

WhatIf::WhatIf() = default;
WhatIf::WhatIf(WhatIf&&) noexcept = default;
WhatIf& WhatIf::operator=(WhatIf&&) noexcept = default;
WhatIf::~WhatIf() = default;

Result<WhatIf> WhatIf::prepare(const ProcessModel& process, int64_t device,
                               const WhatIfOptions& options) {
  const AllocationHistory* model = process.framework_on(device);
  if (Status ok = check_replayable(model, device); !ok) return ok.error();
  if (!process.torch_pools.empty()) {
    return Error{"the backend cudaMallocAsync has no allocator of its own to replay"};
  }
  if (process.is_state_only()) {
    return Error{
        "this snapshot has no history, so there is nothing to replay: call "
        "torch.cuda.memory._record_memory_history() before the program allocates"};
  }
  WhatIf w;
  const Device* card = process.device(device);
  w.card_bytes_ = options.card_bytes != 0 ? options.card_bytes
                  : card != nullptr       ? card->total_bytes
                                          : 0;
  if (options.card_bytes == 0) {
    w.other_bytes_ = other_use(process, device, *model);
  } else {
    const NeedOutsideTorch outside = need_outside_torch(process, device);
    // Where a request failed, the replay finds what PyTorch could have.
    w.assumes_other_ =
        outside.is_assumed && options.card_bytes > outside.bytes && model->failures.empty();
    if (w.assumes_other_ || !outside.is_assumed) w.other_bytes_ = outside.bytes;
    if (w.assumes_other_) w.notes_.push_back(assumed_context_text());
  }
  w.recorded_reserved_peak_ = model->reserved_peak.bytes;
  w.recorded_allocated_peak_ = model->allocated_peak.bytes;
  w.is_part_ = model->event_count() > options.most_events;
  AllocationHistory part;
  if (w.is_part_) {
    const EventWindow window = part_around_peak(*model, options.most_events);
    part = history_window(*model, process.rules, window);
    w.seeded_ = first_row_from(part, 0);
    w.first_row_ = first_row_from(*model, window.first);
    model = &part;
  }
  w.replayed_events_ = model->event_count();
  AllocatorSettings settings = settings_of(process, w.own_conf_);
  if (options.recorded_conf) {
    const auto given = AllocatorSettings::parse(*options.recorded_conf);
    if (!given) return given.error();
    settings = *given;
    w.own_conf_ = *options.recorded_conf;
  }
  const uint64_t allowed =
      allowed_by_fraction(process, device, settings.memory_fraction, w.card_bytes_);
  OwnSearch search(*model, settings, w.card_bytes_);
  const std::vector<TorchVersion> versions = possible_versions(process, options);
  for (const TorchVersion version : versions) search.attempt(version, allowed);
  w.knows_version_ = versions.size() == 1;
  OwnSearch::Best best = std::move(search).take();
  w.own_ = best.settings;
  w.recorded_allowed_ = best.limits.allowed;
  w.most_allowed_ = best.most_allowed;
  if (model->failures.empty()) w.highest_guessed_limit_ = best.limits.capacity;
  // Where no request failed, the search finds only the highest capacity that explains the retries.
  const bool has_room = w.card_bytes_ > w.other_bytes_;
  if (model->failures.empty() && (has_room || options.card_bytes != 0)) {
    constexpr uint64_t kNoRoom = 1;  // 0 would be no limit
    const uint64_t left = has_room ? w.card_bytes_ - w.other_bytes_ : kNoRoom;
    const uint64_t most =
        options.card_bytes != 0 ? left : std::max(left, model->reserved_peak.bytes);
    if (best.limits.capacity >= most) w.highest_guessed_limit_ = 0;
    best.limits.capacity = std::min(best.limits.capacity, most);
  }
  w.recorded_capacity_ = best.limits.capacity;
  w.replay_ = replay_of(best, *model, w.own_conf_);
  w.log_ = std::make_unique<RequestLog>(std::move(*best.replay).take_log());
  for (const Allocation& a : model->allocations) w.birth_ns_.push_back(a.birth_ns());
  w.set_baseline(*model, options.card_bytes != 0);
  w.add_notes(*model);
  return w;
}

// Predictions begin by allocating what was there before the first event tightly, one block after
// the other. Recorded memory has holes from before that; no setting can be credited with them, nor
// with what the model gets wrong, nor with what a smaller card does to the recorded settings, too.
void WhatIf::set_baseline(const AllocationHistory& model, bool other_card) {
  baseline_ = {recorded_reserved_peak_, 0};
  if (model.seeded_blocks == 0 && !is_part_ && replay_.exact() && !other_card) return;
  const Prediction same = predict(own_);
  if (other_card && same.out_of_memory) return;
  baseline_ = {std::min(recorded_reserved_peak_, same.reserved_peak), same.failures_avoided};
  replayed_peak_ = same.reserved_peak;
  if (other_card && baseline_.reserved_peak < recorded_reserved_peak_) {
    notes_.push_back(fmt::format(
        "on this card the recorded settings would reserve {}: the others are compared with that",
        size_text(baseline_.reserved_peak)));
  }
}

bool WhatIf::ends_at_error() const {
  constexpr size_t kFew = 20;  // 5 % of the requests: what a program does to report the error
  const auto& requests = log_->requests;
  size_t made = 0;
  size_t since = 0;
  bool failed = false;
  for (const Request& r : requests) {
    if (r.kind == RequestKind::kFail) {
      failed = true;
      since = 0;
    }
    if (r.kind != RequestKind::kAllocate) continue;
    ++made;
    ++since;
  }
  return failed && since * kFew <= made;
}

void WhatIf::add_notes(const AllocationHistory& model) {
  if (is_part_) {
    notes_.push_back(
        fmt::format("only the {} events around the peak are replayed", replayed_events_));
  }
  if (model.seeded_blocks != 0) {
    const auto [replayed, recorded] = size_texts(replayed_peak_, recorded_reserved_peak_);
    notes_.push_back(fmt::format(
        "the history began late: {} already existed, and every prediction begins by "
        "allocating them one after the other{}",
        counted(model.seeded_blocks, "block"),
        replayed_peak_ > recorded_reserved_peak_
            ? fmt::format("; with the recorded settings, that reserves {}, so the others are "
                          "compared with the recorded {}",
                          replayed, recorded)
            : ", also that of the recorded settings which the others are compared with"));
  }
  const auto unknown = std::count_if(model.allocations.begin(), model.allocations.end(),
                                     [](const Allocation& a) { return a.requested_bytes == 0; });
  if (unknown != 0) {
    notes_.push_back(fmt::format(
        "the requested sizes of {} of {} allocations are not known: their block sizes are used",
        unknown, model.allocations.size()));
  }
  uint64_t pending = 0;
  uint64_t pending_bytes = 0;
  for (const Allocation& a : model.allocations) {
    if (a.release == kNever || a.death != kNever) continue;
    ++pending;
    pending_bytes += a.block_bytes;
  }
  if (pending != 0) {
    notes_.push_back(fmt::format(
        "{} ({}) that the program had freed still waited for other streams when the recording "
        "ended: every prediction keeps them",
        counted(pending, "block"), size_text(pending_bytes)));
  }
  if (model.anomalies != 0) {
    notes_.push_back(fmt::format("{} events contradict the rest of the history", model.anomalies));
  }
  if (!replay_.exact()) {
    notes_.push_back(fmt::format(
        "the model does not reproduce this recording exactly ({} of {} blocks are at other "
        "addresses): treat predictions as estimates",
        replay_.misplaced_blocks, replay_.blocks));
  }
}

Prediction WhatIf::predict(const AllocatorSettings& settings, std::string conf) const {
  return predict(settings, std::move(conf), log_->blocks);
}

Prediction WhatIf::predict(const RequestChange& change) const {
  std::vector<RequestedBlock> blocks = log_->blocks;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const bool known = i >= seeded_ && i < birth_ns_.size();
    if (!change(known ? first_row_ + i - seeded_ : kNever, blocks[i])) blocks[i].bytes = 0;
  }
  return predict(own_, own_conf_, blocks);
}

Prediction WhatIf::predict(const AllocatorSettings& settings, std::string conf,
                           const std::vector<RequestedBlock>& blocks) const {
  AllocatorSettings used = settings;
  used.version = own_.version;
  used.rules.one_division_rounds = !own_.version.at_least(4);
  uint64_t allowed = recorded_allowed_;
  uint64_t most_allowed = most_allowed_;
  if (settings.memory_fraction > 0) {
    // 2.10+: a fraction of 1 sets no limit.
    allowed = most_allowed =
        settings.memory_fraction < 1
            ? static_cast<uint64_t>(settings.memory_fraction * static_cast<double>(card_bytes_))
            : 0;
  }
  uint64_t capacity = recorded_capacity_;
  if (capacity == 0 && card_bytes_ > other_bytes_) capacity = card_bytes_ - other_bytes_;
  Prediction p = predict(used, allowed, capacity, blocks);
  p.conf = std::move(conf);
  p.most_limit_bytes = p.limit_bytes;
  if (most_allowed <= allowed) return p;
  const Prediction more = predict(used, most_allowed, capacity, blocks);
  p.most_limit_bytes = more.limit_bytes;
  if (p.out_of_memory && !more.out_of_memory) p.fits_below = more.reserved_peak;
  return p;
}

Prediction WhatIf::predict(const AllocatorSettings& settings, uint64_t allowed, uint64_t capacity,
                           const std::vector<RequestedBlock>& blocks) const {
  Prediction p;
  p.events = log_->events;
  p.limit_bytes = allowed != 0 && (capacity == 0 || allowed < capacity) ? allowed : capacity;
  DriverAddresses addresses(log_->segments);
  CachingAllocator allocator(settings, AllocatorLimits::of(allowed, capacity, card_bytes_),
                             addresses);
  run(allocator, blocks, log_->requests, {}, p);
  fill(p, allocator);
  return p;
}

Prediction WhatIf::replay(const AllocatorSettings& settings, std::span<const RequestedBlock> blocks,
                          std::span<const Request> requests, uint64_t capacity,
                          const Watch& watch) const {
  AllocatorSettings used = settings;
  used.version = own_.version;
  used.rules.one_division_rounds = !own_.version.at_least(4);
  uint64_t allowed = 0;
  if (capacity != 0 && settings.memory_fraction > 0 && settings.memory_fraction < 1) {
    allowed = static_cast<uint64_t>(settings.memory_fraction * static_cast<double>(card_bytes_));
  }
  Prediction p;
  p.events = requests.size();
  p.limit_bytes = p.most_limit_bytes =
      allowed != 0 && (capacity == 0 || allowed < capacity) ? allowed : capacity;
  DriverAddresses addresses(log_->segments);
  CachingAllocator allocator(used, AllocatorLimits::of(allowed, capacity, card_bytes_), addresses);
  run(allocator, blocks, requests, watch, p);
  fill(p, allocator);
  return p;
}

void WhatIf::run(CachingAllocator& allocator, std::span<const RequestedBlock> blocks,
                 std::span<const Request> requests, const Watch& watch, Prediction& p) const {
  for (const Request& r : requests) {
    if (watch) watch(allocator.totals());
    switch (r.kind) {
      case RequestKind::kAllocate: {
        const RequestedBlock& b = blocks[r.subject];
        if (b.bytes == 0) break;  // not made
        if (allocator.allocate(r.subject, b.bytes, b.stream, b.pool)) break;
        p.out_of_memory = p.ended_early = true;
        p.failed_bytes = b.bytes;
        p.failed_ns = r.subject < birth_ns_.size() ? birth_ns_[r.subject] : 0;
        return;
      }
      case RequestKind::kFail: {
        const RequestedBlock& b = blocks[r.subject];
        if (allocator.allocate(r.subject, b.bytes, b.stream, b.pool)) {
          ++p.failures_avoided;
          allocator.complete(r.subject);  // how the program would have used it is not known
          break;
        }
        p.out_of_memory = true;
        p.failed_bytes = b.bytes;
        p.failed_ns = log_->failed_ns[r.subject - birth_ns_.size()];
        break;
      }
      case RequestKind::kFree:
      case RequestKind::kComplete:
        allocator.complete(r.subject);
        break;
      case RequestKind::kRelease:
        allocator.release(r.subject);
        break;
      case RequestKind::kEmptyCache:
        allocator.empty_cache();
        break;
      case RequestKind::kRetirePool:
        allocator.retire_pool(r.subject);
        break;
    }
  }
  if (watch) watch(allocator.totals());
}

Result<Prediction> predict(const ProcessModel& process, int64_t device,
                           const AllocatorSettings& settings) {
  const Result<WhatIf> whatif = WhatIf::prepare(process, device);
  if (!whatif) return whatif.error();
  return whatif->predict(settings);
}

std::vector<std::string> sensible_confs() {
  return {"",
          "expandable_segments:True",
          "max_split_size_mb:32",
          "max_split_size_mb:64",
          "max_split_size_mb:128",
          "max_split_size_mb:256",
          "max_split_size_mb:512",
          "roundup_power2_divisions:2",
          "roundup_power2_divisions:4",
          "roundup_power2_divisions:8",
          "roundup_power2_divisions:16",
          "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
          "large_segment_size_mb:64",
          "garbage_collection_threshold:0.6",
          "garbage_collection_threshold:0.8",
          "expandable_segments:True,roundup_power2_divisions:8"};
}

}  // namespace tidemark
