#include "viewer/panels/stack/stack_legend.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <numeric>

#include "analysis/wording.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void StackLegend::forget() {
  index_ = nullptr;
  hidden_.clear();
  work_.wish([] { return nullptr; }, true);
}

void StackLegend::isolate(uint32_t group, uint32_t count) {
  std::vector<bool> only(count, true);
  only[group] = false;
  if (only == hidden_) {
    hidden_.clear();
  } else {
    hidden_ = std::move(only);
  }
}

void StackLegend::toggle(uint32_t group, uint32_t count) {
  hidden_.resize(count);
  hidden_[group] = !hidden_[group];
  if (std::find(hidden_.begin(), hidden_.end(), true) == hidden_.end()) hidden_.clear();
}

void StackLegend::draw(const std::shared_ptr<const StackIndex>& index, uint32_t event,
                       uint64_t pending_bytes, bool at_once) {
  work_.poll();
  if (index_ != index.get()) hidden_.resize(0);
  if (index_ != index.get() || event_ != event) {
    index_ = index.get();
    event_ = event;
    work_.wish(
        [index, event] {
          auto bytes = std::make_shared<Bytes>();
          bytes->index = index;
          GroupTotals::Reader reader(*index->totals);
          reader.move_to(event);
          const bool segments = index->groups.are_segments();
          for (uint32_t g = 0; g < index->groups.count; ++g) {
            bytes->held.push_back(segments ? reader.reserved(g) : reader.bytes(g));
            if (bytes->held.back() != 0) bytes->order.push_back(g);
          }
          std::stable_sort(bytes->order.begin(), bytes->order.end(),
                           [&](uint32_t a, uint32_t b) { return bytes->held[a] > bytes->held[b]; });
          return bytes;
        },
        at_once);
  }
  const std::shared_ptr<const Bytes> shown = work_.value();
  if (shown == nullptr || shown->index != index) return;
  std::vector<uint32_t> rows = shown->order;
  for (uint32_t g = 0; g < hidden_.size(); ++g) {
    if (hidden_[g] && shown->held[g] == 0) rows.push_back(g);
  }
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, px(1)));
  const float room = ImGui::GetContentRegionAvail().x;
  const float square = ImGui::GetTextLineHeight();
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(rows.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const uint32_t g = rows[static_cast<size_t>(i)];
      const ImVec2 at = ImGui::GetCursorScreenPos();
      ImGui::PushID(static_cast<int>(g));
      ImGui::InvisibleButton("##group", {std::max(room, 1.0F), square + px(3)});
      ImGui::PopID();
      const bool off = is_hidden(g);
      ImDrawList& draw = *ImGui::GetWindowDrawList();
      if (ImGui::IsItemHovered()) {
        draw.AddRectFilled(at, at + ImVec2(room, square + px(3)), paint(theme().raised), px(3));
      }
      const float inset = px(3);
      const Rgb colour = index->colours[g];
      draw.AddRectFilled(at + ImVec2(0, inset), at + ImVec2(square - inset, square),
                         paint(colour, off ? 70 : 255), px(2));
      const std::string bytes = size_text(shown->held[g]);
      const float right = room - width_of(bytes) - px(4);
      const std::string name = fitted(index->names[g], right - square - px(8));
      const ImU32 ink = paint(off ? theme().dim : theme().text, off ? 120 : 255);
      draw.AddText(at + ImVec2(square + px(2), px(1)), ink, name.c_str());
      draw.AddText(at + ImVec2(right, px(1)), paint(theme().dim, off ? 120 : 255), bytes.c_str());
      explain((index->names[g] + "\nclick: show only this   ctrl-click: hide or show").c_str());
      if (!ImGui::IsItemClicked()) continue;
      if (ImGui::GetIO().KeyCtrl) {
        toggle(g, index->groups.count);
      } else {
        isolate(g, index->groups.count);
      }
    }
  }
  ImGui::PopStyleVar();
  if (pending_bytes != 0) {
    text_dim(fmt::format("pending free {}", size_text(pending_bytes)));
    explain(
        "Freed by the program, but another stream may still be using it. Hatched above the "
        "allocated bands.");
  }
  if (!hidden_.empty() && ImGui::SmallButton("show all")) hidden_.clear();
}

}  // namespace tidemark::view
