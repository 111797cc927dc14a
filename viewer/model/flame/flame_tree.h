// Live bytes by call stack as a tree: every node as wide as the bytes that were allocated under it.
// Pending frees are one node of their own.
// Top-down starts with the outermost function. Bottom-up starts with the line that allocated and
// continues with its callers, so that a line has one node however many paths lead to it.
//
// In a difference of two instants (of one device, two ranks or two traces) the width is the bytes
// that were allocated plus the bytes that were freed, so that both can be seen. The net change is
// kept as well.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "viewer/model/map/live_sums.h"

namespace tidemark::view {

enum class FlameKind : uint8_t { kRoot, kFrame, kNoStack, kBeforeRecording, kPending, kModule };

// kModule: by the path of the nn.Module instead of the stack.
enum class FlameOrder : uint8_t { kTopDown, kBottomUp, kModule };

struct FlameNode {
  uint64_t key = 0;     // stays the same in later trees of the same names; root: 0
  uint32_t stack = 0;   // top-down only
  uint32_t frame = 0;   // kModule: in FlameTree::names
  uint32_t parent = 0;  // index; the root is its own parent
  uint32_t depth = 0;
  uint64_t bytes = 0;  // width
  uint64_t begin = 0;  // left edge, in bytes from the root's
  int64_t net = 0;     // equals `bytes` where nothing is compared
  uint64_t count = 0;
  FlameKind kind = FlameKind::kFrame;
  bool other = false;  // only the other side has this stack: `frame` is an id of its names
};

// What is live on one side, and the names for it.
struct FlameSide {
  const Dictionary& names;
  const LiveSums& live;
};

// Blocks of one process, for a tree of its nn.Modules.
struct ModuleSide {
  const ProcessModel& process;
  const AllocationHistory& memory;
  std::span<const uint32_t> blocks;
  const MemoryState* state = nullptr;  // tells which blocks are pending; null: none is
};

struct FlameTree {
  std::vector<FlameNode> nodes;  // [0] is the root; parents before children, widest child first
  uint32_t depth = 0;
  std::vector<std::string> names;  // of nn.Modules in the one around them: "mlp", "3"
  uint64_t older_bytes = 0;        // of blocks that are older than the time they are of

  static FlameTree of(const FlameSide& side, FlameOrder order = FlameOrder::kTopDown);
  // Of any blocks, live together or not.
  static FlameTree of_blocks(const AllocationHistory& memory, const Dictionary& names,
                             std::span<const uint32_t> blocks,
                             FlameOrder order = FlameOrder::kTopDown);
  // What changed from `before` to `after`. Stacks of two processes are matched by the text of their
  // lines; those that `after` does not have get ids of their own.
  static FlameTree difference(const FlameSide& before, const FlameSide& after,
                              FlameOrder order = FlameOrder::kTopDown);

  static FlameTree by_module(const ModuleSide& side);
  // nn.Modules are matched by their paths.
  static FlameTree module_difference(const ModuleSide& before, const ModuleSide& after);

  // The node of a key (top-down: of a stack); 0 (the root) when it is not in the tree.
  uint32_t find(uint64_t key) const;
};

}  // namespace tidemark::view
