#include "analysis/insight/card/limit.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/insight/card/ledger.h"

namespace tidemark {

uint64_t segment_bytes_for(uint64_t requested) {
  constexpr uint64_t kMiB = 1 << 20;
  if (requested <= kSmallBytes) return 2 * kMiB;
  if (requested < 10 * kMiB) return 20 * kMiB;
  return (requested + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
}

namespace {

// The limit that PyTorch named with its last error; 0: it named none.
uint64_t told_limit(const ProcessModel& process, int64_t device) {
  uint64_t limit = 0;
  for (const OutOfMemory& oom : process.ooms) {
    if (oom.device == device && oom.limit_bytes != 0) limit = oom.limit_bytes;
  }
  return limit;
}

// The share of the card that the settings of the allocator allow (torch 2.9 and later); 1: all of
// it. What the program itself sets is known only once it is exceeded.
double fraction_in_settings(const ProcessModel& process) {
  constexpr std::string_view kOption = "per_process_memory_fraction:";
  for (const char* variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const std::string conf(process.setting(variable));
    const size_t at = conf.find(kOption);
    if (at == std::string::npos) continue;
    const double fraction = std::strtod(conf.c_str() + at + kOption.size(), nullptr);
    if (fraction > 0 && fraction < 1) return fraction;
  }
  return 1;
}

MemoryLimit card_limit(const ProcessModel& process, uint64_t card_bytes, uint64_t others) {
  const auto allowed =
      static_cast<uint64_t>(fraction_in_settings(process) * static_cast<double>(card_bytes));
  const uint64_t left = card_bytes - std::min(others, card_bytes);
  if (allowed < left) return {allowed, false, LimitSource::kFraction};
  return {left, false, LimitSource::kCard};
}

// The size of the card is in no snapshot, but its fullness may be seen: the allocator returns free
// segments when the next one does not fit. Then what was reserved before and the next segment are
// more than ever was reserved, each time, however much was reserved. A program that empties its
// cache does so at any level.
MemoryLimit limit_by_retries(const AllocationHistory& model) {
  constexpr size_t kLeastRetries = 3;
  size_t retries = 0;
  uint64_t least = UINT64_MAX;  // that did not fit
  uint64_t lowest = UINT64_MAX;
  uint64_t highest = 0;  // reserved before
  uint64_t reserved = 0;
  uint64_t before = 0;  // what was reserved when segments began to be returned; 0: they are not
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    if (model.change[e] != Change::kShrink && model.change[e] != Change::kGrow) {
      before = 0;
      continue;
    }
    const uint64_t bytes = model.segment_changes[model.subject[e]].size_bytes;
    if (model.change[e] == Change::kShrink) {
      if (before == 0) before = reserved;
      reserved -= std::min(reserved, bytes);
      continue;
    }
    reserved += bytes;
    if (before == 0) continue;
    ++retries;
    least = std::min(least, before + bytes);
    lowest = std::min(lowest, before);
    highest = std::max(highest, before);
    before = 0;
  }
  const uint64_t peak = model.reserved_peak.bytes;
  const bool varied = highest - std::min(highest, lowest) > peak / 20;
  if (retries < kLeastRetries || !varied || least <= peak || least > peak + peak / 50) return {};
  return {peak, true, LimitSource::kRetries};
}

}  // namespace

MemoryLimit limit_of(const ProcessModel& process, const AllocationHistory& model) {
  if (!model.failures.empty() && model.event_count() != 0) {
    const FailedAllocation& last = model.failures.back();
    const uint64_t reserved = model.totals_after(last.event).reserved;
    // The driver needs some memory itself: only a clear surplus means that the allocator's limit
    // was hit.
    const uint64_t needed = segment_bytes_for(last.requested_bytes) + (uint64_t{64} << 20);
    if (last.device_free_bytes >= needed) {
      // Before it fails, the allocator frees its cache: what is reserved then says nothing, but the
      // most that ever was reserved was allowed.
      const uint64_t told = told_limit(process, model.device);
      if (told != 0) return {told, false, LimitSource::kFraction};
      return {std::max(reserved, model.reserved_peak.bytes), true, LimitSource::kFraction};
    }
    return {reserved + last.device_free_bytes, false, LimitSource::kDriver};
  }
  const Device* device = process.device(model.device);
  if (device == nullptr || device->total_bytes == 0) return limit_by_retries(model);
  const uint64_t used = device_used_peak(process, model.device).bytes;
  return card_limit(process, device->total_bytes, used - std::min(model.reserved_peak.bytes, used));
}

NeedOutsideTorch need_outside_torch(const ProcessModel& process, int64_t device) {
  const LedgerSource ledger(process, device);
  const std::optional<uint64_t> read = ledger.most_own_outside_torch();
  if (!read) return {kContextBytes + ledger.most_recorded_outside_torch(), true, false};
  return {*read, false, ledger.has_other_processes()};
}

MemoryLimit limit_on_card(const ProcessModel& process, int64_t device, uint64_t card_bytes) {
  return card_limit(process, card_bytes, need_outside_torch(process, device).bytes);
}

}  // namespace tidemark
