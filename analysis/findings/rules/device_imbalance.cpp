// One card of a process ran out of memory while another one was hardly used.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/rules.h"
#include "analysis/names/stacks_with.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kUsed = uint64_t{64} << 20;  // less is a library's, or a stray tensor

// The emptiest of the other cards that the process computes on, if half as much as on this one was
// never allocated there; else null.
const DeviceEvidence* emptier(const Evidence& evidence, const DeviceEvidence& d) {
  const DeviceEvidence* found = nullptr;
  for (const DeviceEvidence& other : evidence.devices) {
    if (other.process != d.process || other.device == d.device || other.model == nullptr) continue;
    if (other.peak_bytes() < kUsed || other.is_card_full() || other.ran_out()) continue;
    if (found == nullptr || other.peak_bytes() < found->peak_bytes()) found = &other;
  }
  return found != nullptr && 2 * found->peak_bytes() <= d.peak_bytes() ? found : nullptr;
}

bool is_data_parallel(const DeviceEvidence& d) {
  const Dictionary& names = d.process->names;
  const std::vector<bool> through = stacks_with(names, [&](const Frame& f) {
    return names.string(f.file).find("torch/nn/parallel/data_parallel.py") !=
           std::string_view::npos;
  });
  return std::find(through.begin(), through.end(), true) != through.end();
}

}  // namespace

void find_device_imbalance(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.ran_out()) continue;
    const DeviceEvidence* other = emptier(evidence, d);
    if (other == nullptr) continue;
    Finding f = d.finding("device_imbalance", kWarning,
                          fmt::format("cuda:{} ran out with up to {} allocated, while cuda:{} of "
                                      "the same process never had more than {}",
                                      d.device, size_text(d.peak_bytes()), other->device,
                                      size_text(other->peak_bytes())));
    f.evidence = {{"peak_bytes", d.peak_bytes()},
                  {"other_device", static_cast<uint64_t>(other->device)},
                  {"other_peak_bytes", other->peak_bytes()}};
    f.advice.push_back(
        is_data_parallel(d)
            ? Advice{"use_ddp",
                     "DataParallel keeps gradients, optimizer states and the results of all parts "
                     "on the first card: use DistributedDataParallel, or compute the loss inside "
                     "of the model",
                     0}
            : Advice{"balance_devices",
                     "move layers, caches or data to the emptier card; with a device_map of "
                     "accelerate, max_memory limits what goes to each card, and has to leave room "
                     "for what is computed there",
                     0});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
