// Builds the tree of a PickleDocument: containers, their values, and wide numbers.
//
// Each array is flat and grows with realloc; there is no allocation per container. The children of
// a container are written once and contiguously if they arrive in one batch (as they do for
// everything except lists and dicts of more than 1000 children). A container that grows later moves
// to a place with capacity for the next power of two, so unused space is at most as large as used
// space.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "collector/pickle/reader.h"

namespace tidemark {

// An array of trivial elements. Growing a large one moves page tables rather than bytes, and
// capacity that was never written costs no memory.
template <typename T>
class PickleArray {
 public:
  PickleArray() = default;
  PickleArray(const PickleArray&) = delete;
  PickleArray& operator=(const PickleArray&) = delete;
  ~PickleArray() { std::free(data_); }

  T* data() const { return data_; }
  T& operator[](uint64_t index) const { return data_[index]; }

  // Grows the capacity to `wanted` elements. False if out of memory; the elements stay.
  [[nodiscard]] bool reserve(uint64_t wanted) { return wanted <= capacity_ || grow(wanted); }

  // Releases the memory, shrunk to the first `used` elements.
  T* release(uint64_t used);

 private:
  bool grow(uint64_t wanted);

  T* data_ = nullptr;
  uint64_t capacity_ = 0;
};

// Functions that can fail return nullptr, or the reason as the end of a sentence; after a failure
// the tree must not be used. PickleRecords writes to the arrays directly.
class PickleBuilder {
 public:
  explicit PickleBuilder(const PickleLimits& limits) : limits_(limits) {}

  // Reserves memory for the values of a typical pickle of that size; only a hint.
  void expect(uint64_t input_bytes);

  // Reserves memory for `count` more containers and `count` more values.
  [[nodiscard]] bool keep_room(uint64_t count) {
    spare_values_ = count;
    return containers_.reserve(container_count_ + count) && values_.reserve(value_count_ + count);
  }
  PickleValue add_empty(PickleValue::Tag tag) {
    containers_[container_count_] = {
        .first = 0, .size = 0, .height = 1, .closed = false, .grown = false};
    return PickleValue::make(tag, container_count_++);
  }

  const char* append(PickleValue list, const PickleValue* items, uint64_t count);
  const char* set_items(PickleValue dict, const PickleValue* pairs, uint64_t pair_count);

  // The place of these keys, which all dicts with the same keys share; every `stride`th element is
  // a key. No key may be a container: that would count for the height of each dict.
  const char* share_keys(const PickleValue* keys, uint64_t stride, uint64_t count, uint64_t* index);

  // Going back drops the containers and values added since; children that they closed stay closed.
  struct Checkpoint {
    uint64_t container_count;
    uint64_t value_count;
  };
  Checkpoint checkpoint() const { return {container_count_, value_count_}; }
  void roll_back(const Checkpoint& to) {
    container_count_ = to.container_count;
    value_count_ = to.value_count;
  }

  // Stores 64 bits, which do not fit a PickleValue, at *index.
  const char* add_wide(uint64_t bits, uint64_t* index);

  // Call it from time to time and at the end: add_empty() itself does not check the limits.
  const char* check_limits() const;
  PickleDocument finish(PickleValue root, const uint8_t* input, uint64_t consumed_bytes);

 private:
  friend class PickleRecords;
  using Container = PickleDocument::Container;

  // Keys that dicts share, found by a hash of the first and the last key.
  struct SharedKeys {
    uint64_t index = 0;
    uint64_t count = 0;
  };
  static constexpr int kSharedKeysBits = 10;

  const char* make_room(uint64_t count);
  const char* take(Container& parent, PickleValue* to, const PickleValue* from, uint64_t count);
  const char* put_first_keys(Container& dict, const PickleValue* pairs, uint64_t pair_count);
  const char* put_more_keys(Container& dict, const PickleValue* pairs, uint64_t pair_count);
  const char* grow_dict(Container& dict, uint64_t size);

  const PickleLimits limits_;
  PickleArray<Container> containers_;
  PickleArray<PickleValue> values_;
  PickleArray<uint64_t> wide_;
  uint64_t container_count_ = 0;
  uint64_t value_count_ = 0;
  uint64_t wide_count_ = 0;
  uint64_t spare_values_ = 0;
  std::array<SharedKeys, size_t{1} << kSharedKeysBits> shared_keys_{};
};

}  // namespace tidemark
