// Reads a pickle of plain data, such as a PyTorch memory snapshot, into a compact tree.
//
// The tree consists of 8-byte values. Strings are views into the input, so the bytes must outlive
// the document. Containers are numbered; a container that the pickle shares through its memo is one
// container with one container_id() everywhere. A dict stores its values contiguously and shares
// its keys with every dict that has the same keys.
//
// Guarantees for code that walks the tree, for any input:
//  - No cycles, and no path longer than PickleLimits::max_depth containers. A container is closed
//    when it is put into another one; changing it after that, or putting it into itself, is
//    rejected. (CPython's pickler never does so for acyclic data.)
//  - But sharing can make the *expanded* tree exponentially larger than the file, as in "billion
//    laughs". Intern by container_id(), or bound the walk, if the input is not trusted.
//  - Memory stays proportional to the input: about 1.6 bytes per byte of a real snapshot, at most
//    about 50 in the worst case.
//
// Opcodes that could build an object or call something are rejected: see opcodes.h.
// A document is immutable and may be read from many threads at once (a PickleKey may not).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "proto/base/bits_as.h"
#include "proto/base/result.h"

namespace tidemark {

enum class PickleKind : uint8_t {
  kAbsent,  // no value: a missing key
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
};

// One value, read through its document. Equal values are the same scalar, the same container, or
// the same string of the input (two equal strings at different places compare unequal).
//
//   63                    20 19       4 3    0
//   | payload                          | tag |   integer (60 bits), container id, or wide index
//   | offset in the input   | length   | tag |   string or bytes; length 0xffff: wide index
class PickleValue {
 public:
  constexpr PickleValue() = default;

  constexpr PickleKind kind() const { return kKindOfTag[bits_ & kTagMask]; }
  constexpr bool is_absent() const { return bits_ == 0; }
  constexpr bool is_container() const { return (bits_ & kContainerBit) != 0; }

  // For containers only: 0 to PickleDocument::container_count() - 1, without gaps.
  constexpr uint32_t container_id() const { return static_cast<uint32_t>(payload()); }

  friend constexpr bool operator==(PickleValue, PickleValue) = default;

 private:
  friend class PickleDocument;
  friend class PickleBuilder;
  friend class PickleParser;
  friend class PickleRecords;

  enum Tag : uint64_t {
    kTagAbsent,
    kTagNone,
    kTagBool,
    kTagInt,
    kTagWideInt,  // payload: index into the document's wide numbers * 2, + 1 if at least 2^63
    kTagFloat,
    kTagString,
    kTagBytes,
    kTagList,  // this and the following: containers
    kTagTuple,
    kTagDict,
  };
  static constexpr uint64_t kTagMask = 15;
  static constexpr uint64_t kContainerBit = 8;
  static constexpr int kTagBits = 4;
  static constexpr int kOffsetShift = 20;
  static constexpr uint64_t kLongString = 0xffff;
  static constexpr PickleKind kKindOfTag[16] = {
      PickleKind::kAbsent, PickleKind::kNone,  PickleKind::kBool,   PickleKind::kInt,
      PickleKind::kInt,    PickleKind::kFloat, PickleKind::kString, PickleKind::kBytes,
      PickleKind::kList,   PickleKind::kTuple, PickleKind::kDict};

  constexpr explicit PickleValue(uint64_t bits) : bits_(bits) {}
  static constexpr PickleValue make(Tag tag, uint64_t payload) {
    return PickleValue(payload << kTagBits | tag);
  }
  static constexpr PickleValue make_text(Tag tag, uint64_t place, uint64_t length) {
    return PickleValue(place << kOffsetShift | length << kTagBits | tag);
  }
  constexpr Tag tag() const { return static_cast<Tag>(bits_ & kTagMask); }
  constexpr uint64_t payload() const { return bits_ >> kTagBits; }

  uint64_t bits_ = 0;
};
static_assert(sizeof(PickleValue) == 8);

struct PickleLimits {
  uint16_t max_depth = 64;  // containers inside containers; a snapshot has six
  uint64_t max_memo_entries = uint64_t{1} << 32;
  uint64_t max_stack = uint64_t{1} << 36;  // values at once
  uint64_t max_containers = uint64_t{1} << 32;
  uint64_t max_values = uint64_t{1} << 36;  // capacity for values in containers, 8 bytes each
};

class PickleDocument;

// A dict key to look up many times in one document. It caches its slot among the keys of the last
// dict, so that a lookup in a dict with the same keys is one comparison. Not thread-safe.
class PickleKey {
 public:
  PickleKey(const PickleDocument&, std::string_view name) : name_(name) {}

 private:
  friend class PickleDocument;

  std::string_view name_;
  uint64_t keys_ = UINT64_MAX;  // which keys; none yet
  size_t slot_ = 0;             // 1 + position among them, 0 if missing
};

class PickleDocument {
 public:
  PickleValue root() const { return root_; }
  size_t container_count() const { return container_count_; }
  size_t memory_bytes() const;                               // of the tree, without the input
  size_t consumed_bytes() const { return consumed_bytes_; }  // up to and including STOP

  // Scalars. Empty if the value is of another kind or does not fit.
  std::optional<bool> as_bool(PickleValue value) const;
  std::optional<int64_t> as_i64(PickleValue value) const;
  std::optional<uint64_t> as_u64(PickleValue value) const;
  std::optional<double> as_f64(PickleValue value) const;
  std::optional<std::string_view> as_string(PickleValue value) const;
  std::optional<std::span<const uint8_t>> as_bytes(PickleValue value) const;
  // An int of 64 bits of either sign: the JIT pickler writes an address >= 2^63 as a negative int.
  std::optional<uint64_t> as_address(PickleValue value) const;

  // The elements of a list or tuple; empty for any other kind.
  std::span<const PickleValue> items(PickleValue sequence) const;

  // The keys and values of a dict in the order they were written; empty for any other kind. A key
  // that a handmade pickle repeats is listed each time; find() uses the last, as Python does.
  std::span<const PickleValue> keys(PickleValue dict) const;
  std::span<const PickleValue> values(PickleValue dict) const;

  // Absent if there is no such key, or `dict` is not a dict.
  PickleValue find(PickleValue dict, std::string_view key) const;
  PickleValue find(PickleValue dict, PickleKey& key) const;

 private:
  friend class PickleBuilder;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  template <typename T>
  using Array = std::unique_ptr<T[], Free>;

  // List and tuple: values_[first .. first + size). Dict: values_[first] is the index of its keys;
  // the values follow.
  struct Container {
    uint64_t first;
    uint32_t size;
    uint16_t height;  // 1 + the greatest height among its children
    bool closed;      // is in another container: must not change
    bool grown;       // was moved to a place for bit_ceil(size) children
  };
  static_assert(sizeof(Container) == 16);

  const Container& container(PickleValue value) const { return containers_[value.container_id()]; }
  std::span<const uint8_t> text(PickleValue value) const;
  size_t slot_of(PickleValue dict, std::string_view key) const;  // as PickleKey::slot_

  const uint8_t* input_ = nullptr;
  Array<Container> containers_;
  Array<PickleValue> values_;
  Array<uint64_t> wide_;  // ints beyond 60 bits, floats, (offset, length) of strings >= 64 KiB
  size_t container_count_ = 0;
  size_t value_count_ = 0;
  size_t wide_count_ = 0;
  size_t consumed_bytes_ = 0;
  PickleValue root_;
};

// The document refers to `bytes`: they must stay unchanged during its lifetime. Bytes after STOP
// are ignored, as in CPython. UTF-8 is not checked.
Result<PickleDocument> parse_pickle(std::span<const uint8_t> bytes,
                                    const PickleLimits& limits = {});

// Inline: a converter calls these a hundred million times.

inline std::optional<bool> PickleDocument::as_bool(PickleValue value) const {
  if (value.tag() != PickleValue::kTagBool) return std::nullopt;
  return value.payload() != 0;
}

inline std::optional<double> PickleDocument::as_f64(PickleValue value) const {
  if (value.tag() != PickleValue::kTagFloat) return std::nullopt;
  return bits_as<double>(wide_[value.payload()]);
}

inline std::optional<int64_t> PickleDocument::as_i64(PickleValue value) const {
  if (value.tag() == PickleValue::kTagInt) {
    return static_cast<int64_t>(value.bits_) >> PickleValue::kTagBits;
  }
  if (value.tag() != PickleValue::kTagWideInt || (value.payload() & 1) != 0) return std::nullopt;
  return static_cast<int64_t>(wide_[value.payload() >> 1]);
}

inline std::optional<uint64_t> PickleDocument::as_address(PickleValue value) const {
  if (value.tag() == PickleValue::kTagWideInt) return wide_[value.payload() >> 1];
  const std::optional<int64_t> number = as_i64(value);
  if (!number) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

inline std::optional<uint64_t> PickleDocument::as_u64(PickleValue value) const {
  const std::optional<uint64_t> bits = as_address(value);
  const bool is_unsigned = value.tag() == PickleValue::kTagWideInt && (value.payload() & 1) != 0;
  if (!bits || (*bits >> 63 != 0 && !is_unsigned)) return std::nullopt;
  return bits;
}

inline std::span<const uint8_t> PickleDocument::text(PickleValue value) const {
  // Of a text that is in the input, so both fit a size_t.
  const auto length = static_cast<size_t>(value.payload() & PickleValue::kLongString);
  const auto offset = static_cast<size_t>(value.bits_ >> PickleValue::kOffsetShift);
  if (length != PickleValue::kLongString) return {input_ + offset, length};
  return {input_ + wide_[offset], static_cast<size_t>(wide_[offset + 1])};
}

inline std::optional<std::string_view> PickleDocument::as_string(PickleValue value) const {
  if (value.tag() != PickleValue::kTagString) return std::nullopt;
  const std::span<const uint8_t> bytes = text(value);
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

inline std::optional<std::span<const uint8_t>> PickleDocument::as_bytes(PickleValue value) const {
  if (value.tag() != PickleValue::kTagBytes) return std::nullopt;
  return text(value);
}

inline std::span<const PickleValue> PickleDocument::items(PickleValue sequence) const {
  const PickleValue::Tag tag = sequence.tag();
  if (tag != PickleValue::kTagList && tag != PickleValue::kTagTuple) return {};
  const Container& c = container(sequence);
  return {values_.get() + c.first, c.size};
}

inline std::span<const PickleValue> PickleDocument::values(PickleValue dict) const {
  if (dict.tag() != PickleValue::kTagDict || container(dict).size == 0) return {};
  const Container& c = container(dict);
  return {values_.get() + c.first + 1, c.size};
}

inline std::span<const PickleValue> PickleDocument::keys(PickleValue dict) const {
  if (dict.tag() != PickleValue::kTagDict || container(dict).size == 0) return {};
  const Container& c = container(dict);
  return {values_.get() + values_[c.first].bits_, c.size};
}

inline PickleValue PickleDocument::find(PickleValue dict, PickleKey& key) const {
  if (dict.tag() != PickleValue::kTagDict || container(dict).size == 0) return {};
  const uint64_t first = container(dict).first;
  if (values_[first].bits_ != key.keys_) {
    key.keys_ = values_[first].bits_;
    key.slot_ = slot_of(dict, key.name_);
  }
  return key.slot_ == 0 ? PickleValue() : values_[first + key.slot_];
}

}  // namespace tidemark
