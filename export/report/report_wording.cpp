#include "export/report/report_wording.h"

#include <fmt/format.h>

#include <cstdlib>

#include "analysis/wording.h"

namespace tidemark {

std::string offset_text(int64_t ns) {
  return (ns < 0 ? "" : "+") + duration_text(ns);
}

std::string instant_text(const DeviceReport& device, int64_t start_ns) {
  if (device.state_only) return "when the snapshot was taken";
  return "at " + offset_text(device.at_ns - start_ns);
}

std::vector<std::pair<std::string_view, Peak>> framework_peaks(const DeviceReport& device) {
  const bool state = device.state_only;
  std::vector<std::pair<std::string_view, Peak>> peaks = {
      {state ? "allocated" : "allocated peak", device.allocated_peak},
      {state ? "requested" : "requested peak", device.requested_peak},
      {state ? "reserved" : "reserved peak", device.reserved_peak}};
  if (device.requested_peak.bytes == 0) peaks.erase(peaks.begin() + 1);
  return peaks;
}

std::string oom_text(const OomReport& oom) {
  if (oom.layer == Layer::kDriver) {
    return fmt::format("the driver could not allocate it; this process held {} of the card",
                       size_text(oom.reserved_bytes));
  }
  std::string text =
      fmt::format("allocated {}, reserved {}, largest usable hole {}, free on the card {}",
                  size_text(oom.allocated_bytes), size_text(oom.reserved_bytes),
                  usable_hole_text(oom.largest_hole_bytes, oom.requested_bytes),
                  size_text(oom.device_free_bytes));
  if (oom.refusals != 0) {
    text += fmt::format("; the driver had refused {}", counted(oom.refusals, "request"));
  }
  return text;
}

std::string usable_hole_text(uint64_t hole_bytes, uint64_t requested_bytes) {
  std::string text = size_text(hole_bytes);
  if (hole_bytes < requested_bytes && text == size_text(requested_bytes)) {
    text += fmt::format(" ({} too small)", size_text(requested_bytes - hole_bytes));
  }
  return text;
}

std::string reading_text(const Ledger& ledger) {
  if (!ledger.reading) return "";
  const int64_t distance = ledger.reading->time_ns - ledger.time_ns;
  const std::string when = distance == 0 ? "at that moment"
                                         : fmt::format("{} {}", duration_text(std::abs(distance)),
                                                       distance < 0 ? "earlier" : "later");
  return fmt::format("what was not recorded is from a reading of the card {}: {} used", when,
                     size_text(ledger.reading->used_bytes));
}

bool is_worth_saying(const PinnedMemory& pinned) {
  constexpr uint64_t kMuch = uint64_t{256} << 20;
  return pinned.driver_peak.bytes >= kMuch;
}

std::string pinned_text(const PinnedMemory& pinned, int64_t start_ns) {
  std::string text =
      fmt::format("Pinned host memory: {} at the peak ({})", size_text(pinned.driver_peak.bytes),
                  offset_text(pinned.driver_peak.time_ns - start_ns));
  if (pinned.torch) {
    text += fmt::format("; PyTorch's allocator held {}, of which {} in use and {} cached",
                        size_text(pinned.torch->held_bytes), size_text(pinned.torch->in_use_bytes),
                        size_text(pinned.torch->cached_bytes()));
  }
  return text;
}

}  // namespace tidemark
