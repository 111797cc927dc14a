#include "viewer/app/start_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "proto/base/units.h"

namespace tidemark::view {

namespace {

// Of a link: "20ms-1.5s"; of --time: "20ms..1.5s". None: not of that form.
std::optional<VisibleRange> parse_range(const std::string& text, std::string_view between) {
  const size_t middle = text.find(between);
  if (middle == std::string::npos) return std::nullopt;
  const std::optional<int64_t> begin = parse_duration_ns(text.substr(0, middle));
  const std::optional<int64_t> end = parse_duration_ns(text.substr(middle + between.size()));
  if (!begin || !end || *begin >= *end) return std::nullopt;
  return VisibleRange{static_cast<double>(*begin), static_cast<double>(*end)};
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// By their numbers. None: not two.
std::optional<std::pair<uint64_t, uint64_t>> parse_steps(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return std::nullopt;
  const auto first = parse_number<uint64_t>(text.substr(0, comma));
  const auto second = parse_number<uint64_t>(text.substr(comma + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

Status go_to_rank(const StartView& start, const Model& model, Selection& selection) {
  if (start.rank.empty()) return {};
  const auto rank = parse_number<int64_t>(start.rank);
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    const int64_t of_lane = model.process_of(model.lanes[i]).info.rank;
    if (!rank || of_lane < 0 || of_lane != *rank) continue;
    selection.set_event(model, i, 0);
    selection.go_to_peak(model);
    return {};
  }
  return Error{fmt::format("{}: has no memory of rank {}", model.trace.path, start.rank)};
}

void go_to_peak_of(const Model& model, uint32_t step, Selection& selection) {
  const uint32_t lane = selection.cursor.lane();
  const AllocationHistory& memory = *model.lanes[lane].memory;
  const auto peak = peak_of_step(memory, model.steps_of(model.lanes[lane]), step);
  if (peak) selection.set_event(model, lane, *peak);
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
  } else if (const auto range = parse_range(start.time, ".."); range) {
    for (const double ns : {range->begin, range->end}) {
      if (Status s = check_time(model.trace, static_cast<int64_t>(ns)); !s) return s;
    }
    const double now = selection.cursor.time(model);
    if (now < range->begin || now > range->end) {
      selection.set_time(model, selection.cursor.lane(), range->end);
    }
    selection.view.show(range->begin, range->end);
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
    return Error{
        fmt::format("unknown panel '{}'; there are:\n{}", start.panel, Panels::names_and_ways())};
  }
  const bool named = start.time.empty() || start.time == "peak" || start.time == "oom";
  if (!named && !parse_duration_ns(start.time) && !parse_range(start.time, "..")) {
    return Error{
        "--time takes peak, oom, a time since the start such as 1.5s or 20ms, or two such as "
        "20ms..1.5s, not '" +
        start.time + "'"};
  }
  if (!start.rank.empty() && !parse_number<uint32_t>(start.rank)) {
    return Error{"--rank takes the number of a rank, not '" + start.rank + "'"};
  }
  if (!start.steps.empty() && !parse_steps(start.steps)) {
    return Error{"--steps takes the numbers of two steps such as 3,7, not '" + start.steps + "'"};
  }
  return {};
}

Status go_to_start(const StartView& start, const Model& model, Selection& selection) {
  selection.highlights.search = start.search;
  if (model.lanes.empty()) return {};
  if (Status s = go_to_rank(start, model, selection); !s) return s;
  if (Status s = go_to_time(start, model, selection); !s) return s;
  if (const std::optional<VisibleRange> view = parse_range(start.view, "-"); view) {
    selection.view.show(view->begin, view->end);
  }
  return {};
}

Status choose_steps(const StartView& start, const Model& model, Selection& selection,
                    StackPanelOptions& options) {
  const auto wanted = parse_steps(start.steps);
  if (!wanted) return {};
  const Steps& steps = model.steps_of(model.lanes[selection.cursor.lane()]);
  const auto index = [&](uint64_t number) { return number - steps.before.value_or(0); };
  if (steps.count() == 0) return Error{model.trace.path + ": has no steps to compare"};
  for (const uint64_t number : {wanted->first, wanted->second}) {
    if (index(number) < steps.count()) continue;
    return Error{fmt::format("{}: has no step {}; its steps are {} to {}", model.trace.path, number,
                             steps.number(0), steps.number(steps.count() - 1))};
  }
  options.steps = true;
  options.pair = {static_cast<uint32_t>(index(wanted->first)),
                  static_cast<uint32_t>(index(wanted->second))};
  if (start.time.empty()) go_to_peak_of(model, options.pair->unlike, selection);
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
