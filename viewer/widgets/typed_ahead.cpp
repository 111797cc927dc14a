#include "viewer/widgets/typed_ahead.h"

#include "viewer/widgets/key_table.h"

namespace tidemark::view {

namespace {

// A field that is not on the screen never gets the focus.
constexpr int kFramesForFocus = 20;
// Asked for in every frame, the focus would come twice and select what was typed in between.
constexpr int kFramesBetween = 5;

}  // namespace

void TypedAhead::ask(ImGuiKey by) {
  frames_left_ = kFramesForFocus;
  asked_by_ = by;
  held_.clear();
}

void TypedAhead::before_field() {
  if (frames_left_ % kFramesBetween == kFramesBetween - 1) ImGui::SetKeyboardFocusHere();
}

void TypedAhead::after_field() {
  if (ImGui::IsItemActive()) frames_left_ = 0;
}

bool TypedAhead::takes_keys() {
  ImVector<ImWchar>& typed = ImGui::GetIO().InputQueueCharacters;
  if (asked_by_ != ImGuiKey_None) {
    const bool came = !typed.empty();
    if (came) typed.erase(typed.begin());
    if (came || !ImGui::IsKeyDown(asked_by_)) asked_by_ = ImGuiKey_None;
  }
  if (frames_left_ > 0) {
    --frames_left_;
    if (pressed(Command::kClear)) frames_left_ = 0;
    for (const ImWchar c : typed) held_.push_back(c);
    typed.resize(0);
    return true;
  }
  if (!held_.empty()) {
    for (const ImWchar c : typed) held_.push_back(c);
    typed.swap(held_);
    held_.clear();
  }
  return false;
}

}  // namespace tidemark::view
