#include "tests/support/drawn_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

namespace tidemark::view {

namespace {

using Corner = std::pair<float, float>;  // of a glyph in the font's texture

std::map<Corner, unsigned int> glyph_corners() {
  std::map<Corner, unsigned int> corners;
  for (const ImFont* font : ImGui::GetIO().Fonts->Fonts) {
    for (const ImFontGlyph& g : font->Glyphs) {
      if (g.Visible != 0) corners[{g.U0, g.V0}] = g.Codepoint;
    }
  }
  return corners;
}

// The visible part.
ImRect shown(const Letter& l) {
  ImRect r = l.box;
  r.ClipWith(l.clip);
  return r;
}

}  // namespace

std::vector<Letter> drawn_letters() {
  const std::map<Corner, unsigned int> corners = glyph_corners();
  std::vector<Letter> letters;
  const ImDrawData* data = ImGui::GetDrawData();
  for (const ImDrawList* list : data->CmdLists) {
    for (const ImDrawCmd& cmd : list->CmdBuffer) {
      if (cmd.UserCallback != nullptr) continue;
      const ImRect clip(cmd.ClipRect);
      for (unsigned int i = 0; i + 6 <= cmd.ElemCount;) {
        const ImDrawIdx* index = list->IdxBuffer.Data + cmd.IdxOffset + i;
        const ImDrawVert* v = list->VtxBuffer.Data + cmd.VtxOffset;
        const ImDrawVert& a = v[index[0]];
        const ImDrawVert& c = v[index[2]];
        // A letter is two triangles with four corners; the first one is the corner of a glyph.
        const bool quad = index[3] == index[0] && index[4] == index[2] && c.uv.x > a.uv.x &&
                          c.uv.y > a.uv.y && corners.contains({a.uv.x, a.uv.y});
        if (!quad) {
          i += 3;
          continue;
        }
        const ImRect box(a.pos, c.pos);
        if (box.Overlaps(clip)) {
          const unsigned int code = corners.at({a.uv.x, a.uv.y});
          letters.push_back(
              {box, clip, list->_OwnerName == nullptr ? "" : list->_OwnerName, code, a.col});
        }
        i += 6;
      }
    }
  }
  return letters;
}

namespace {

// Those of the Latin alphabet, in the windows whose names contain this.
std::vector<Letter> letters_in(const std::string& name) {
  std::vector<Letter> letters = drawn_letters();
  std::erase_if(letters, [&](const Letter& l) {
    return l.window.find(name) == std::string::npos || l.code > 126;
  });
  return letters;
}

}  // namespace

std::string read_window(const std::string& name) {
  std::string all;
  for (const Letter& l : letters_in(name)) all += static_cast<char>(l.code);
  return all;
}

std::optional<ImVec2> place_of_text(const std::string& name, const std::string& text) {
  const size_t at = read_window(name).find(without_spaces(text));
  if (at == std::string::npos) return std::nullopt;
  return letters_in(name)[at].box.GetCenter();
}

std::string without_spaces(const std::string& text) {
  std::string all = text;
  std::erase(all, ' ');
  return all;
}

bool painted(const std::string& name, unsigned char r, unsigned char g, unsigned char b) {
  const ImU32 wanted = IM_COL32(r, g, b, 0);
  for (const ImDrawList* list : ImGui::GetDrawData()->CmdLists) {
    const std::string owner = list->_OwnerName == nullptr ? "" : list->_OwnerName;
    if (owner.find(name) == std::string::npos) continue;
    for (const ImDrawVert& v : list->VtxBuffer) {
      if ((v.col & ~IM_COL32_A_MASK) == wanted && (v.col & IM_COL32_A_MASK) != 0) return true;
    }
  }
  return false;
}

std::vector<std::string> glued_units(const std::vector<Letter>& letters) {
  // Directly after the letter before, on one line. A space leaves most of a capital's height free.
  const auto follows = [&](size_t i, float capital) {
    const ImRect& before = letters[i - 1].box;
    const ImRect& box = letters[i].box;
    const float gap = box.Min.x - before.Max.x;
    return gap > -before.GetWidth() && gap < 0.5F * capital && box.Max.y > before.Min.y &&
           box.Min.y < before.Max.y;
  };
  std::vector<std::string> glued;
  for (size_t i = 3; i < letters.size(); ++i) {
    std::string text;
    for (size_t k = i - 3; k <= i; ++k) {
      text += letters[k].code < 127 ? static_cast<char>(letters[k].code) : '?';
    }
    const bool unit = text.find_first_of("KMGTP") == 0 && text.find("iB") == 1;
    const bool letter = std::isalpha(static_cast<unsigned char>(text.back())) != 0;
    if (!unit || !letter) continue;
    const float capital = letters[i - 3].box.GetHeight();
    if (follows(i - 2, capital) && follows(i - 1, capital) && follows(i, capital)) {
      glued.push_back(text);
    }
  }
  return glued;
}

std::vector<Letter> cut_letters(const std::vector<Letter>& letters) {
  std::vector<Letter> cut;
  for (const Letter& l : letters) {
    const float whole = l.box.GetWidth();
    const float part = shown(l).GetWidth();
    if (part > 0 && whole - part > std::max(1.0F, whole * 0.2F)) cut.push_back(l);
  }
  return cut;
}

std::vector<Letter> covered_letters(const std::vector<Letter>& letters) {
  // Buckets, so that a page of ten thousand letters is checked quickly.
  constexpr float kBucket = 32;
  std::map<std::pair<int, int>, std::vector<const Letter*>> buckets;
  std::vector<Letter> covered;
  for (const Letter& l : letters) {
    const ImRect r = shown(l);
    const auto bucket = [](float at) { return static_cast<int>(std::floor(at / kBucket)); };
    bool found = false;
    for (int x = bucket(r.Min.x); x <= bucket(r.Max.x); ++x) {
      for (int y = bucket(r.Min.y); y <= bucket(r.Max.y); ++y) {
        for (const Letter* other : buckets[{x, y}]) {
          if (other == &l) continue;
          ImRect both = shown(*other);
          const float smaller = std::min(r.GetArea(), both.GetArea());
          if (!both.Overlaps(r)) continue;
          both.ClipWith(r);
          if (both.GetArea() > 0.3F * smaller && smaller > 2) found = true;
        }
        buckets[{x, y}].push_back(&l);
      }
    }
    if (found) covered.push_back(l);
  }
  return covered;
}

}  // namespace tidemark::view
