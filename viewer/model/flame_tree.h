// Live bytes by call stack as a tree: outermost function first, every node as wide as the bytes
// that were allocated under it.
//
// A difference of two instants has as width the bytes that came plus the bytes that went, so that
// both are seen, and keeps the net change beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/dictionary.h"
#include "analysis/memory_state.h"

namespace tidemark::view {

enum class FlameKind : uint8_t { kRoot, kFrame, kNoStack, kBeforeRecording };

struct FlameNode {
  uint32_t stack = 0;
  uint32_t frame = 0;
  uint32_t parent = 0;  // index; the root is its own parent
  uint32_t depth = 0;
  uint64_t bytes = 0;  // width
  uint64_t begin = 0;  // left edge, in bytes from the root's
  int64_t net = 0;     // equals `bytes` where nothing is compared
  uint64_t count = 0;
  FlameKind kind = FlameKind::kFrame;
};

struct FlameTree {
  std::vector<FlameNode> nodes;  // [0] is the root; parents before children, widest child first
  uint32_t depth = 0;

  static FlameTree of(const FrameworkModel& model, const Dictionary& names,
                      const MemoryState& state);
  // What changed from `before` to `after`.
  static FlameTree difference(const FrameworkModel& model, const Dictionary& names,
                              const MemoryState& before, const MemoryState& after);

  // The node of a stack, 0 (the root) when it is not in the tree.
  uint32_t find(uint32_t stack) const;
};

}  // namespace tidemark::view
