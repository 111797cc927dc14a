#include "viewer/app/panels.h"

#include <algorithm>

namespace tidemark::view {

namespace {

template <auto Panels::*kPanel>
void draw_panel(Panels& panels, const Model& model, Selection& selection) {
  (panels.*kPanel).draw(model, selection);
}

constexpr Panels::Entry kEntries[] = {
    {"timeline", TimelinePanel::kTitle, &draw_panel<&Panels::timeline>},
    {"map", MapPanel::kTitle, &draw_panel<&Panels::map>},
    {"flame", FlamePanel::kTitle, &draw_panel<&Panels::flame>},
    {"tables", TablesPanel::kTitle, &draw_panel<&Panels::tables>},
    {"moment", MomentPanel::kTitle, &draw_panel<&Panels::moment>},
    {"findings", FindingsPanel::kTitle, &draw_panel<&Panels::findings>},
    {"ranks", RanksPanel::kTitle, &draw_panel<&Panels::ranks>},
    {"compare", ComparePanel::kTitle, &draw_panel<&Panels::compare>},
    {"block", DetailPanel::kTitle, &draw_panel<&Panels::detail>},
    {"stack", StackPanel::kTitle, &draw_panel<&Panels::stack>},
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
    if (way == "events") timeline.options.by_event = true;
    if (way == "own-scale") timeline.options.own_scale = true;
    if (way == "stacked") timeline.options.stacked = true;
    return way == "events" || way == "own-scale" || way == "stacked";
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
