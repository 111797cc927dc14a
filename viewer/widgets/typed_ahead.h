// What is typed while a text field waits for the keyboard focus, which takes a few frames: no
// letter is lost or becomes a command.
#pragma once

#include <imgui.h>

namespace tidemark::view {

class TypedAhead {
 public:
  // The field should get the focus. by: the key that wants it, if that types a character: this one is
  // no part of the text. It may come some frames after the key went down, but before the key is up.
  void ask(ImGuiKey by = ImGuiKey_None);
  // Right before the field is drawn, and right after it.
  void before_field();
  void after_field();
  // At the beginning of a frame. True: keys belong to the field, although it has no focus yet.
  bool takes_keys();

 private:
  int frames_left_ = 0;  // for the field to get the focus; 0: it is not waiting
  ImGuiKey asked_by_ = ImGuiKey_None;  // its character is still to come
  ImVector<ImWchar> held_;
};

}  // namespace tidemark::view
