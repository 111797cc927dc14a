#include "viewer/panels/timeline/search_field.h"

#include <imgui.h>
#include <imgui_internal.h>

#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// Where the timeline is not on the screen, the field never gets the focus.
constexpr int kFramesForFocus = 20;
constexpr int kFramesBetween = 5;

}  // namespace

void SearchField::draw(std::string& search) {
  const float width = px(190);
  flow(width);
  ImGui::SetNextItemWidth(width);
  if (frames_left_ > 0) {
    // Asked for in every frame, the focus would come twice and select what was typed in between.
    if (frames_left_ % kFramesBetween == kFramesBetween - 1) ImGui::SetKeyboardFocusHere();
    if (!typed_.empty()) search = typed_;
  }
  char buffer[256];
  const size_t n = search.copy(buffer, sizeof buffer - 1);
  buffer[n] = '\0';
  if (ImGui::InputTextWithHint("##search", "Search stacks  ( / )", buffer, sizeof buffer)) {
    search = buffer;
  }
  if (frames_left_ > 0 && ImGui::IsItemActive()) got_focus();
  explain("Highlights every block, stack and annotation that contains this text, in all panels.");
}

void SearchField::ask_for_focus() {
  frames_left_ = kFramesForFocus;
  typed_.clear();
}

bool SearchField::take_typed(std::string& search) {
  if (frames_left_ == 0) return false;
  --frames_left_;
  ImGuiIO& io = ImGui::GetIO();
  for (const ImWchar c : io.InputQueueCharacters) {
    char utf8[5];
    if (c >= ' ' && c != 0x7F) typed_ += ImTextCharToUtf8(utf8, c);
  }
  io.InputQueueCharacters.resize(0);
  if (pressed(Command::kClear)) frames_left_ = 0;
  if (!typed_.empty()) search = typed_;
  return true;
}

void SearchField::got_focus() {
  frames_left_ = 0;
  if (typed_.empty()) return;
  // ImGui selects the whole text of a field that gets the focus: the next letter would replace it.
  ImGuiInputTextState* state = ImGui::GetInputTextState(ImGui::GetItemID());
  if (state == nullptr) return;
  state->Stb.cursor = state->CurLenW;
  state->ClearSelection();
}

}  // namespace tidemark::view
