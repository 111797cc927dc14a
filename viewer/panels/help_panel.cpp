#include "viewer/panels/help_panel.h"

#include <imgui.h>

#include <algorithm>

#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

struct Line {
  const char* keys;  // null: a heading
  const char* meaning;
};

constexpr Line kLines[] = {
    {nullptr, "Time"},
    {"wheel, W / S", "zoom in and out at the mouse"},
    {"drag, A / D", "move left and right"},
    {"F", "show the whole run"},
    {"click", "look at this instant"},
    {"shift + drag", "measure time, growth and peak"},
    {"Z", "zoom to what was measured"},
    {"left / right", "one event back or on (with shift: 100)"},
    {"ctrl + wheel", "scroll through the ranks"},
    {nullptr, "Places"},
    {"P", "the peak"},
    {"N / B", "the next and the previous out-of-memory error"},
    {"C", "compare from here; C again ends it"},
    {"ctrl + click on a rank", "compare with that rank"},
    {"/", "search in stacks and annotations"},
    {"Esc", "clear search, measure and comparison"},
    {nullptr, "Flame graph"},
    {"click", "zoom to a function"},
    {"right click, Backspace", "one step back out"},
    {nullptr, "Program"},
    {"1 to 8", "bring a panel to the front"},
    {"ctrl + O", "open a trace; or drop a file on the window"},
    {"ctrl + E", "export the time in view or a rank for Perfetto"},
    {"ctrl + shift + O", "a second trace to compare with; or drop it with shift"},
    {"F5", "read the file again"},
    {"T", "dark or light"},
    {"F12", "save a picture of the window"},
    {"F1, ?", "this page"},
};

}  // namespace

void draw_help(bool& open) {
  const ImVec2 room = ImGui::GetMainViewport()->WorkSize;
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetWorkCenter(), ImGuiCond_Appearing,
                          {0.5F, 0.5F});
  ImGui::SetNextWindowSize({std::min(px(520), room.x - px(20)), std::min(px(640), room.y - px(20))},
                           ImGuiCond_Appearing);
  if (ImGui::Begin("Keys", &open, ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoCollapse) &&
      ImGui::BeginTable("##keys", 2)) {
    ImGui::TableSetupColumn("keys", ImGuiTableColumnFlags_WidthFixed, px(170));
    ImGui::TableSetupColumn("meaning", ImGuiTableColumnFlags_WidthStretch);
    for (const Line& line : kLines) {
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
