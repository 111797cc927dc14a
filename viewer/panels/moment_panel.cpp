#include "viewer/panels/moment_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <string>

#include "export/names.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kStacks = 8;

struct LedgerEntry {
  const char* name;
  const char* meaning;
  uint64_t bytes;
  Rgb colour;
  bool hatched;
};

std::vector<LedgerEntry> ledger_of(const Lane& lane, const MemoryTotals& t) {
  const auto less = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
  // Requested falls only when a free completes; what waits for that is counted apart.
  const uint64_t asked = std::min(t.requested, t.allocated);
  std::vector<LedgerEntry> entries = {
      {"asked for", "What tensors asked for.", asked, theme().allocated, false},
      {"rounding", "Lost to rounding requests up to block sizes.", less(t.allocated, asked),
       shade(theme().allocated, theme().dark ? -0.45 : 0.5), false},
      {"pending free", "Freed by the program, but another stream may still use it.",
       less(t.active, t.allocated), theme().pending, false},
      {"cached", "Reserved by the allocator and free: holes in its segments.",
       less(t.reserved, t.active), theme().reserved, true}};
  if (lane.total_bytes > t.reserved) {
    entries.push_back({"rest of the card",
                       "Not reserved by this process's allocator: free, or held by the context, "
                       "libraries and other processes.",
                       lane.total_bytes - t.reserved, theme().hole, true});
  }
  return entries;
}

}  // namespace

void MomentPanel::update(const Model& model, Selection& selection) {
  if (model_ == &model && version_ == selection.version()) return;
  model_ = &model;
  version_ = selection.version();
  const Moment& moment = selection.moment(model);
  const Lane& lane = model.lanes[moment.lane];
  const TableSource source{*lane.memory, moment.state, moment.layout, model.text_of(lane)};
  categories_ = category_rows(source, {0, true});
  stacks_ = stack_rows(source, "", {0, true});
}

void MomentPanel::draw_ledger(const Lane& lane, const Moment& moment) {
  const std::vector<LedgerEntry> entries = ledger_of(lane, moment.state.totals);
  double whole = 0;
  std::vector<BarPart> parts;
  for (const LedgerEntry& e : entries) {
    whole += static_cast<double>(e.bytes);
    parts.push_back({static_cast<double>(e.bytes), e.colour, e.hatched, e.name});
  }
  const int hovered = draw_bar("##ledger", parts, whole,
                               {std::max(ImGui::GetContentRegionAvail().x, px(40)), px(26)});
  if (hovered >= 0) {
    const LedgerEntry& e = entries[static_cast<size_t>(hovered)];
    ImGui::SetTooltip("%s: %s\n%s", e.name, size_text(e.bytes).c_str(), e.meaning);
  }
  if (!ImGui::BeginTable("##entries", 3, ImGuiTableFlags_SizingStretchProp)) return;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("bytes", ImGuiTableColumnFlags_WidthFixed, px(84));
  ImGui::TableSetupColumn("share", ImGuiTableColumnFlags_WidthFixed, px(58));
  for (const LedgerEntry& e : entries) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    swatch(e.colour);
    text(e.name);
    explain(e.meaning);
    ImGui::TableNextColumn();
    text_right(size_text(e.bytes));
    ImGui::TableNextColumn();
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
    text_right(percent_text(e.bytes, static_cast<uint64_t>(whole)));
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

void MomentPanel::draw_categories(const Moment& moment) {
  const bool known = std::any_of(categories_.begin(), categories_.end(), [](const CategoryRow& c) {
    return c.category != Category::kUnknown;
  });
  if (!known) return;
  ImGui::SeparatorText("By kind");
  std::vector<BarPart> parts;
  for (const CategoryRow& c : categories_) {
    parts.push_back({static_cast<double>(c.bytes), category_colour(c.category), false,
                     category_name(c.category)});
  }
  const int hovered = draw_bar("##kinds", parts, static_cast<double>(moment.state.totals.active),
                               {std::max(ImGui::GetContentRegionAvail().x, px(40)), px(22)});
  if (hovered >= 0) {
    const CategoryRow& c = categories_[static_cast<size_t>(hovered)];
    ImGui::SetTooltip("%s: %s in %s", std::string(category_name(c.category)).c_str(),
                      size_text(c.bytes).c_str(), counted(c.count, "block").c_str());
  }
}

void MomentPanel::draw_stacks(const Model& model, const Lane& lane, const Moment& moment) {
  ImGui::SeparatorText("Largest stacks");
  const size_t shown = std::min(kStacks, stacks_.size());
  if (shown == 0) text_dim("Nothing was allocated at this instant.");
  const auto most = shown == 0 ? 1.0 : static_cast<double>(stacks_.front().bytes);
  for (size_t i = 0; i < shown; ++i) {
    const StackRow& row = stacks_[i];
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const float height = ImGui::GetTextLineHeight() + px(4);
    const auto share = static_cast<float>(static_cast<double>(row.bytes) / most);
    ImGui::GetWindowDrawList()->AddRectFilled(at, {at.x + width * share, at.y + height},
                                              paint(stack_colour(row.stack), 62), px(3));
    const std::string bytes = size_text(row.bytes);
    const float column = px(84);
    ImGui::GetWindowDrawList()->AddText({at.x + column - width_of(bytes) - px(10), at.y + px(2)},
                                        paint(theme().text), bytes.c_str());
    const std::string_view head = model.text_of(lane).headline(row.stack, row.before_recording);
    ImGui::GetWindowDrawList()->AddText({at.x + column, at.y + px(2)}, paint(theme().text),
                                        fitted(head, width - column - px(4)).c_str());
    ImGui::Dummy({width, height});
    if (ImGui::IsItemHovered() && ImGui::BeginTooltip()) {
      text(fmt::format("{}, {} of what is live, {}", bytes,
                       percent_text(row.bytes, moment.state.totals.active),
                       counted(row.count, "block")));
      for (const std::string& line : model.text_of(lane).names().stack_text(row.stack)) {
        text_dim(line);
      }
      ImGui::EndTooltip();
    }
  }
  if (stacks_.size() > shown) {
    text_dim(fmt::format("and {}: see Tables", counted(stacks_.size() - shown, "smaller stack")));
  }
}

void MomentPanel::draw(const Model& model, Selection& selection) {
  if (selection.lane >= model.lanes.size()) {
    text_dim("There is no allocator history in this trace.");
    return;
  }
  update(model, selection);
  const Moment& moment = selection.moment(model);
  const Lane& lane = model.lanes[selection.lane];
  {
    const WithFont bold(fonts().bold);
    text(fmt::format("{}  {}", lane.name, instant_text(selection.time(model), model.span_ns())));
  }
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != selection.lane || oom.event != selection.event) continue;
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
    std::string what = "Out of memory: asked for " + size_text(oom.requested_bytes);
    if (oom.layer == Layer::kFramework) {
      what += fmt::format(", {} free on the card", size_text(oom.device_free_bytes));
    }
    text_wrapped(what);
    ImGui::PopStyleColor();
    break;
  }
  draw_ledger(lane, moment);
  const MemoryState& s = moment.state;
  if (!s.holes.empty()) {
    text_wrapped(fmt::format("{} cached and free in {}, the largest {}", size_text(s.free_bytes()),
                             counted(s.holes.size(), "hole"), size_text(s.largest_hole_bytes())));
    explain(
        "A request larger than the largest hole needs new memory from the card, however much "
        "is free in all.");
  }
  draw_categories(moment);
  draw_stacks(model, lane, moment);
}

}  // namespace tidemark::view
