// The search of the toolbar.
#pragma once

#include <string>

#include "viewer/widgets/typed_ahead.h"

namespace tidemark::view {

class SearchField {
 public:
  void draw(std::string& search);

  TypedAhead ahead;
};

}  // namespace tidemark::view
