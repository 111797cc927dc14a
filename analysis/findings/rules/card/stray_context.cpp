// Processes of the same job hold a context on a card that they hardly use.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kHardlyUsed = uint64_t{64} << 20;
// Less than this share of a card that is not full is not worth a warning.
constexpr uint64_t kSmallShare = 100;

bool has_context(const DeviceEvidence& d) {
  return d.driver_peak.bytes != 0 || !d.process->driver.contexts.empty();
}

using ProcessOnCard = std::pair<std::string, uint64_t>;  // card, pid

// The peak of each process on each card according to NVML.
std::map<ProcessOnCard, uint64_t> listed_bytes(const TraceModel& trace) {
  std::map<ProcessOnCard, uint64_t> most;
  for (const ProcessModel& p : trace.processes) {
    std::map<int64_t, std::string> cards;
    for (const Counter& c : p.counters) {
      if (c.kind != CounterKind::kProcessUsed) continue;
      std::string& card = cards[c.device];
      if (card.empty()) card = card_of(p, c.device);
      uint64_t& bytes = most[{card, c.subject}];
      bytes = std::max(bytes, c.value);
    }
  }
  return most;
}

// The context size of the process that holds most, if its ledger has it: the others are similar.
uint64_t context_bytes(const DeviceEvidence& d) {
  for (const LedgerLine& line : d.ledger.lines) {
    if (line.owner == "context" && line.bytes > 0) return static_cast<uint64_t>(line.bytes);
  }
  return 0;
}

bool is_same_card(const DeviceEvidence& a, const DeviceEvidence& b) {
  const Device* const card = a.process->device(a.device);
  const bool known = card != nullptr && !a.process->names.string(card->uuid).empty();
  return known && card_of(*a.process, a.device) == card_of(*b.process, b.device);
}

// The rank that reserved most on another card, of the same size as far as is known.
const DeviceEvidence* highest_rank(const Evidence& evidence, const DeviceEvidence& d) {
  const DeviceEvidence* highest = nullptr;
  for (const DeviceEvidence& other : evidence.devices) {
    if (other.model == nullptr || other.process->info.rank == d.process->info.rank) continue;
    const bool known = other.total_bytes != 0 && d.total_bytes != 0;
    if (other.process->info.rank < 0 || (known && other.total_bytes != d.total_bytes)) continue;
    if (is_same_card(d, other)) continue;
    const bool higher = highest == nullptr ||
                        other.model->reserved_peak.bytes > highest->model->reserved_peak.bytes;
    if (higher) highest = &other;
  }
  return highest;
}

// The driver refused a rank what another rank got of a card of its own: the difference is held by
// somebody else, as by the contexts that other ranks make on the first card.
void find_smaller_share(const Evidence& evidence, const DeviceEvidence& d,
                        std::vector<Finding>& out) {
  constexpr uint64_t kLeast = uint64_t{256} << 20;  // less than a context
  if (!d.ran_out() || d.process->info.rank < 0 || d.limit.source != LimitSource::kDriver) return;
  const DeviceEvidence* const other = highest_rank(evidence, d);
  if (other == nullptr || other->model->reserved_peak.bytes < d.limit.bytes + kLeast) return;
  const uint64_t missing = other->model->reserved_peak.bytes - d.limit.bytes;
  const auto [got, reserved] = size_texts(d.limit.bytes, other->model->reserved_peak.bytes);
  Finding f = d.finding(
      "stray_context", kError,
      fmt::format("this rank ran out of memory at {}, while rank {} reserved {}: "
                  "if each has a card of its own, of one kind, others hold at least {} of this one",
                  got, other->process->info.rank, reserved, size_text(missing)));
  f.evidence = {{"limit_bytes", d.limit.bytes},
                {"other_reserved_bytes", other->model->reserved_peak.bytes},
                {"bytes", missing}};
  f.advice.push_back(
      {"drop_contexts",
       fmt::format("see who else is on this card (nvidia-smi); ranks and workers that use CUDA "
                   "before torch.cuda.set_device make a context on the first card: call it first, "
                   "or give each its own CUDA_VISIBLE_DEVICES: frees at least {}",
                   size_text(missing)),
       missing});
  out.push_back(std::move(f));
}

}  // namespace

void find_stray_context(const Evidence& evidence, std::vector<Finding>& out) {
  std::map<std::string, std::vector<const DeviceEvidence*>> cards;
  for (const DeviceEvidence& d : evidence.devices) {
    find_smaller_share(evidence, d, out);
    if (has_context(d)) cards[card_of(*d.process, d.device)].push_back(&d);
  }
  const std::map<ProcessOnCard, uint64_t> listed = listed_bytes(*evidence.trace);
  for (const auto& [key, users] : cards) {
    const auto* most = *std::max_element(users.begin(), users.end(), [](auto* a, auto* b) {
      return a->driver_peak.bytes < b->driver_peak.bytes;
    });
    if (most->driver_peak.bytes < 2 * kHardlyUsed) continue;
    uint64_t strays = 0;
    uint64_t bytes = 0;
    for (const DeviceEvidence* d : users) {
      if (d == most || d->driver_peak.bytes >= kHardlyUsed) continue;
      ++strays;
      const auto it = listed.find({key, d->process->info.pid});
      bytes += it != listed.end() ? it->second : context_bytes(*most) + d->driver_peak.bytes;
    }
    if (strays == 0) continue;
    Finding f = most->finding(
        "stray_context",
        most->is_card_full() || bytes >= most->total_bytes / kSmallShare ? kWarning : kInfo,
        strays == 1
            ? fmt::format("1 other process of this job holds a context on the card and hardly "
                          "uses it: {}",
                          size_text(bytes))
            : fmt::format("{} other processes of this job hold contexts on the card and hardly "
                          "use them: {}",
                          strays, size_text(bytes)));
    f.evidence = {{"processes", strays}, {"bytes", bytes}};
    f.advice.push_back(
        {"drop_contexts",
         fmt::format("keep workers off the card (set CUDA_VISIBLE_DEVICES= for them, "
                     "or call set_device before the first CUDA call): saves {}",
                     size_text(bytes)),
         bytes});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
