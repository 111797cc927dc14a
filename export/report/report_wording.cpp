#include "export/report/report_wording.h"

#include <fmt/format.h>

#include <cstdlib>

#include "analysis/wording.h"

namespace tidemark {

std::string offset_text(int64_t ns) {
  return (ns < 0 ? "" : "+") + duration_text(ns);
}

std::string oom_text(const OomReport& oom) {
  if (oom.layer == Layer::kDriver) {
    return fmt::format("the driver could not allocate it; this process held {} of the card",
                       size_text(oom.reserved_bytes));
  }
  std::string text =
      fmt::format("allocated {}, reserved {}, largest hole {}, free on the card {}",
                  size_text(oom.allocated_bytes), size_text(oom.reserved_bytes),
                  size_text(oom.largest_hole_bytes), size_text(oom.device_free_bytes));
  if (oom.refusals != 0) {
    text += fmt::format("; the driver had refused {}", counted(oom.refusals, "request"));
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

}  // namespace tidemark
