#include "viewer/app/start_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "proto/base/units.h"

namespace tidemark::view {

namespace {

// None: not of the form that link_to() writes.
std::optional<VisibleRange> parse_view(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return std::nullopt;
  const std::optional<int64_t> begin = parse_duration_ns(text.substr(0, dash));
  const std::optional<int64_t> end = parse_duration_ns(text.substr(dash + 1));
  if (!begin || !end || *begin >= *end) return std::nullopt;
  return VisibleRange{static_cast<double>(*begin), static_cast<double>(*end)};
}

uint32_t parse_lane(const std::string& text, const Model& model) {
  uint32_t lane = 0;
  std::from_chars(text.data(), text.data() + text.size(), lane);
  return lane < model.lanes.size() ? lane : 0;
}

Status go_to_time(const StartView& start, const Model& model, Selection& selection) {
  if (start.time.empty()) return {};
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
    const uint32_t lane =
        start.lane.empty() ? selection.cursor.lane() : parse_lane(start.lane, model);
    selection.set_time(model, lane, static_cast<double>(*ns));
  }
  return {};
}

std::string percent_encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '.' || c == '_' || c == '-';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return out;
}

}  // namespace

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
  if (model.lanes.empty()) return {};
  if (Status s = go_to_time(start, model, selection); !s) return s;
  if (const std::optional<VisibleRange> view = parse_view(start.view); view) {
    selection.view.show(view->begin, view->end);
  }
  return {};
}

std::string link_to(const Model& model, const Selection& selection) {
  if (model.lanes.empty()) return {};
  const auto ns = [](double time) { return std::llround(std::max(time, 0.0)); };
  std::string link = fmt::format("time={}ns", ns(selection.cursor.time(model)));
  if (selection.cursor.lane() != 0) link += fmt::format("&lane={}", selection.cursor.lane());
  if (const VisibleRange& view = selection.view.range(); !selection.view.shows_all()) {
    link += fmt::format("&view={}ns-{}ns", ns(view.begin), ns(view.end));
  }
  if (!selection.highlights.search.empty()) {
    link += "&search=" + percent_encoded(selection.highlights.search);
  }
  return link;
}

}  // namespace tidemark::view
