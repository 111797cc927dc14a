// What is typed while a text field waits for the keyboard focus, which takes a few frames: no
// letter is lost or becomes a command.
#pragma once

#include <imgui.h>

namespace tidemark::view {

class TypedAhead {
 public:
  // The field should get the focus.
  void ask();
  // Right before the field is drawn, and right after it.
  void before_field();
  void after_field();
  // At the beginning of a frame. True: keys belong to the field, although it has no focus yet.
  bool takes_keys();

 private:
  int frames_left_ = 0;  // for the field to get the focus; 0: it is not waiting
  ImVector<ImWchar> held_;
};

}  // namespace tidemark::view
