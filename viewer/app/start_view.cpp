#include "viewer/app/start_view.h"

#include <fmt/format.h>

#include <optional>

#include "proto/base/units.h"

namespace tidemark::view {

Status check_start(const StartView& start) {
  Panels panels;
  Selection selection;
  if (!start.panel.empty() && panels.choose(start.panel, selection) == nullptr) {
    return Error{fmt::format("unknown panel '{}'; choose one of {}", start.panel, Panels::names())};
  }
  const bool named = start.time.empty() || start.time == "peak" || start.time == "oom";
  if (!named && !parse_duration_ns(start.time)) {
    return Error{"--time takes peak, oom, or a time since the start such as 1.5s or 20ms, not '" +
                 start.time + "'"};
  }
  return {};
}

Status go_to_start(const StartView& start, const Model& model, Selection& selection) {
  selection.highlights.search = start.search;
  if (start.time.empty() || model.lanes.empty()) return {};
  if (start.time == "peak") {
    selection.go_to_peak(model);
  } else if (start.time == "oom") {
    if (model.ooms.empty()) {
      return Error{model.trace.path +
                   ": no allocation failed in this trace; choose another --time"};
    }
    selection.go_to_oom_at(model, model.oom_to_show());
  } else if (const std::optional<int64_t> ns = parse_duration_ns(start.time); ns) {
    if (Status s = check_time(model.trace, *ns); !s) return s;
    selection.set_time(model, selection.cursor.lane(), static_cast<double>(*ns));
  }
  return {};
}

}  // namespace tidemark::view
