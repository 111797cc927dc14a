// The search of the toolbar.
#pragma once

#include <string>

namespace tidemark::view {

class SearchField {
 public:
  void draw(std::string& search);

  // Moves the keyboard focus to the field.
  void ask_for_focus();
  // The focus takes a few frames to get there. Until then, what is typed is taken here, so that no
  // letter is lost or becomes a command. False: the field has the focus, or was not asked for.
  bool take_typed(std::string& search);

 private:
  void got_focus();

  int frames_left_ = 0;  // for the field to get the focus; 0: it was not asked for
  std::string typed_;    // until then
};

}  // namespace tidemark::view
