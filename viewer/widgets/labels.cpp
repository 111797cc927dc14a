#include "viewer/widgets/labels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void Labels::add(int rank, ImVec2 at, ImU32 ink, std::string text, ImU32 ground) {
  if (text.empty()) return;
  const ImVec2 pad(px(4), 0);
  const ImVec2 min(std::round(at.x), std::round(at.y));
  const ImVec2 size(width_of(text), ImGui::GetTextLineHeight());
  labels_.push_back(
      {rank, min - pad, min + size + pad, pad, ink, ground, ImGui::GetFont(), std::move(text), {}});
}

void Labels::add_at_either(int rank, std::vector<ImVec2> places, ImU32 ink, std::string text) {
  if (places.empty() || text.empty()) return;
  add(rank, places.front(), ink, std::move(text));
  labels_.back().elsewhere.assign(places.begin() + 1, places.end());
}

void Labels::add_flag(int rank, ImVec2 at, float least_x, float most_x, Rgb colour,
                      std::string text, const std::vector<ImVec2>& others) {
  const ImVec2 pad(px(5), px(2));
  const ImVec2 size(width_of(text) + 2 * pad.x, ImGui::GetFontSize() + 2 * pad.y);
  const auto corner = [&](ImVec2 lower_middle) {
    const float left =
        std::clamp(lower_middle.x - size.x / 2, least_x, std::max(least_x, most_x - size.x));
    return ImVec2(std::round(left), std::round(lower_middle.y - size.y));
  };
  const ImVec2 min = corner(at);
  const Rgb ink = is_light(colour) ? Rgb{12, 14, 18} : Rgb{255, 255, 255};
  labels_.push_back({rank,
                     min,
                     min + size,
                     pad,
                     paint(ink),
                     paint(colour, 235),
                     ImGui::GetFont(),
                     std::move(text),
                     {}});
  for (const ImVec2& other : others) labels_.back().elsewhere.push_back(corner(other) + pad);
}

bool Labels::taken(const Label& l, size_t count) const {
  const auto meets = [&](const Label& o) {
    return !o.text.empty() && l.min.x < o.max.x && o.min.x < l.max.x && l.min.y < o.max.y &&
           o.min.y < l.max.y;
  };
  return std::any_of(labels_.begin(), labels_.begin() + static_cast<std::ptrdiff_t>(count), meets);
}

void Labels::draw(ImDrawList& draw) {
  std::stable_sort(labels_.begin(), labels_.end(),
                   [](const Label& a, const Label& b) { return a.rank < b.rank; });
  for (size_t i = 0; i < labels_.size(); ++i) {
    Label& l = labels_[i];
    const ImVec2 size = l.max - l.min;
    for (size_t p = 0; p < l.elsewhere.size() && taken(l, i); ++p) {
      l.min = ImVec2(std::round(l.elsewhere[p].x), std::round(l.elsewhere[p].y)) - l.pad;
      l.max = l.min + size;
    }
    if (taken(l, i)) {
      l.text.clear();  // not drawn, so it takes no place
      continue;
    }
    if (l.ground != 0) draw.AddRectFilled(l.min, l.max, l.ground, px(3));
    draw.AddText(l.font, l.font->FontSize, l.min + l.pad, l.ink, l.text.c_str());
  }
}

}  // namespace tidemark::view
