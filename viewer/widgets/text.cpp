#include "viewer/widgets/text.h"

#include <imgui_internal.h>

#include <algorithm>

#include "viewer/widgets/theme.h"

namespace tidemark::view {

void text(std::string_view t) {
  ImGui::TextUnformatted(t.data(), t.data() + t.size());
}

void text_in_colour(Rgb colour, std::string_view t) {
  ImGui::PushStyleColor(ImGuiCol_Text, paint(colour));
  text(t);
  ImGui::PopStyleColor();
}

void text_dim(std::string_view t) {
  text_in_colour(theme().dim, t);
}

void text_wrapped(std::string_view t) {
  ImGui::PushTextWrapPos(0);
  text(t);
  ImGui::PopTextWrapPos();
}

void text_right(std::string_view t) {
  const float room = ImGui::GetContentRegionAvail().x - width_of(t);
  if (room > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room);
  text(t);
}

float width_of(std::string_view t) {
  return ImGui::CalcTextSize(t.data(), t.data() + t.size()).x;
}

std::string in_words(std::string_view id) {
  std::string words(id);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string fitted(std::string_view t, float width) {
  if (width_of(t) <= width) return std::string(t);
  static constexpr std::string_view kDots = "...";
  const float room = width - width_of(kDots);
  if (room <= 0) return {};
  const char* rest = nullptr;
  ImGui::GetFont()->CalcTextSizeA(ImGui::GetFontSize(), room, 0, t.data(), t.data() + t.size(),
                                  &rest);
  return std::string(t.data(), rest) + std::string(kDots);
}

void explain(const char* t) {
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
  if (!ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(px(340));
  ImGui::TextUnformatted(t);
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void flow(float width) {
  const ImGuiWindow* window = ImGui::GetCurrentWindow();
  const float end = window->DC.CursorPosPrevLine.x + ImGui::GetStyle().ItemSpacing.x + width;
  if (end < window->WorkRect.Max.x) ImGui::SameLine();
}

void fact(const char* label, std::string_view value, float column) {
  text_dim(label);
  ImGui::SameLine(column);
  text_wrapped(value);
}

void swatch(Rgb colour) {
  const float side = ImGui::GetFontSize() * 0.7F;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  // Next to buttons, text starts below the upper edge of the line.
  const float drop = ImGui::GetCurrentWindow()->DC.CurrLineTextBaseOffset +
                     (ImGui::GetTextLineHeight() - side) / 2;
  ImGui::GetWindowDrawList()->AddRectFilled({at.x, at.y + drop}, {at.x + side, at.y + drop + side},
                                            paint(colour), px(2));
  ImGui::Dummy({side, ImGui::GetTextLineHeight()});
  ImGui::SameLine(0, px(6));
}

}  // namespace tidemark::view
