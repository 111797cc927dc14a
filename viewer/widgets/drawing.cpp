#include "viewer/widgets/drawing.h"

#include <algorithm>
#include <cmath>

#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void draw_hatch(ImDrawList& draw, ImVec2 min, ImVec2 max, ImU32 colour, float spacing,
                bool falling) {
  const float height = max.y - min.y;
  if (max.x - min.x < 1 || height < 1) return;
  draw.PushClipRect(min, max, true);
  // Aligned to the screen, so that the lines of neighbours meet.
  const float first = std::floor((min.x - height) / spacing) * spacing;
  for (float x = first; x < max.x; x += spacing) {
    draw.AddLine({x, falling ? min.y : max.y}, {x + height, falling ? max.y : min.y}, colour, 1);
  }
  draw.PopClipRect();
}

void draw_dashes(ImDrawList& draw, ImVec2 from, ImVec2 to, ImU32 colour, float dash,
                 float thickness) {
  const ImVec2 way = to - from;
  const float length = std::hypot(way.x, way.y);
  if (length <= 0 || dash <= 0) return;
  const ImVec2 unit = way / length;
  for (float at = 0; at < length; at += 2 * dash) {
    const float end = std::min(at + dash, length);
    draw.AddLine(from + unit * at, from + unit * end, colour, thickness);
  }
}

void draw_text_in(ImDrawList& draw, ImVec2 min, ImVec2 max, ImU32 colour, std::string_view t) {
  const float pad = px(4);
  const float room = max.x - min.x - 2 * pad;
  if (room < ImGui::GetFontSize() * 1.6F) return;
  const std::string shown = fitted(t, room);
  const float y = min.y + (max.y - min.y - ImGui::GetFontSize()) / 2;
  draw.AddText({std::round(min.x + pad), std::round(y)}, colour, shown.c_str());
}

void draw_flag(ImDrawList& draw, ImVec2 at, float least_x, float most_x, Rgb colour,
               std::string_view t) {
  const ImVec2 pad(px(5), px(2));
  const ImVec2 size(width_of(t) + 2 * pad.x, ImGui::GetFontSize() + 2 * pad.y);
  const float left = std::clamp(at.x - size.x / 2, least_x, std::max(least_x, most_x - size.x));
  const ImVec2 min(std::round(left), std::round(at.y - size.y));
  draw.AddRectFilled(min, min + size, paint(colour, 235), px(3));
  const Rgb ink = is_light(colour) ? Rgb{12, 14, 18} : Rgb{255, 255, 255};
  draw.AddText(min + pad, paint(ink), t.data(), t.data() + t.size());
}

int draw_bar(const char* id, const std::vector<BarPart>& parts, double whole, ImVec2 size) {
  const ImVec2 min = ImGui::GetCursorScreenPos();
  ImGui::InvisibleButton(id, size);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 max = min + size;
  draw.AddRectFilled(min, max, paint(theme().raised), px(4));
  int hovered = -1;
  double at = 0;
  for (size_t i = 0; i < parts.size() && whole > 0; ++i) {
    const BarPart& part = parts[i];
    const auto left = static_cast<float>(at / whole) * size.x;
    at += part.amount;
    const auto right = static_cast<float>(std::min(at / whole, 1.0)) * size.x;
    if (right - left < 0.5F) continue;
    const ImVec2 a(min.x + left, min.y);
    const ImVec2 b(min.x + std::max(right - 1, left + 0.5F), max.y);
    draw.AddRectFilled(a, b, paint(part.colour, part.hatched ? 70 : 255), px(3));
    if (part.hatched) draw_hatch(draw, a, b, paint(part.colour, 190), px(7));
    const Rgb ink = part.hatched            ? theme().text
                    : is_light(part.colour) ? Rgb{12, 14, 18}
                                            : Rgb{255, 255, 255};
    draw_text_in(draw, a, b, paint(ink), part.label);
    if (ImGui::IsItemHovered() && ImGui::IsMouseHoveringRect(a, b)) hovered = static_cast<int>(i);
  }
  return hovered;
}

}  // namespace tidemark::view
