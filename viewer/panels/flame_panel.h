// Live bytes by call stack at the cursor, or what changed between two instants.
#pragma once

#include "viewer/model/flame_tree.h"
#include "viewer/model/selection.h"

namespace tidemark::view {

class FlamePanel {
 public:
  static constexpr const char* kTitle = "Flame graph";

  void draw(const Model& model, Selection& selection);

 private:
  void update(const Model& model, Selection& selection);
  void draw_toolbar(const Model& model, Selection& selection);
  void draw_tree(const Model& model, Selection& selection);
  void draw_node(const Model& model, Selection& selection, uint32_t index, float x0, float x1,
                 float y, float height);
  // The names that a node's ids are of.
  FrameText& text_of(const Model& model, const Selection& selection, const FlameNode& node) const;
  void explain_node(const Model& model, const Selection& selection, const FlameNode& node);

  FlameTree tree_;
  uint64_t version_ = 0;
  const Model* model_ = nullptr;
  bool comparing_ = false;
  FrameText* other_text_ = nullptr;  // of what is compared with
  uint32_t root_stack_ = 0;          // zoomed to this stack; 0: everything
};

}  // namespace tidemark::view
