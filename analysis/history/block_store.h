// The blocks of a memory map: slots named by 32-bit indices, 0 = none. A dropped slot is used again
// by a later block, so a replay of any length needs as many slots as blocks exist at one time.
//
// Blocks with members `previous` and `next` form chains in the order of their addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidemark {

template <typename Block>
class BlockStore {
 public:
  // Returns the index of the new block. References to other blocks become invalid.
  uint32_t add(const Block& block) {
    if (unused_.empty()) {
      blocks_.push_back(block);
      return static_cast<uint32_t>(blocks_.size() - 1);
    }
    const uint32_t index = unused_.back();
    unused_.pop_back();
    blocks_[index] = block;
    return index;
  }
  // The slot keeps its content until it is used again.
  void drop(uint32_t index) { unused_.push_back(index); }

  Block& operator[](uint32_t index) { return blocks_[index]; }
  const Block& operator[](uint32_t index) const { return blocks_[index]; }
  // Of all slots, used or not, and none.
  size_t size() const { return blocks_.size(); }
  typename std::vector<Block>::const_iterator begin() const { return blocks_.begin(); }
  typename std::vector<Block>::const_iterator end() const { return blocks_.end(); }

  void link_before(uint32_t index, uint32_t next) {
    Block& b = blocks_[index];
    b.next = next;
    b.previous = blocks_[next].previous;
    blocks_[next].previous = index;
    if (b.previous != 0) blocks_[b.previous].next = index;
  }
  void link_after(uint32_t index, uint32_t previous) {
    Block& b = blocks_[index];
    b.previous = previous;
    b.next = blocks_[previous].next;
    blocks_[previous].next = index;
    if (b.next != 0) blocks_[b.next].previous = index;
  }
  // Its neighbours become each other's.
  void unlink(uint32_t index) {
    const Block& b = blocks_[index];
    if (b.previous != 0) blocks_[b.previous].next = b.next;
    if (b.next != 0) blocks_[b.next].previous = b.previous;
  }

 private:
  std::vector<Block> blocks_{1};  // [0] is none
  std::vector<uint32_t> unused_;
};

}  // namespace tidemark
