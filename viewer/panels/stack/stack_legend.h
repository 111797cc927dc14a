// The groups of a stack with their bytes at the cursor, and which of them are shown.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "viewer/model/background.h"
#include "viewer/model/stack/stack_index.h"

namespace tidemark::view {

class StackLegend {
 public:
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  // Bytes after this event, in the space that is left. `pending`: a line for them, too.
  void draw(const std::shared_ptr<const StackIndex>& index, uint32_t event, uint64_t pending_bytes,
            bool at_once);
  void forget();

  // Of the groups; empty: none.
  const std::vector<bool>& hidden() const { return hidden_; }
  void show_all() { hidden_.clear(); }
  // Only this group; once more: all.
  void isolate(uint32_t group, uint32_t count);
  void toggle(uint32_t group, uint32_t count);

 private:
  struct Bytes {
    std::shared_ptr<const StackIndex> index;
    std::vector<uint64_t> held;
    std::vector<uint32_t> order;  // groups that hold something, most bytes first
  };

  bool is_hidden(uint32_t group) const { return group < hidden_.size() && hidden_[group]; }

  Background<std::shared_ptr<const Bytes>> work_;
  const StackIndex* index_ = nullptr;
  uint32_t event_ = UINT32_MAX;
  std::vector<bool> hidden_;
};

}  // namespace tidemark::view
