#include "viewer/model/flame/flame_stacks.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tidemark::view {

uint32_t FlameStacks::recorded_parent(uint32_t id) const {
  return is_other(id) ? other_parents_.at(id) : names_->stack(id).parent;
}

uint32_t FlameStacks::parent(uint32_t id) const {
  const auto known = shown_parents_.find(id);
  return known != shown_parents_.end() ? known->second : recorded_parent(id);
}

uint32_t FlameStacks::frame(uint32_t id) const {
  return is_other(id) ? other_->stack(id & ~kOtherBit).frame : names_->stack(id).frame;
}

std::string FlameStacks::frame_text(uint32_t id) const {
  return (is_other(id) ? *other_ : *names_).frame_text(frame(id));
}

FrameKind FlameStacks::kind(uint32_t id) const {
  return (is_other(id) ? *other_ : *names_).frame(frame(id)).kind;
}

void FlameStacks::know(uint32_t stack) {
  for (; stack != 0; stack = names_->stack(stack).parent) {
    const Stack& s = names_->stack(stack);
    if (!by_text_.try_emplace({s.parent, names_->frame_text(s.frame)}, stack).second) return;
  }
}

uint32_t FlameStacks::translate(const Dictionary& other, uint32_t stack) {
  other_ = &other;
  if (&other == names_ || stack == 0) return stack;
  std::vector<uint32_t> way;  // from the stack outwards, up to the first translated one
  uint32_t at = stack;
  for (; at != 0 && !translated_.contains(at); at = other.stack(at).parent) way.push_back(at);
  uint32_t parent = at == 0 ? 0 : translated_[at];
  for (auto it = way.rbegin(); it != way.rend(); ++it) {
    const uint32_t fresh = *it | kOtherBit;
    const auto [found, added] =
        by_text_.try_emplace({parent, other.frame_text(other.stack(*it).frame)}, fresh);
    if (added) other_parents_[fresh] = parent;
    parent = translated_[*it] = found->second;
  }
  return parent;
}

void FlameStacks::hide_interpreter(std::span<const uint32_t> stacks) {
  std::set<uint32_t> all;      // with their parents
  std::set<uint32_t> outside;  // of a Python frame
  for (const uint32_t stack : stacks) {
    bool python = false;
    for (uint32_t at = stack; at != 0; at = recorded_parent(at)) {
      const bool is_new = all.insert(at).second;
      const bool tells = python && outside.insert(at).second;
      if (!is_new && (!python || !tells)) break;
      python = python || kind(at) == FrameKind::kPython;
    }
  }
  std::map<std::pair<uint32_t, std::string>, uint32_t>
      same;  // parent and frame -> who stands for it
  const bool hides = std::any_of(outside.begin(), outside.end(),
                                 [&](uint32_t id) { return kind(id) == FrameKind::kNative; });
  if (!hides) return;
  for (const uint32_t id : all) {  // parents have smaller ids
    const uint32_t above = recorded_parent(id) == 0 ? 0 : shown_.at(recorded_parent(id));
    if (outside.contains(id) && kind(id) == FrameKind::kNative) {
      shown_[id] = above;
      continue;
    }
    shown_[id] = same.try_emplace({above, frame_text(id)}, id).first->second;
    shown_parents_[shown_[id]] = above;
  }
}

uint32_t FlameStacks::shown(uint32_t id) const {
  const auto known = shown_.find(id);
  return known == shown_.end() ? id : known->second;
}

}  // namespace tidemark::view
