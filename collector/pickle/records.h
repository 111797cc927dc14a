// The fast path of the pickle reader: reads a dict of scalars and one-level lists at once.
//
// Nearly all of a snapshot is trace entries, which all have the same form:
//
//   EMPTY_DICT MEMOIZE MARK   BINGET <key> <value>   BINGET <key> <value> ...   SETITEMS
//
// with values that are small ints, strings, and the frames list, which is fetched from the memo or
// made of fetched frames. Such a dict is read without marks: its keys are compared, as input bytes,
// with those of the last dict that began with the same key, and only the values are pushed on the
// stack. Anything else is undone and left to the opcode loop of reader.cpp, so that only the loop
// defines what a pickle means and which errors exist.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collector/pickle/builder.h"
#include "collector/pickle/reader.h"

namespace tidemark {

// The position of the parser.
struct PickleCursor {
  const uint8_t* next = nullptr;  // input
  PickleValue* top = nullptr;     // one past the topmost value of the stack
  PickleValue* memo = nullptr;
  uint64_t memo_size = 0;
};

class PickleRecords {
 public:
  // How far beyond `limit` read() may look at the input, push, or store: kMaxKeys pairs of at most
  // 30 bytes, and one string of 255.
  static constexpr uint64_t kSlackBytes = 1024;

  PickleRecords(const uint8_t* input, PickleBuilder& builder) : input_(input), builder_(builder) {}

  // At EMPTY_DICT: reads the dict and pushes it, or returns false and changes nothing. Stack, memo
  // and builder must have space for one value per byte up to `limit` + kSlackBytes.
  bool read(PickleCursor& cursor, const uint8_t* limit);

  // Call it when a memo entry changes: keys are identified by their place in the memo.
  void forget();

 private:
  static constexpr uint64_t kMaxKeys = 16;
  static constexpr int kListBits = 12;

  // The opcode that fetches a key, as in the input.
  struct Key {
    uint64_t opcode;
    uint8_t unused_bits;  // of `opcode`, at its top
    uint8_t bytes;
  };
  // A list and its items as in the input, from MARK to APPENDS.
  struct KnownList {
    const uint8_t* bytes = nullptr;
    size_t byte_count = 0;
    uint64_t memo_version = 0;  // the bytes refer to its entries
    uint64_t hash = 0;          // of the items
    PickleBuilder::Container list;
  };
  struct Layout {
    uint64_t keys_index = 0;  // of the same keys in the builder
    uint64_t count = 0;       // 0: nothing learned yet
    std::array<Key, kMaxKeys> keys;
  };

  bool read_known(PickleCursor& cursor, const uint8_t* limit);
  bool read_pairs(PickleCursor& c, const uint8_t* limit, PickleValue dict);
  bool learn(PickleCursor c, const uint8_t* limit);
  bool begin_dict(PickleCursor& c, PickleValue dict, uint64_t* first_key) const;
  PickleValue read_value(PickleCursor& c, const uint8_t* limit, uint32_t* height);
  PickleValue read_list(PickleCursor& c, const uint8_t* limit, uint32_t* height);
  const uint8_t* read_items(const uint8_t* mark, std::span<PickleValue> memo, const uint8_t* limit,
                            PickleBuilder::Container& list);
  bool read_item(PickleCursor& c, PickleBuilder::Container& list);
  void finish_list(PickleBuilder::Container& list, uint64_t size, uint32_t height);
  PickleValue read_int_pair(PickleCursor& c, const uint8_t* first, uint32_t* height);
  PickleValue read_string(PickleCursor& c) const;
  PickleValue fetch(PickleCursor& c, uint32_t* height) const;
  Layout& layout_for(uint64_t first_key) { return layouts_[first_key % layouts_.size()]; }

  const uint8_t* const input_;
  PickleBuilder& builder_;
  std::array<Layout, 64> layouts_{};  // by the memo index of the first key

  // Most lists were read before, and follow the list that they followed then: a program allocates
  // from the same places in the same order, step after step. By the hash of the list before and the
  // first bytes of this one.
  std::vector<KnownList> lists_ = std::vector<KnownList>(size_t{1} << kListBits);
  uint64_t last_list_ = 0;
  uint64_t memo_version_ = 1;
  KnownList* new_list_at_ = nullptr;  // where new_list_ belongs if its dict is not undone
  KnownList new_list_;
};

}  // namespace tidemark
