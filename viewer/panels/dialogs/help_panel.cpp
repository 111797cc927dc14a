#include "viewer/panels/dialogs/help_panel.h"

#include <imgui.h>

#include "viewer/widgets/dialog.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void draw_help(bool& open) {
  if (begin_dialog("Keys", &open, {px(540), px(860)}) && ImGui::BeginTable("##keys", 2)) {
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
  end_dialog();
}

}  // namespace tidemark::view
