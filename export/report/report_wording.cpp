#include "export/report/report_wording.h"

#include <fmt/format.h>

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
  return fmt::format("allocated {}, reserved {}, largest hole {}, free on the card {}",
                     size_text(oom.allocated_bytes), size_text(oom.reserved_bytes),
                     size_text(oom.largest_hole_bytes), size_text(oom.device_free_bytes));
}

}  // namespace tidemark
