// Processes of the same job hold a context on a card that they hardly use.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kHardlyUsed = uint64_t{64} << 20;

struct Card {
  const DeviceEvidence* most = nullptr;
  std::vector<const DeviceEvidence*> strays;
};

std::string card_key(const DeviceEvidence& d) {
  const Device* device = d.process->device(d.device);
  const std::string_view uuid = device == nullptr ? "" : d.process->names.string(device->uuid);
  return fmt::format("{} {} {}", d.process->names.string(d.process->info.host), uuid,
                     uuid.empty() ? d.device : 0);
}

bool has_context(const DeviceEvidence& d) {
  return d.driver_peak.bytes != 0 || d.process->driver.contexts != 0;
}

// The peak of the process according to NVML, 0 if it is not listed.
uint64_t process_bytes(const Evidence& evidence, const DeviceEvidence& d) {
  uint64_t most = 0;
  for (const ProcessModel& p : evidence.trace->processes) {
    for (const Counter& c : p.counters) {
      if (c.kind == CounterKind::kProcessUsed && c.subject == d.process->info.pid) {
        most = std::max(most, c.value);
      }
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
    if (has_context(d)) cards[card_key(d)].push_back(&d);
  }
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
      const uint64_t listed = process_bytes(evidence, *d);
      bytes += listed != 0 ? listed : context_bytes(*most) + d->driver_peak.bytes;
    }
    if (strays == 0) continue;
    Finding f = most->finding(
        "stray_context", kWarning,
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
