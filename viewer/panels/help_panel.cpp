#include "viewer/panels/help_panel.h"

#include <imgui.h>

#include <algorithm>

#include "viewer/panels/key_table.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void draw_help(bool& open) {
  const ImVec2 room = ImGui::GetMainViewport()->WorkSize;
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetWorkCenter(), ImGuiCond_Appearing,
                          {0.5F, 0.5F});
  ImGui::SetNextWindowSize({std::min(px(520), room.x - px(20)), std::min(px(860), room.y - px(20))},
                           ImGuiCond_Appearing);
  if (ImGui::Begin("Keys", &open, ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoCollapse) &&
      ImGui::BeginTable("##keys", 2)) {
    ImGui::TableSetupColumn("keys", ImGuiTableColumnFlags_WidthFixed, px(170));
    ImGui::TableSetupColumn("meaning", ImGuiTableColumnFlags_WidthStretch);
    for (const KeyLine& line : key_lines()) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      if (line.keys == nullptr) {
        ImGui::Spacing();
        const WithFont bold(fonts().bold);
        text_in_colour(theme().accent, line.meaning);
        continue;
      }
      text(line.keys);
      ImGui::TableNextColumn();
      text_wrapped(line.meaning);
    }
    ImGui::EndTable();
  }
  ImGui::End();
}

}  // namespace tidemark::view
