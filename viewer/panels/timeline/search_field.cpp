#include "viewer/panels/timeline/search_field.h"

#include <imgui.h>

#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

void SearchField::draw(std::string& search) {
  const float width = px(190);
  flow(width);
  ImGui::SetNextItemWidth(width);
  char buffer[256];
  const size_t n = search.copy(buffer, sizeof buffer - 1);
  buffer[n] = '\0';
  ahead.before_field();
  if (ImGui::InputTextWithHint("##search", "Search stacks  ( / )", buffer, sizeof buffer)) {
    search = buffer;
  }
  // ImGui would restore the text from before.
  if (ImGui::IsItemDeactivated() && pressed(Command::kClear)) search.clear();
  ahead.after_field();
  explain("Highlights every block, stack and annotation that contains this text, in all panels.");
}

}  // namespace tidemark::view
