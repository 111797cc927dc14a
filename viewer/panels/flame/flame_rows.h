// The flame graph's tree as rows: functions indented below those that called them, opened and
// closed by a click.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/palette.h"

namespace tidemark::view {

// What was searched for in a tree; empty without a search.
struct FlameMatches {
  std::vector<bool> here;    // the node itself
  std::vector<bool> inside;  // something below it
  uint64_t bytes = 0;        // of all that match, each byte once

  bool any() const { return !here.empty(); }
};

class FlameRows {
 public:
  using NameOf = std::function<std::string(const FlameNode&)>;
  using ColourOf = std::function<Rgb(const FlameNode&)>;
  using Explain = std::function<void(const FlameNode&)>;

  // To be called when there is another tree; what was open stays so.
  void adopt(const FlameTree& tree);
  void draw(const FlameTree& tree, bool comparing, const FlameMatches& matches,
            const NameOf& name_of, const ColourOf& colour_of, const Explain& explain);

  size_t rows_shown() const { return rows_.size(); }

 private:
  void collect(const FlameTree& tree, const FlameMatches& matches);
  void draw_name(const FlameNode& node, uint32_t index, const FlameMatches& matches,
                 const std::string& name, Rgb colour);

  std::unordered_set<uint64_t> open_;  // keys of nodes
  std::vector<uint32_t> first_child_;  // children lie beside each other: [i] to [i + 1]
  std::vector<uint32_t> rows_;         // nodes in sight, in the order of the screen
};

}  // namespace tidemark::view
