// Parts of a snapshot's import: the keys of a trace entry, its list of frames, lists already read.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "collector/pickle/reader.h"
#include "proto/base/address_table.h"
#include "proto/base/bits_as.h"
#include "proto/base/hash.h"

namespace tidemark {

// Keys of a trace entry, and their positions in kEntryKeys.
enum class EntryKey : uint8_t {
  kAction,
  kAddress,
  kDeviceFree,
  kSize,
  kStream,
  kTime,
  kFrames,
  kPool,
  kCategory,
  kForwardFrames,
  kCompileContext,
  kMetadata,
};
inline constexpr std::array<std::string_view, 14> kEntryKeys = {
    "action",          "addr",          "device_free", "size",           "stream",
    "time_us",         "frames",        "pool_id",     "category",       "forward_frames",
    "compile_context", "user_metadata", "device",      "segment_pool_id"};

// The positions of the known keys among the values of an entry. Entries share their keys, so this
// is computed once, not for every entry.
class EntryReader {
 public:
  EntryReader() { slots_.fill(-1); }
  void read(const PickleDocument& doc, PickleValue entry) {
    values_ = doc.values(entry);
    const auto keys = doc.keys(entry);
    if (keys.data() == keys_ && keys.size() == key_count_) return;
    keys_ = keys.data();
    key_count_ = keys.size();
    slots_.fill(-1);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto name = doc.as_string(keys[i]).value_or("");
      const auto known = std::find(kEntryKeys.begin(), kEntryKeys.end(), name);
      if (known != kEntryKeys.end()) {
        slots_[static_cast<size_t>(known - kEntryKeys.begin())] = static_cast<int64_t>(i);
      }
    }
  }
  PickleValue get(EntryKey key) const {
    const int64_t slot = slots_[static_cast<size_t>(key)];
    return slot < 0 ? PickleValue() : values_[static_cast<size_t>(slot)];
  }

 private:
  std::span<const PickleValue> values_;
  const PickleValue* keys_ = nullptr;
  size_t key_count_ = 0;
  std::array<int64_t, kEntryKeys.size()> slots_;
};

// A pickle may refer to one container any number of times, at two bytes each. torch never does so
// for lists of entries or blocks: they are read once.
class ReadLists {
 public:
  bool is_first(PickleValue list) {
    return !list.is_container() || ids_.insert(list.container_id()).second;
  }

 private:
  std::unordered_set<uint32_t> ids_;
};

// The ids of lists of frames. Lists are equal if the same values are in the same order.
class KnownLists {
 public:
  // Calls make() for a list that is new.
  template <typename Make>
  uint32_t id(std::span<const PickleValue> items, Make&& make) {
    // The reader lets most lists share their items with an equal one.
    const uint64_t address = reinterpret_cast<uintptr_t>(items.data()) / sizeof(PickleValue);
    Known& shared = shared_[address * kGoldenRatio >> (64 - kSharedBits)];
    if (shared.items.data() != items.data() || shared.items.size() != items.size()) {
      shared = {items, find(items, make)};
    }
    return shared.id;
  }

 private:
  static constexpr int kSharedBits = 10;
  struct Known {
    std::span<const PickleValue> items;
    uint32_t id = 0;
  };

  template <typename Make>
  uint32_t find(std::span<const PickleValue> items, Make&& make) {
    uint64_t hash = hash_salt();
    for (const PickleValue value : items) hash = hash_word(hash, bits_as<uint64_t>(value));
    const uint32_t place = places_.find(hash);
    if (place != 0) {
      const Known& known = known_[place - 1];
      // Two lists hardly ever have one hash; then the second one is made each time.
      return equal(known.items, items) ? known.id : make();
    }
    known_.push_back({items, make()});
    places_.set(hash, static_cast<uint32_t>(known_.size()));
    return known_.back().id;
  }

  static bool equal(std::span<const PickleValue> a, std::span<const PickleValue> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  }

  AddressTable places_;  // by hash: index in known_, plus 1
  std::vector<Known> known_;
  std::vector<Known> shared_ = std::vector<Known>(size_t{1} << kSharedBits);  // by place in memory
};

}  // namespace tidemark
