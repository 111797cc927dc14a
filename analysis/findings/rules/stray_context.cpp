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

}  // namespace

void find_stray_context(const Evidence& evidence, std::vector<Finding>& out) {
  std::map<std::string, std::vector<const DeviceEvidence*>> cards;
  for (const DeviceEvidence& d : evidence.devices) {
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
