// A process whose memory sleeps (unmapped while PyTorch still counts it) keeps much of the card.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/rules.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// In the middle of the time during which most was asleep: what is to be released has been, and new
// memory is created only shortly before it is mapped.
int64_t deepest_sleep(const StepSeries& asleep, int64_t end_ns) {
  const auto most = std::max_element(asleep.value.begin(), asleep.value.end());
  const auto index = static_cast<size_t>(most - asleep.value.begin());
  const int64_t from_ns = asleep.time_ns[index];
  const int64_t to_ns = index + 1 < asleep.time_ns.size() ? asleep.time_ns[index + 1] : end_ns;
  return from_ns + (to_ns - from_ns) / 2;
}

}  // namespace

void find_sleep_leftover(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{256} << 20;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.process->driver.mappings.empty()) continue;
    const LedgerSource source(*d.process, d.device);
    const StepSeries& asleep = source.residence().asleep();
    if (asleep.empty()) continue;
    const int64_t when = deepest_sleep(asleep, evidence.trace->end_ns);
    const uint64_t slept = asleep.at(when);
    const uint64_t held = source.driver().card().at(when);
    const uint64_t awake = held + slept;
    if (slept < kWorthSaying || held <= awake / 10) continue;
    const Ledger ledger = source.at(when);
    const auto cached = std::find_if(ledger.lines.begin(), ledger.lines.end(),
                                     [](const LedgerLine& l) { return l.owner == "torch.cached"; });
    Finding f = d.finding(
        "sleep_leftover", kWarning,
        fmt::format("while {} is asleep, the process still holds {} of the {} it holds awake",
                    size_text(slept), size_text(held), size_text(awake)));
    f.evidence = {{"asleep_bytes", slept}, {"held_bytes", held}, {"awake_bytes", awake}};
    if (cached != ledger.lines.end() && cached->bytes > 0) {
      f.evidence.push_back({"cached_bytes", static_cast<uint64_t>(cached->bytes)});
      f.advice.push_back(
          {"empty_cache_before_sleep",
           fmt::format("call torch.cuda.empty_cache() after the memory has gone to sleep: {} is "
                       "cached and not in use",
                       size_text(static_cast<uint64_t>(cached->bytes))),
           static_cast<uint64_t>(cached->bytes)});
    }
    f.advice.push_back({"sleep_more",
                        "allocate what is not needed during sleep (the stacks alive at that "
                        "instant: tidemark report --at) from the pool that sleeps",
                        0});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
