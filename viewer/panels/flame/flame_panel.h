// Live bytes by call stack at the cursor, or what changed between two instants, ranks or traces.
// Drawn as a graph with the root at the top (icicle) or at the bottom (flame), or as rows; from the
// outermost function down, from the line that allocated up to its callers, or by nn.Module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/background.h"
#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/flame/stretch.h"
#include "viewer/model/trace/selection.h"
#include "viewer/panels/flame/flame_rows.h"

namespace tidemark::view {

enum class FlameView : uint8_t { kIcicle, kFlame, kRows };

// Which blocks are shown: those live at the cursor, or a part of those of the measured or visible
// time.
enum class FlameBlocks : uint8_t { kLive, kAllocated, kFreed, kKept, kShortLived };

class FlamePanel {
 public:
  static constexpr const char* kTitle = "Flame graph";

  void draw(const Model& model, Selection& selection);

  // The words of show_as().
  static std::vector<std::string> ways();
  // By its name in the toolbar: "rows", "bottom-up", "module".
  bool show_as(std::string_view way);

  FlameView view = FlameView::kIcicle;
  FlameOrder order = FlameOrder::kTopDown;
  FlameBlocks blocks = FlameBlocks::kLive;

  // `wake` asks for a new frame, from any thread.
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  // A later trace may get the same address.
  void forget_trace() { source_ = {}; }
  // For pictures: a frame waits for what it shows.
  bool patient = false;

  // For tests: what is shown, and the zoomed node.
  const FlameTree& tree() const { return tree_; }
  uint32_t zoomed() const { return tree_.find(zoom_key_); }
  uint64_t found_bytes() const { return matches_.bytes; }
  size_t rows_shown() const { return rows_.rows_shown(); }

 private:
  // Where the boxes are on the screen.
  struct Place {
    float left = 0;
    float width = 0;
    float root_y = 0;  // the upper edge of the root's box
    float row_px = 0;  // < 0: callees are above

    float y(uint32_t depth) const { return root_y + static_cast<float>(depth) * row_px; }
  };

  // What the tree was made of.
  struct Source {
    const Model* model = nullptr;
    uint64_t version = 0;  // of the selection; counts for live blocks only
    FlameOrder order = FlameOrder::kTopDown;
    FlameBlocks blocks = FlameBlocks::kLive;
    uint32_t lane = 0;
    int64_t begin_ns = 0;  // count for blocks of a stretch of time
    int64_t end_ns = 0;

    TimeRange time() const { return {begin_ns, end_ns}; }
    friend bool operator==(const Source&, const Source&) = default;
  };
  Source wanted_source(const Model& model, const Selection& selection) const;
  void update(const Model& model, Selection& selection);
  void make_tree(const Model& model, Selection& selection);
  void adopt(const Model& model, const Selection& selection, FlameTree tree);
  std::string whole_text(const Selection& selection) const;
  void search(const Model& model, const Selection& selection);
  void draw_toolbar(const Model& model, Selection& selection);
  void draw_views();
  void draw_graph(const Model& model, Selection& selection);
  void draw_boxes(const Model& model, const Selection& selection, const Place& place);
  void draw_node(const Model& model, const Selection& selection, uint32_t index, float x0, float x1,
                 float y, float height);
  void draw_rows(const Model& model, const Selection& selection);
  Rgb colour_of(const Model& model, const Selection& selection, const FlameNode& node) const;
  std::string_view name_of(const Model& model, const Selection& selection,
                           const FlameNode& node) const;
  // The names for the ids of a node.
  const FrameText& text_of(const Model& model, const Selection& selection,
                           const FlameNode& node) const;
  void explain_node(const Model& model, const Selection& selection, const FlameNode& node,
                    const char* hint);

  FlameTree tree_;
  Source source_;
  bool waiting_ = false;  // for the tree of `source_`
  Background<FlameTree> work_;
  bool comparing_ = false;
  const FrameText* other_text_ = nullptr;  // of the reference
  uint64_t zoom_key_ = 0;                  // of the node that fills the width; 0: the root
  std::string searched_;
  FlameMatches matches_;
  FlameRows rows_;
};

}  // namespace tidemark::view
