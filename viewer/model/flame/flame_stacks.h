// The stacks of a flame graph, of one process or of two, and what is shown of them.
//
// Snapshots with native frames have those of the Python interpreter between the program's lines,
// and not always the same ones. They are left out, so that stacks with the same lines are one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "analysis/names/dictionary.h"

namespace tidemark::view {

class FlameStacks {
 public:
  explicit FlameStacks(const Dictionary& names) : names_(&names) {}

  // Of a stack that is shown.
  uint32_t parent(uint32_t id) const;
  uint32_t frame(uint32_t id) const;
  std::string frame_text(uint32_t id) const;
  static bool is_other(uint32_t id) { return (id & kOtherBit) != 0; }
  bool has_other() const { return !other_parents_.empty(); }

  // Adds a stack, with its parents, to those that stacks of the other side are matched with.
  void know(uint32_t stack);
  // The id in this tree of a stack of the other side.
  uint32_t translate(const Dictionary& other, uint32_t stack);

  // Leaves out native frames with Python further inside, in these stacks and their parents.
  void hide_interpreter(std::span<const uint32_t> stacks);
  // The stack that stands for one of them: itself, if nothing is left out.
  uint32_t shown(uint32_t id) const;

  static constexpr uint32_t kOtherBit = uint32_t{1} << 31;  // ids that only the other side has

 private:
  uint32_t recorded_parent(uint32_t id) const;
  FrameKind kind(uint32_t id) const;

  const Dictionary* names_;
  const Dictionary* other_ = nullptr;
  std::map<std::pair<uint32_t, std::string>, uint32_t> by_text_;
  std::map<uint32_t, uint32_t> translated_;
  std::map<uint32_t, uint32_t> other_parents_;
  std::map<uint32_t, uint32_t> shown_;          // by id; empty: all are
  std::map<uint32_t, uint32_t> shown_parents_;  // of those that are shown
};

}  // namespace tidemark::view
