// The tree of the flame graph as rows: functions are indented below their callers, and a click
// expands or collapses them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/palette.h"

namespace tidemark::view {

// The matches of a search in a tree; empty without a search.
struct FlameMatches {
  std::vector<bool> here;    // the node itself
  std::vector<bool> inside;  // something below it
  uint64_t bytes = 0;        // of all matches, each byte counted once

  bool any() const { return !here.empty(); }
};

class FlameRows {
 public:
  using NameOf = std::function<std::string(const FlameNode&)>;
  using ColourOf = std::function<Rgb(const FlameNode&)>;
  using Explain = std::function<void(const FlameNode&)>;

  // Call it with each new tree; expanded nodes stay expanded.
  void adopt(const FlameTree& tree);
  void draw(const FlameTree& tree, bool comparing, const FlameMatches& matches,
            const NameOf& name_of, const ColourOf& colour_of, const Explain& explain);

  size_t rows_shown() const { return rows_.size(); }

 private:
  void collect(const FlameTree& tree, const FlameMatches& matches);
  void draw_name(const FlameNode& node, uint32_t index, const FlameMatches& matches,
                 const std::string& name, Rgb colour);

  std::unordered_set<uint64_t> open_;  // keys of nodes
  std::vector<uint32_t> first_child_;  // children are consecutive: [i] to [i + 1]
  std::vector<uint32_t> rows_;         // visible nodes, from top to bottom
};

}  // namespace tidemark::view
