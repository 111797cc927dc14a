// What was clicked: a block with its lifetime, its neighbours and the code that allocated it; a
// hole and what pins it; a kernel or a collective and the memory while it ran.
#pragma once

#include "viewer/panels/details/activity_details.h"

namespace tidemark::view {

class DetailPanel {
 public:
  static constexpr const char* kTitle = "Details";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_block(const Model& model, Selection& selection);
  void draw_facts(const Model& model, const Lane& lane, const Allocation& a);
  void draw_neighbours(const Model& model, Selection& selection, const Lane& lane);
  void draw_stack(const Model& model, const Lane& lane, uint32_t stack, bool seeded);
  void draw_hole(const Model& model, Selection& selection);
  void draw_pin(const Model& model, Selection& selection, const char* where, uint32_t block);

  ActivityDetails activity_;
};

}  // namespace tidemark::view
