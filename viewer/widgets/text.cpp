#include "viewer/widgets/text.h"

#include <imgui_internal.h>

#include <algorithm>

#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr std::string_view kDots = "...";

// How many bytes of the text fit: whole characters.
size_t bytes_within(std::string_view t, float width) {
  const char* rest = nullptr;
  ImGui::GetFont()->CalcTextSizeA(ImGui::GetFontSize(), width, 0, t.data(), t.data() + t.size(),
                                  &rest);
  return static_cast<size_t>(rest - t.data());
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool starts_with_unit(std::string_view t) {
  for (const std::string_view unit :
       {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "%", "ns", "us", "ms", "s", "min", "h"}) {
    if (!t.starts_with(unit)) continue;
    const char next = t.size() > unit.size() ? t[unit.size()] : ' ';
    if ((next < 'a' || next > 'z') && (next < 'A' || next > 'Z')) return true;
  }
  return false;
}

// Where the first word ends: at a space that may be a line break, or at one.
size_t word_end(std::string_view t) {
  for (size_t i = 0; i < t.size(); ++i) {
    if (t[i] == '\n') return i;
    const bool number = i > 0 && is_digit(t[i - 1]);
    if (t[i] == ' ' && !(number && starts_with_unit(t.substr(i + 1)))) return i;
  }
  return t.size();
}

}  // namespace

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
  text(wrapped(t, ImGui::GetContentRegionAvail().x));
}

std::string wrapped(std::string_view t, float width) {
  const float room = std::max(width, px(60));
  const float space = width_of(" ");
  std::string out;
  float used = 0;
  while (!t.empty()) {
    const size_t end = word_end(t);
    std::string_view word = t.substr(0, end);
    const bool new_line = end < t.size() && t[end] == '\n';
    t.remove_prefix(std::min(end + 1, t.size()));
    if (used > 0 && used + space + width_of(word) > room) {
      out += '\n';
      used = 0;
    } else if (used > 0) {
      out += ' ';
      used += space;
    }
    while (width_of(word) > room) {
      size_t fits = std::max<size_t>(bytes_within(word, room), 1);
      const size_t sign = word.substr(0, fits).find_last_of("=:/");  // better than inside a name
      if (sign != std::string_view::npos) fits = sign + 1;
      out.append(word.substr(0, fits)) += '\n';
      word.remove_prefix(fits);
    }
    out += word;
    used += width_of(word);
    if (new_line) {
      out += '\n';
      used = 0;
    }
  }
  return out;
}

void text_right(std::string_view t) {
  const float room = ImGui::GetContentRegionAvail().x - width_of(t);
  if (room > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room);
  text(t);
}

float width_of(std::string_view t) {
  return ImGui::CalcTextSize(t.data(), t.data() + t.size()).x;
}

std::string fitted(std::string_view t, float width) {
  if (width_of(t) <= width) return std::string(t);
  const float room = width - width_of(kDots);
  if (room <= 0) return {};
  return std::string(t.substr(0, bytes_within(t, room))) + std::string(kDots);
}

std::string fitted_ends(std::string_view t, float width) {
  if (width_of(t) <= width) return std::string(t);
  const float room = width - width_of(kDots);
  if (room <= 0) return {};
  const std::string_view head = t.substr(0, bytes_within(t, room / 2));
  std::string_view tail = t.substr(head.size());
  const float left = room - width_of(head);
  while (!tail.empty() && width_of(tail) > left) {
    // At least one whole character at a time.
    const float over = width_of(tail) - left;
    tail.remove_prefix(std::max<size_t>(bytes_within(tail, over), 1));
    while (!tail.empty() && (static_cast<unsigned char>(tail[0]) & 0xc0) == 0x80) {
      tail.remove_prefix(1);
    }
  }
  return std::string(head) + std::string(kDots) + std::string(tail);
}

std::string fitted_line(std::string_view t, float width) {
  const size_t gap = t.find("  ");
  if (gap == std::string_view::npos || width_of(t) <= width) return fitted(t, width);
  const std::string_view place = t.substr(gap);
  const std::string function = fitted(t.substr(0, gap), width - width_of(place));
  return function.empty() ? fitted_ends(t, width) : function + std::string(place);
}

void explain(const char* t) {
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
  if (!ImGui::BeginTooltip()) return;
  text(wrapped(t, px(340)));
  ImGui::EndTooltip();
}

void flow(float width) {
  const ImGuiWindow* window = ImGui::GetCurrentWindow();
  const float end = window->DC.CursorPosPrevLine.x + ImGui::GetStyle().ItemSpacing.x + width;
  if (end < window->WorkRect.Max.x) ImGui::SameLine();
}

void fact(const char* label, std::string_view value, float column) {
  text_dim(label);
  ImGui::SameLine(std::max(column, width_of(label) + px(14)));
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

void colour_scale(const char* dark, const char* bright) {
  text_dim(dark);
  ImGui::SameLine(0, px(6));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = px(120);
  const float height = ImGui::GetTextLineHeight();
  constexpr int kParts = 24;
  for (int i = 0; i < kParts; ++i) {
    const float left = at.x + width * static_cast<float>(i) / kParts;
    ImGui::GetWindowDrawList()->AddRectFilled(
        {left, at.y + px(2)}, {left + width / kParts, at.y + height - px(2)},
        paint(viridis(static_cast<double>(i) / (kParts - 1))));
  }
  ImGui::Dummy({width, height});
  ImGui::SameLine(0, px(6));
  text_dim(bright);
}

}  // namespace tidemark::view
