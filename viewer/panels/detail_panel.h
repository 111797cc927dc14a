// One block: its size, its life, its neighbours and the code that asked for it.
#pragma once

#include "viewer/model/selection.h"

namespace tidemark::view {

class DetailPanel {
 public:
  static constexpr const char* kTitle = "Block";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_facts(const Model& model, const Lane& lane, const Allocation& a);
  void draw_neighbours(const Model& model, Selection& selection, const Lane& lane);
  void draw_stack(const Model& model, const Lane& lane, const Allocation& a);
};

}  // namespace tidemark::view
