#include "viewer/app/panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark::view {

namespace {

template <auto Panels::*kPanel>
void draw_panel(Panels& panels, const Model& model, Selection& selection) {
  auto& panel = panels.*kPanel;
  panel.draw(model, selection);
  if constexpr (requires { panel.unfinished(); }) panels.note_drawn(panel.unfinished());
}

struct TimelineWay {
  const char* word;
  bool TimelineOptions::*option;
};
constexpr TimelineWay kTimelineWays[] = {{"events", &TimelineOptions::by_event},
                                         {"own-scale", &TimelineOptions::own_scale},
                                         {"stacked", &TimelineOptions::stacked}};

std::vector<std::string> timeline_ways() {
  std::vector<std::string> words;
  for (const TimelineWay& way : kTimelineWays) words.emplace_back(way.word);
  return words;
}

std::vector<std::string> colour_ways() {
  std::vector<std::string> words;
  for (int i = 0; i < kColourings; ++i) {
    words.emplace_back(colouring_name(static_cast<ColourBy>(i)));
  }
  return words;
}

std::vector<std::string> rank_ways() {
  return {"heat", "curves"};
}

// Kinds of bands and how they are drawn; then the colours that no kind of band is named for.
std::vector<std::string> stack_ways() {
  std::vector<std::string> words = StackPanelOptions::ways();
  for (std::string& colour : colour_ways()) {
    if (std::find(words.begin(), words.end(), colour) == words.end()) {
      words.push_back(std::move(colour));
    }
  }
  return words;
}

constexpr Panels::Entry kEntries[] = {
    {"timeline", TimelinePanel::kTitle, &draw_panel<&Panels::timeline>, &timeline_ways},
    {"map", MapPanel::kTitle, &draw_panel<&Panels::map>, &colour_ways},
    {"flame", FlamePanel::kTitle, &draw_panel<&Panels::flame>, &FlamePanel::ways},
    {"tables", TablesPanel::kTitle, &draw_panel<&Panels::tables>, &TablesPanel::ways},
    {"moment", MomentPanel::kTitle, &draw_panel<&Panels::moment>},
    {"findings", FindingsPanel::kTitle, &draw_panel<&Panels::findings>},
    {"ranks", RanksPanel::kTitle, &draw_panel<&Panels::ranks>, &rank_ways},
    {"compare", ComparePanel::kTitle, &draw_panel<&Panels::compare>},
    {"block", DetailPanel::kTitle, &draw_panel<&Panels::detail>},
    {"stack", StackPanel::kTitle, &draw_panel<&Panels::stack>, &stack_ways},
};

bool colour_by(Colouring& colouring, const std::string& name) {
  for (int i = 0; i < kColourings; ++i) {
    if (name != colouring_name(static_cast<ColourBy>(i))) continue;
    colouring.by = static_cast<ColourBy>(i);
    return true;
  }
  return false;
}

}  // namespace

std::span<const Panels::Entry> Panels::entries() {
  return kEntries;
}

std::string Panels::names() {
  std::string names;
  for (const Entry& p : kEntries) names += (names.empty() ? "" : ", ") + std::string(p.id);
  return names;
}

std::string Panels::names_and_ways() {
  std::string text;
  for (const Entry& p : kEntries) {
    std::string ways;
    if (p.ways != nullptr) {
      for (const std::string& way : p.ways()) ways += (ways.empty() ? "" : ", ") + way;
    }
    text += (text.empty() ? "  " : "\n  ") +
            (ways.empty() ? std::string(p.id) : fmt::format("{:<10}{}", p.id, ways));
  }
  return text;
}

const Panels::Entry* Panels::find(std::string_view id) {
  const auto* found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                   [&](const Entry& p) { return p.id == id; });
  return found == std::end(kEntries) ? nullptr : found;
}

const Panels::Entry* Panels::choose(const std::string& panel, Selection& selection) {
  const size_t colon = panel.find(':');
  const Entry* entry = find(panel.substr(0, colon));
  if (entry == nullptr) return nullptr;
  for (size_t at = colon; at != std::string::npos;) {
    const size_t end = panel.find(':', at + 1);
    if (!show_as(*entry, selection, panel.substr(at + 1, end - at - 1))) return nullptr;
    at = end;
  }
  return entry;
}

bool Panels::show_as(const Entry& panel, Selection& selection, const std::string& way) {
  const std::string_view title = panel.title;
  if (title == TimelinePanel::kTitle) {
    for (const TimelineWay& known : kTimelineWays) {
      if (way != known.word) continue;
      timeline.options.*known.option = true;
      return true;
    }
    return false;
  }
  if (title == FlamePanel::kTitle) return flame.show_as(way);
  if (title == StackPanel::kTitle) {
    // A kind of band; else, where no kind has this name, a colour of blocks.
    return stack.options.show_as(way) || colour_by(selection.colouring, way);
  }
  if (title == TablesPanel::kTitle) return tables.show_as(way);
  if (title == MapPanel::kTitle) return colour_by(selection.colouring, way);
  if (title != RanksPanel::kTitle) return false;
  ranks.curves = way == "curves";
  return ranks.curves || way == "heat";
}

void Panels::forget_trace() {
  flame.forget_trace();
  stack.forget_trace();
  findings.forget_trace();
  const TimelineOptions options = timeline.options;
  timeline = TimelinePanel();
  timeline.use_stack(stack.indexes(), wake_);
  timeline.options = options;
  timeline.patient = ranks.patient;
  RanksPanel fresh;
  fresh.options = ranks.options;
  fresh.curves = ranks.curves;
  fresh.patient = ranks.patient;
  ranks = fresh;
}

}  // namespace tidemark::view
