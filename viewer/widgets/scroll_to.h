// Brings the row of what was chosen in another panel into view, once.
#pragma once

#include <imgui.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tidemark::view {

class ScrollTo {
 public:
  // Inside of the window that scrolls, in each frame. row_of(chosen) is the number of its row, or
  // nothing while it has none: it is asked again. `above`: the height of what does not scroll.
  template <typename RowOf>
  void follow(std::optional<uint64_t> chosen, float row_height, float above, const RowOf& row_of) {
    if (chosen != chosen_) frames_ = kFrames;
    chosen_ = chosen;
    if (!chosen || frames_ == 0) return;
    const std::optional<size_t> row = row_of(*chosen);
    if (!row) return;
    --frames_;
    const float top = static_cast<float>(*row) * row_height;
    const float room = ImGui::GetWindowHeight() - above;
    const float at = ImGui::GetScrollY();
    if (top >= at && top + row_height <= at + room) return;
    ImGui::SetScrollY(std::max(0.0F, top - room / 2));
  }

 private:
  // A window knows how far it can scroll only after it was drawn once.
  static constexpr int kFrames = 3;

  std::optional<uint64_t> chosen_;
  int frames_ = 0;
};

}  // namespace tidemark::view
