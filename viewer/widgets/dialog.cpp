#include "viewer/widgets/dialog.h"

#include <algorithm>

#include "viewer/widgets/theme.h"

namespace tidemark::view {

bool begin_dialog(const char* title, bool* open, ImVec2 size) {
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const ImVec2 most(viewport->WorkSize.x - px(20), viewport->WorkSize.y - px(20));
  ImGui::SetNextWindowPos(viewport->GetWorkCenter(), ImGuiCond_Appearing, {0.5F, 0.5F});
  ImGui::SetNextWindowSize({std::min(size.x, most.x), std::min(size.y, most.y)},
                           size.y > 0 ? ImGuiCond_Appearing : ImGuiCond_Always);
  // Panels have no border; a dialog above them needs one, most of all in the light theme.
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, px(1));
  const bool shown = ImGui::Begin(
      title, open,
      ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoSavedSettings);
  ImGui::PopStyleVar();
  return shown;
}

void end_dialog() {
  ImGui::End();
}

}  // namespace tidemark::view
