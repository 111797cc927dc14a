// What was clicked: a block with its lifetime, its neighbours and the code that allocated it; a
// hole and what pins it; a kernel or a collective and the memory while it ran; a measured range.
#pragma once

#include "viewer/panels/details/activity_details.h"

namespace tidemark::view {

class DetailPanel {
 public:
  static constexpr const char* kTitle = "Details";

  void draw(const Model& model, Selection& selection);

  // `wake` asks for a new frame, from any thread.
  void set_wake(const std::function<void()>& wake) {
    stretch_.set_wake(wake);
    activity_.set_wake(wake);
  }
  // For tests.
  const StretchView& stretch() const { return stretch_; }

 private:
  void draw_measure(const Model& model, const Selection& selection);
  void draw_block(const Model& model, Selection& selection);
  void draw_facts(const Model& model, const Lane& lane, const Moment& moment, const Allocation& a);
  void draw_neighbours(const Model& model, Selection& selection, const Lane& lane);
  void draw_stack(const Model& model, const Lane& lane, uint32_t stack, bool seeded);
  void draw_hole(const Model& model, Selection& selection);
  void draw_pin(const Model& model, Selection& selection, const char* where, uint32_t block);

  std::optional<uint32_t> block_;  // when last drawn
  ActivityDetails activity_;
  StretchView stretch_;
};

}  // namespace tidemark::view
