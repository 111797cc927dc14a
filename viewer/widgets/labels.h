// Labels of a plot that never overlap: where two need the same place, the more important one gets
// it.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

#include "viewer/widgets/theme.h"

namespace tidemark::view {

class Labels {
 public:
  // Text with its upper left at `at`, in the current font. The smaller `rank` wins. It has a
  // background (0: none), so that a curve does not run through it.
  void add(int rank, ImVec2 at, ImU32 ink, std::string text,
           ImU32 ground = paint(theme().panel, 228));
  // At the first free one of these places.
  void add_at_either(int rank, std::vector<ImVec2> places, ImU32 ink, std::string text);
  // Like draw_flag(): on a tab whose lower middle is at `at`, kept within [least_x, most_x]. If
  // that place is taken, at the first free one of the others.
  void add_flag(int rank, ImVec2 at, float least_x, float most_x, Rgb colour, std::string text,
                const std::vector<ImVec2>& others = {});

  void draw(ImDrawList& draw);

 private:
  struct Label {
    int rank = 0;
    ImVec2 min;
    ImVec2 max;
    ImVec2 pad;
    ImU32 ink = 0;
    ImU32 ground = 0;
    ImFont* font = nullptr;
    std::string text;
    std::vector<ImVec2> elsewhere;  // upper left corners to try if this place is taken
  };

  // Whether the label overlaps one of the first `count`.
  bool taken(const Label& label, size_t count) const;

  std::vector<Label> labels_;
};

}  // namespace tidemark::view
