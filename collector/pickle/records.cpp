#include "collector/pickle/records.h"

#include <algorithm>
#include <cstring>

#include "collector/pickle/opcodes.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace op = pickle_op;

// The cursor stays in registers only if no function takes it by reference.
#define TIDEMARK_INLINE [[gnu::always_inline]] inline

namespace {

template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The length of an opcode that fetches from the memo, and what it fetches; 0 for other opcodes.
TIDEMARK_INLINE uint64_t fetch_bytes(const uint8_t* next, uint64_t* index) {
  if (*next == op::kLongBinGet) {
    *index = load<uint32_t>(next + 1);
    return 5;
  }
  if (*next == op::kBinGet) {
    *index = next[1];
    return 2;
  }
  return 0;
}

// Protocol 4 uses MEMOIZE; older ones name the next free index. Other indices are not read.
TIDEMARK_INLINE void memoize_if_asked(PickleCursor& c, PickleValue value) {
  if (*c.next == op::kMemoize) {
    c.next += 1;
  } else if (*c.next == op::kBinPut && c.next[1] == c.memo_size) {
    c.next += 2;
  } else if (*c.next == op::kLongBinPut && load<uint32_t>(c.next + 1) == c.memo_size) {
    c.next += 5;
  } else {
    return;
  }
  c.memo[c.memo_size++] = value;
}

}  // namespace

void PickleRecords::forget() {
  for (Layout& layout : layouts_) layout.count = 0;
  ++memo_version_;
}

bool PickleRecords::read(PickleCursor& cursor, const uint8_t* limit) {
  return read_known(cursor, limit) || (learn(cursor, limit) && read_known(cursor, limit));
}

// Reads consecutive dicts: the entries of a trace come in batches of 1000.
bool PickleRecords::read_known(PickleCursor& cursor, const uint8_t* limit) {
  const uint8_t* const start = cursor.next;
  PickleCursor c = cursor;
  while (*c.next == op::kEmptyDict && c.next < limit) {
    const PickleCursor saved = c;
    const PickleBuilder::Checkpoint before = builder_.checkpoint();
    const PickleValue dict = builder_.add_empty(PickleValue::kTagDict);
    new_list_at_ = nullptr;
    if (!read_pairs(c, limit, dict)) {
      builder_.roll_back(before);
      c = saved;
      break;
    }
    if (new_list_at_ != nullptr) *new_list_at_ = new_list_;
    *c.top++ = dict;
  }
  cursor = c;
  return c.next != start;
}

TIDEMARK_INLINE bool PickleRecords::begin_dict(PickleCursor& c, PickleValue dict,
                                               uint64_t* first_key) const {
  ++c.next;
  memoize_if_asked(c, dict);
  return *c.next++ == op::kMark && fetch_bytes(c.next, first_key) != 0;
}

// The values go directly to their place; the contents of lists follow them.
TIDEMARK_INLINE bool PickleRecords::read_pairs(PickleCursor& c, const uint8_t* limit,
                                               PickleValue dict) {
  uint64_t first_key = 0;
  if (!begin_dict(c, dict, &first_key)) return false;
  const Layout& layout = layout_for(first_key);
  if (layout.count == 0) return false;
  const uint64_t first = builder_.value_count_;
  PickleValue* out = &builder_.values_[first];
  builder_.value_count_ += layout.count + 1;
  *out++ = PickleValue(layout.keys_index);
  uint32_t height = 0;
  const Key* const keys_end = layout.keys.data() + layout.count;
  for (const Key* key = layout.keys.data(); key != keys_end; ++key) {
    if ((load<uint64_t>(c.next) ^ key->opcode) << key->unused_bits != 0) return false;
    c.next += key->bytes;
    const PickleValue value = read_value(c, limit, &height);
    if (value.is_absent()) return false;
    *out++ = value;
  }
  if (*c.next++ != op::kSetItems || height >= builder_.limits_.max_depth) return false;
  PickleBuilder::Container& made = builder_.containers_[dict.container_id()];
  made.first = first;
  made.size = static_cast<uint32_t>(layout.count);
  made.height = static_cast<uint16_t>(height + 1);
  return true;
}

// Scans the dict only to learn its keys. The cursor is a copy.
bool PickleRecords::learn(PickleCursor c, const uint8_t* limit) {
  const std::span<const PickleValue> memo(c.memo, c.memo_size);
  const PickleBuilder::Checkpoint before = builder_.checkpoint();
  uint64_t first_key = 0;
  bool good = begin_dict(c, builder_.add_empty(PickleValue::kTagDict), &first_key);
  Layout& layout = layout_for(first_key);
  std::array<PickleValue, kMaxKeys> keys;
  uint64_t count = 0;
  while (good && *c.next != op::kSetItems) {
    uint64_t index = 0;
    uint32_t ignored = 0;
    const uint64_t bytes = fetch_bytes(c.next, &index);
    // Only keys that were in the memo before this dict: the rest is undone with the dict.
    good = count < kMaxKeys && bytes != 0 && index < memo.size() &&
           memo[index].kind() == PickleKind::kString;
    if (!good) break;
    layout.keys[count] = {.opcode = load<uint64_t>(c.next),
                          .unused_bits = static_cast<uint8_t>(64 - 8 * bytes),
                          .bytes = static_cast<uint8_t>(bytes)};
    keys[count++] = memo[index];
    c.next += bytes;
    good = !read_value(c, limit, &ignored).is_absent();
  }
  builder_.roll_back(before);
  good = good && builder_.share_keys(keys.data(), 1, count, &layout.keys_index) == nullptr;
  layout.count = good ? count : 0;
  return good;
}

// Absent for a container that is not closed yet: putting it here would close it, which cannot be
// undone.
TIDEMARK_INLINE PickleValue PickleRecords::fetch(PickleCursor& c, uint32_t* height) const {
  uint64_t index = 0;
  const uint64_t bytes = fetch_bytes(c.next, &index);
  if (bytes == 0 || index >= c.memo_size) return {};
  const PickleValue value = c.memo[index];
  if (value.is_container()) {
    const PickleBuilder::Container& child = builder_.containers_[value.container_id()];
    if (!child.closed) return {};
    *height = std::max<uint32_t>(*height, child.height);
  }
  c.next += bytes;
  return value;
}

// Absent for anything except small scalars and lists of fetched values.
TIDEMARK_INLINE PickleValue PickleRecords::read_value(PickleCursor& c, const uint8_t* limit,
                                                      uint32_t* height) {
  const uint8_t* const at = c.next;
  if (*at == op::kLongBinGet || *at == op::kBinGet) return fetch(c, height);
  if (*at == op::kLong1) {
    // One load of 8 bytes; the first 1 to 7 are the number.
    if (at[1] - 1U > 6U) return {};
    const int unused_bits = 64 - 8 * at[1];
    const int64_t number = static_cast<int64_t>(load<uint64_t>(at + 2) << unused_bits);
    c.next += 2 + at[1];
    return PickleValue::make(PickleValue::kTagInt, static_cast<uint64_t>(number >> unused_bits));
  }
  switch (*at) {
    case op::kBinInt1:
      c.next += 2;
      return *c.next == op::kBinInt1 ? read_int_pair(c, at, height)
                                     : PickleValue::make(PickleValue::kTagInt, at[1]);
    case op::kBinInt2:
      c.next += 3;
      return PickleValue::make(PickleValue::kTagInt, load<uint16_t>(at + 1));
    case op::kBinInt:
      c.next += 5;
      return PickleValue::make(PickleValue::kTagInt, static_cast<uint64_t>(load<int32_t>(at + 1)));
    case op::kEmptyList:
      return read_list(c, limit, height);
    case op::kShortBinUnicode:
      return c.next < limit ? read_string(c) : PickleValue();
    case op::kNewTrue:
    case op::kNewFalse:
      c.next += 1;
      return PickleValue::make(PickleValue::kTagBool, *at == op::kNewTrue ? 1 : 0);
    case op::kNone:
      c.next += 1;
      return PickleValue::make(PickleValue::kTagNone, 0);
    default:
      return {};
  }
}

TIDEMARK_INLINE PickleValue PickleRecords::read_string(PickleCursor& c) const {
  const uint64_t offset = static_cast<uint64_t>(c.next + 2 - input_);
  const PickleValue text = PickleValue::make_text(PickleValue::kTagString, offset, c.next[1]);
  c.next += 2 + c.next[1];
  memoize_if_asked(c, text);
  return text;
}

// A tuple (a, b) of two small ints, the first at `first`: a pool id (torch 2.12).
TIDEMARK_INLINE PickleValue PickleRecords::read_int_pair(PickleCursor& c, const uint8_t* first,
                                                         uint32_t* height) {
  if (c.next[2] != op::kTuple2) return {};
  const PickleValue tuple = builder_.add_empty(PickleValue::kTagTuple);
  const uint64_t place = builder_.value_count_;
  builder_.values_[place] = PickleValue::make(PickleValue::kTagInt, first[1]);
  builder_.values_[place + 1] = PickleValue::make(PickleValue::kTagInt, c.next[1]);
  builder_.value_count_ += 2;
  builder_.containers_[tuple.container_id()] = {
      .first = place, .size = 2, .height = 1, .closed = true, .grown = false};
  *height = std::max<uint32_t>(*height, 1);
  c.next += 3;
  memoize_if_asked(c, tuple);
  return tuple;
}

TIDEMARK_INLINE PickleValue PickleRecords::read_list(PickleCursor& c, const uint8_t* limit,
                                                     uint32_t* parent_height) {
  const PickleValue list = builder_.add_empty(PickleValue::kTagList);
  ++c.next;
  memoize_if_asked(c, list);
  PickleBuilder::Container& made = builder_.containers_[list.container_id()];
  if (*c.next == op::kMark) {
    c.next = read_items(c.next, {c.memo, static_cast<size_t>(c.memo_size)}, limit, made);
    if (c.next == nullptr) return {};
  } else if (!read_item(c, made)) {
    return {};
  }
  if (made.height > builder_.limits_.max_depth) return {};
  *parent_height = std::max<uint32_t>(*parent_height, made.height);
  memoize_if_asked(c, list);  // the JIT pickler memoises a list when it is complete
  return list;
}

// From MARK to APPENDS; returns where it ends, or nullptr. Most lists were read before, and share
// their items. Not inline: it needs the registers that read_pairs() keeps its cursor in.
[[gnu::noinline]] const uint8_t* PickleRecords::read_items(const uint8_t* mark,
                                                           std::span<PickleValue> memo,
                                                           const uint8_t* limit,
                                                           PickleBuilder::Container& list) {
  const uint64_t place = (load<uint64_t>(mark + 1) ^ last_list_) * kGoldenRatio;
  KnownList& known = lists_[place >> (64 - kListBits)];
  if (known.memo_version == memo_version_ &&
      limit - mark >= static_cast<ptrdiff_t>(known.byte_count) &&
      std::memcmp(mark, known.bytes, known.byte_count) == 0) {
    list = known.list;
    last_list_ = known.hash;
    return mark + known.byte_count;
  }
  PickleCursor c = {
      .next = mark + 1, .top = nullptr, .memo = memo.data(), .memo_size = memo.size()};
  PickleValue* const first = &builder_.values_[builder_.value_count_];
  PickleValue* out = first;
  uint32_t height = 0;
  uint64_t hash = 0;
  while (c.next < limit && *c.next != op::kAppends) {
    *out = fetch(c, &height);
    if (out->is_absent()) return nullptr;
    hash = hash_word(hash, out->bits_);
    ++out;
  }
  if (*c.next++ != op::kAppends) return nullptr;
  finish_list(list, static_cast<uint64_t>(out - first), height);
  last_list_ = hash;
  new_list_ = {.bytes = mark,
               .byte_count = static_cast<size_t>(c.next - mark),
               .memo_version = memo_version_,
               .hash = hash,
               .list = list};
  new_list_at_ = &known;
  return c.next;
}

// One item and APPEND, or nothing.
TIDEMARK_INLINE bool PickleRecords::read_item(PickleCursor& c, PickleBuilder::Container& list) {
  uint32_t height = 0;
  uint64_t size = 0;
  uint64_t ignored = 0;
  if (c.next[fetch_bytes(c.next, &ignored)] == op::kAppend) {
    PickleValue& item = builder_.values_[builder_.value_count_];
    item = fetch(c, &height);
    if (item.is_absent() || *c.next++ != op::kAppend) return false;
    size = 1;
  }
  finish_list(list, size, height);
  return true;
}

TIDEMARK_INLINE void PickleRecords::finish_list(PickleBuilder::Container& list, uint64_t size,
                                                uint32_t height) {
  list = {.first = builder_.value_count_,
          .size = static_cast<uint32_t>(size),
          .height = static_cast<uint16_t>(height + 1),
          .closed = true,
          .grown = false};
  builder_.value_count_ += size;
}

}  // namespace tidemark
