#include "collector/pickle/builder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/base/hash.h"

namespace tidemark {

namespace {

constexpr const char* kTooLarge = "creates a container of 2^32 or more children";
constexpr const char* kTooManyValues = "stores more values than the limit";
constexpr const char* kNoMemory = "needs more memory than is available";

// Otherwise page faults take a large part of the time to parse a large snapshot.
void ask_for_huge_pages(void* memory, uint64_t bytes) {
  constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
  if (bytes < 2 * kHugePageBytes) return;
  // All of malloc's mapping, also the page of its header: mremap() fails if its parts differ.
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t before = reinterpret_cast<uintptr_t>(memory) % page;
  madvise(static_cast<char*>(memory) - before, (before + bytes + page - 1) / page * page,
          MADV_HUGEPAGE);
}

}  // namespace

template <typename T>
bool PickleArray<T>::grow(uint64_t wanted) {
  const uint64_t capacity = std::max(wanted, capacity_ + capacity_ / 2);
  if (capacity > PTRDIFF_MAX / sizeof(T)) return false;
  void* const moved = std::realloc(data_, capacity * sizeof(T));
  if (moved == nullptr) return false;
  ask_for_huge_pages(moved, capacity * sizeof(T));
  data_ = static_cast<T*>(moved);
  capacity_ = capacity;
  return true;
}

template <typename T>
T* PickleArray<T>::release(uint64_t used) {
  capacity_ = 0;
  T* const data = std::exchange(data_, nullptr);
  void* const cut = std::realloc(data, std::max<uint64_t>(used, 1) * sizeof(T));
  return cut == nullptr ? data : static_cast<T*>(cut);
}

template class PickleArray<PickleValue>;
template class PickleArray<PickleDocument::Container>;

void PickleBuilder::expect(uint64_t input_bytes) {
  // Snapshots of torch 2.11 have one value in 4 to 6 bytes of input, one container in 35 to 55.
  (void)values_.reserve(input_bytes / 3);
  (void)containers_.reserve(input_bytes / 32);
}

const char* PickleBuilder::check_limits() const {
  // Ids are uint32_t. Leaves a million for the containers added until the next check.
  constexpr uint64_t kMaxIds = (uint64_t{1} << 32) - (uint64_t{1} << 20);
  if (container_count_ > std::min(limits_.max_containers, kMaxIds)) {
    return "creates more containers than the limit";
  }
  return value_count_ > limits_.max_values ? kTooManyValues : nullptr;
}

const char* PickleBuilder::make_room(uint64_t count) {
  if (value_count_ + count > limits_.max_values) return kTooManyValues;
  return values_.reserve(value_count_ + count + spare_values_) ? nullptr : kNoMemory;
}

// Writes the children to their place. Closes them before it checks the parent: the last link of a
// cycle would start at a closed container, also if a container is put into itself.
inline const char* PickleBuilder::take(Container& parent, PickleValue* to, const PickleValue* from,
                                       uint64_t count) {
  uint32_t height = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const PickleValue value = from[i];
    to[i] = value;
    if (!value.is_container()) continue;
    Container& child = containers_[value.container_id()];
    child.closed = true;
    height = std::max<uint32_t>(height, child.height);
  }
  if (height >= limits_.max_depth) return "nests containers deeper than the limit";
  parent.height = std::max(parent.height, static_cast<uint16_t>(height + 1));
  if (parent.closed) {
    return "changes a container that is inside another one or itself; a snapshot never does";
  }
  return nullptr;
}

const char* PickleBuilder::append(PickleValue list, const PickleValue* items, uint64_t count) {
  if (count == 0) return nullptr;
  Container& c = containers_[list.container_id()];
  const uint64_t size = c.size + count;
  if (size > UINT32_MAX) return kTooLarge;
  if (c.size == 0 || (!c.grown && c.first + c.size == value_count_)) {
    if (const char* why = make_room(count)) return why;
    if (c.size == 0) c.first = value_count_;
    value_count_ += count;
  } else if (!c.grown || size > std::bit_ceil(uint64_t{c.size})) {
    const uint64_t room = std::bit_ceil(size);
    if (const char* why = make_room(room)) return why;
    std::memcpy(&values_[value_count_], &values_[c.first], c.size * sizeof(PickleValue));
    c.first = value_count_;
    c.grown = true;
    value_count_ += room;
  }
  PickleValue* const to = &values_[c.first + c.size];
  c.size = static_cast<uint32_t>(size);
  return take(c, to, items, count);
}

const char* PickleBuilder::share_keys(const PickleValue* keys, uint64_t stride, uint64_t count,
                                      uint64_t* index) {
  const uint64_t last = keys[(count - 1) * stride].bits_ ^ count;
  const uint64_t hash = keys[0].bits_ * kGoldenRatio + last * 0xc2b2ae3d27d4eb4f;
  SharedKeys& shared = shared_keys_[hash >> (64 - kSharedKeysBits)];
  bool same = shared.count == count;
  for (uint64_t i = 0; same && i < count; ++i) same = values_[shared.index + i] == keys[i * stride];
  if (!same) {
    if (const char* why = make_room(count)) return why;
    shared = {.index = value_count_, .count = count};
    for (uint64_t i = 0; i < count; ++i) values_[value_count_++] = keys[i * stride];
  }
  *index = shared.index;
  return nullptr;
}

const char* PickleBuilder::set_items(PickleValue dict, const PickleValue* pairs,
                                     uint64_t pair_count) {
  if (pair_count == 0) return nullptr;
  Container& c = containers_[dict.container_id()];
  const uint64_t old_size = c.size;
  if (old_size + pair_count > UINT32_MAX) return kTooLarge;
  bool has_container_key = false;
  for (uint64_t i = 0; i < pair_count; ++i) has_container_key |= pairs[2 * i].is_container();
  const char* const why = old_size == 0 && !has_container_key ? put_first_keys(c, pairs, pair_count)
                                                              : put_more_keys(c, pairs, pair_count);
  if (why != nullptr) return why;
  c.size = static_cast<uint32_t>(old_size + pair_count);
  PickleValue* const to = &values_[c.first + 1 + old_size];
  for (uint64_t i = 0; i < pair_count; ++i) to[i] = pairs[2 * i + 1];
  return take(c, to, to, pair_count);
}

const char* PickleBuilder::put_first_keys(Container& dict, const PickleValue* pairs,
                                          uint64_t pair_count) {
  uint64_t keys = 0;
  if (const char* why = share_keys(pairs, 2, pair_count, &keys)) return why;
  if (const char* why = make_room(pair_count + 1)) return why;
  dict.first = value_count_;
  values_[dict.first] = PickleValue(keys);
  value_count_ += pair_count + 1;
  return nullptr;
}

const char* PickleBuilder::put_more_keys(Container& dict, const PickleValue* pairs,
                                         uint64_t pair_count) {
  const uint64_t size = dict.size + pair_count;
  if (!dict.grown || size > std::bit_ceil(uint64_t{dict.size})) {
    if (const char* why = grow_dict(dict, size)) return why;
  }
  PickleValue* const added = &values_[values_[dict.first].bits_ + dict.size];
  for (uint64_t i = 0; i < pair_count; ++i) {
    added[i] = pairs[2 * i];
    const PickleKind kind = added[i].kind();
    if (kind == PickleKind::kList || kind == PickleKind::kDict)
      return "has a list or dict as a key";
  }
  return take(dict, added, added, pair_count);
}

// Gives the dict its own copy of the keys, with capacity for bit_ceil(size) of them.
const char* PickleBuilder::grow_dict(Container& dict, uint64_t size) {
  const uint64_t room = std::bit_ceil(size);
  if (const char* why = make_room(2 * room + 1)) return why;
  const uint64_t keys = value_count_;
  const uint64_t first = keys + room;
  value_count_ += 2 * room + 1;
  if (dict.size != 0) {
    const size_t old_bytes = dict.size * sizeof(PickleValue);
    std::memcpy(&values_[keys], &values_[values_[dict.first].bits_], old_bytes);
    std::memcpy(&values_[first + 1], &values_[dict.first + 1], old_bytes);
  }
  values_[first] = PickleValue(keys);
  dict.first = first;
  dict.grown = true;
  return nullptr;
}

const char* PickleBuilder::add_wide(uint64_t bits, uint64_t* index) {
  if (!wide_.reserve(wide_count_ + 1)) return kNoMemory;
  *index = wide_count_;
  wide_[wide_count_++] = bits;
  return nullptr;
}

PickleDocument PickleBuilder::finish(PickleValue root, const uint8_t* input,
                                     uint64_t consumed_bytes) {
  PickleDocument document;
  document.input_ = input;
  document.containers_.reset(containers_.release(container_count_));
  document.values_.reset(values_.release(value_count_));
  document.wide_.reset(wide_.release(wide_count_));
  document.container_count_ = container_count_;
  document.value_count_ = value_count_;
  document.wide_count_ = wide_count_;
  document.consumed_bytes_ = consumed_bytes;
  document.root_ = root;
  return document;
}

}  // namespace tidemark
