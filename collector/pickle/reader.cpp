#include "collector/pickle/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "collector/pickle/builder.h"
#include "collector/pickle/opcodes.h"
#include "collector/pickle/records.h"

namespace tidemark {

static_assert(std::endian::native == std::endian::little, "pickle numbers are little-endian");

namespace op = pickle_op;

namespace {

constexpr const char* kCutOff = "runs past the end of the pickle, which is truncated";
constexpr const char* kNoOperand = "has too few values on the stack";
constexpr const char* kNoMemory = "needs more memory than is available";

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 44;  // strings keep their offset in 44 bits

}  // namespace

// Runs the opcodes over a stack of values, as CPython's Unpickler does.
//
// Input is processed in quanta. An opcode is at least one byte and pushes, memoises and creates at
// most one thing, so reserving memory once per quantum is enough.
//
// A MARK is a stack slot that stores the position of the previous fence; the fence is the slot
// above the topmost mark. Nothing below the fence may be used, except by an opcode that pops the
// mark.
class PickleParser {
 public:
  PickleParser(std::span<const uint8_t> bytes, const PickleLimits& limits)
      : begin_(bytes.data()),
        end_(begin_ + bytes.size()),
        limits_(limits),
        builder_(limits),
        records_(begin_, builder_) {}

  Result<PickleDocument> parse();

 private:
  using Tag = PickleValue::Tag;

  static constexpr uint64_t kQuantumBytes = 32768;

  bool start();
  bool make_room();
  bool run_quantum();

  // Each runs the opcode at op_, whose arguments are at cursor_.next. Returns false at the end:
  // with error_ set, or at STOP.
  bool run_opcode();
  bool run_opcode_of_container();
  bool run_opcode_of_text();
  bool run_int(uint64_t bytes);
  bool run_long(uint64_t length_bytes);
  bool run_float();
  bool run_text(Tag tag, uint64_t length_bytes);
  bool run_mark();
  bool run_mark_taker();
  bool run_append_or_set(Tag tag, uint64_t count);
  bool run_tuple(uint64_t count);
  bool run_memoize();
  bool run_put(uint64_t index_bytes);
  bool run_get(uint64_t index_bytes);
  bool run_pop();
  bool run_dup();
  bool run_frame();
  bool run_proto();
  bool run_stop();
  bool refuse();

  bool push(PickleValue value) {
    *cursor_.top++ = value;
    return true;
  }
  bool push_wide(Tag tag, uint64_t bits, uint64_t flag);
  bool push_filled(Tag tag, const PickleValue* items, uint64_t count);
  bool fill_top(Tag tag, const PickleValue* items, uint64_t count);
  bool fill(PickleValue target, const PickleValue* items, uint64_t count);

  bool has(uint64_t bytes) const { return static_cast<uint64_t>(end_ - cursor_.next) >= bytes; }
  uint64_t depth() const { return static_cast<uint64_t>(cursor_.top - fence_); }
  uint64_t quantum_room() const;
  uint64_t read_number(uint64_t bytes);
  bool within_limits();
  bool fail(std::string message);
  bool fail_op(const std::string& what);

  const uint8_t* const begin_;
  const uint8_t* const end_;
  const PickleLimits limits_;
  PickleBuilder builder_;
  PickleRecords records_;
  PickleArray<PickleValue> stack_;
  PickleArray<PickleValue> memo_;
  PickleCursor cursor_;
  bool memo_has_gap_ = false;
  PickleValue* fence_ = nullptr;
  const uint8_t* op_ = nullptr;
  PickleValue root_;
  std::string error_;
};

bool PickleParser::fail(std::string message) {
  error_ = std::move(message);
  return false;
}

bool PickleParser::fail_op(const std::string& what) {
  return fail(std::string(op::name(*op_)) + " at byte " + std::to_string(op_ - begin_) + " " +
              what);
}

// Little-endian; the caller has checked that the input has that many bytes.
uint64_t PickleParser::read_number(uint64_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, cursor_.next, bytes);
  cursor_.next += bytes;
  return number;
}

Result<PickleDocument> PickleParser::parse() {
  if (start()) {
    while (make_room() && run_quantum()) {
    }
  }
  if (!error_.empty()) return Error{std::move(error_)};
  return builder_.finish(root_, begin_, static_cast<uint64_t>(cursor_.next - begin_));
}

bool PickleParser::start() {
  if (begin_ == end_) return fail("the input is empty: a pickle has at least two bytes");
  if (*begin_ != op::kProto) {
    return fail("byte 0 is not PROTO, so this is not a pickle of protocol 2 or later");
  }
  const uint64_t bytes = static_cast<uint64_t>(end_ - begin_);
  if (bytes >= kMaxInputBytes) return fail("it is larger than 16 TiB");
  builder_.expect(bytes);
  (void)memo_.reserve(bytes / 20);  // a hint too: one entry per 25 to 50 bytes
  op_ = cursor_.next = begin_;
  return true;
}

bool PickleParser::within_limits() {
  if (cursor_.memo_size > limits_.max_memo_entries) {
    return fail_op("exceeds the limit of memo entries");
  }
  if (static_cast<uint64_t>(cursor_.top - stack_.data()) > limits_.max_stack) {
    return fail_op("exceeds the limit of values on the stack");
  }
  if (const char* why = builder_.check_limits()) return fail_op(why);
  return true;
}

// The most values that one quantum from here on can push.
uint64_t PickleParser::quantum_room() const {
  const uint64_t bytes = static_cast<uint64_t>(end_ - cursor_.next);
  return std::min(bytes, kQuantumBytes + PickleRecords::kSlackBytes);
}

// Reserves memory for one quantum: on the stack, in the memo, for containers and their values.
bool PickleParser::make_room() {
  if (!within_limits()) return false;
  const uint64_t room = quantum_room();
  const ptrdiff_t top = cursor_.top - stack_.data();
  const ptrdiff_t fence = fence_ - stack_.data();
  if (!stack_.reserve(static_cast<uint64_t>(top) + room) ||
      !memo_.reserve(cursor_.memo_size + room) || !builder_.keep_room(room)) {
    return fail_op(kNoMemory);
  }
  cursor_.top = stack_.data() + top;
  cursor_.memo = memo_.data();
  fence_ = stack_.data() + fence;
  return true;
}

// Tries the fast path first for dicts, while enough input remains for it to look ahead.
bool PickleParser::run_quantum() {
  const uint8_t* const quantum_end = has(kQuantumBytes) ? cursor_.next + kQuantumBytes : end_;
  const bool is_short = !has(PickleRecords::kSlackBytes);
  const uint8_t* const records_end =
      is_short ? begin_ : std::min(quantum_end, end_ - PickleRecords::kSlackBytes);
  while (cursor_.next < quantum_end) {
    if (*cursor_.next == op::kEmptyDict && cursor_.next < records_end && !memo_has_gap_ &&
        records_.read(cursor_, records_end)) {
      continue;
    }
    op_ = cursor_.next++;
    if (!run_opcode()) return false;
  }
  return has(1) || fail("the pickle ends before STOP: it is truncated");
}

bool PickleParser::run_int(uint64_t bytes) {
  if (!has(bytes)) return fail_op(kCutOff);
  uint64_t number = read_number(bytes);
  if (bytes == 4) number = static_cast<uint64_t>(int64_t{static_cast<int32_t>(number)});
  return push(PickleValue::make(Tag::kTagInt, number));
}

bool PickleParser::run_get(uint64_t index_bytes) {
  if (!has(index_bytes)) return fail_op(kCutOff);
  const uint64_t index = read_number(index_bytes);
  if (index >= cursor_.memo_size || memo_[index].is_absent()) {
    return fail_op("fetches a memo entry that does not exist");
  }
  return push(memo_[index]);
}

bool PickleParser::run_memoize() {
  if (depth() == 0) return fail_op(kNoOperand);
  // CPython uses the number of entries as the index here; no pickler mixes the two.
  if (memo_has_gap_) return fail_op("follows numbered memo entries with gaps");
  memo_[cursor_.memo_size++] = cursor_.top[-1];
  return true;
}

bool PickleParser::run_mark() {
  push(PickleValue(static_cast<uint64_t>(fence_ - stack_.data())));
  fence_ = cursor_.top;
  return true;
}

bool PickleParser::run_opcode() {
  switch (*op_) {
    case op::kBinGet:
      return run_get(1);
    case op::kLongBinGet:
      return run_get(4);
    case op::kMemoize:
      return run_memoize();
    case op::kBinPut:
      return run_put(1);
    case op::kLongBinPut:
      return run_put(4);
    case op::kMark:
      return run_mark();
    case op::kPop:
      return run_pop();
    case op::kDup:
      return run_dup();
    case op::kNone:
      return push(PickleValue::make(Tag::kTagNone, 0));
    case op::kNewTrue:
      return push(PickleValue::make(Tag::kTagBool, 1));
    case op::kNewFalse:
      return push(PickleValue::make(Tag::kTagBool, 0));
    case op::kBinInt1:
      return run_int(1);
    case op::kBinInt2:
      return run_int(2);
    case op::kBinInt:
      return run_int(4);
    case op::kLong1:
      return run_long(1);
    case op::kLong4:
      return run_long(4);
    case op::kBinFloat:
      return run_float();
    case op::kFrame:
      return run_frame();
    case op::kProto:
      return run_proto();
    case op::kStop:
      return run_stop();
    default:
      return run_opcode_of_container();
  }
}

bool PickleParser::run_opcode_of_container() {
  switch (*op_) {
    case op::kEmptyList:
      return push(builder_.add_empty(Tag::kTagList));
    case op::kEmptyTuple:
      return push(builder_.add_empty(Tag::kTagTuple));
    case op::kEmptyDict:
      return push(builder_.add_empty(Tag::kTagDict));
    case op::kAppend:
      return run_append_or_set(Tag::kTagList, 1);
    case op::kSetItem:
      return run_append_or_set(Tag::kTagDict, 2);
    case op::kTuple1:
      return run_tuple(1);
    case op::kTuple2:
      return run_tuple(2);
    case op::kTuple3:
      return run_tuple(3);
    case op::kAppends:
    case op::kSetItems:
    case op::kTuple:
    case op::kList:
    case op::kDict:
    case op::kPopMark:
      return run_mark_taker();
    default:
      return run_opcode_of_text();
  }
}

bool PickleParser::run_opcode_of_text() {
  switch (*op_) {
    case op::kShortBinUnicode:
    case op::kShortBinString:
      return run_text(Tag::kTagString, 1);
    case op::kBinUnicode:
    case op::kBinString:
      return run_text(Tag::kTagString, 4);
    case op::kBinUnicode8:
      return run_text(Tag::kTagString, 8);
    case op::kShortBinBytes:
      return run_text(Tag::kTagBytes, 1);
    case op::kBinBytes:
      return run_text(Tag::kTagBytes, 4);
    case op::kBinBytes8:
    case op::kByteArray8:
      return run_text(Tag::kTagBytes, 8);
    default:
      return refuse();
  }
}

bool PickleParser::refuse() {
  const std::string at_byte = " at byte " + std::to_string(op_ - begin_) + " ";
  for (const op::RefusedOpcode& refused : op::kRefused) {
    if (refused.code == *op_) return fail("refused: " + (refused.name + at_byte) + refused.why);
  }
  return fail("the value " + std::to_string(*op_) + at_byte + "is not a pickle opcode");
}

bool PickleParser::push_wide(Tag tag, uint64_t bits, uint64_t flag) {
  uint64_t index = 0;
  if (const char* why = builder_.add_wide(bits, &index)) return fail_op(why);
  return push(PickleValue::make(tag, tag == Tag::kTagWideInt ? index << 1 | flag : index));
}

bool PickleParser::run_float() {
  if (!has(8)) return fail_op(kCutOff);
  return push_wide(Tag::kTagFloat, __builtin_bswap64(read_number(8)), 0);
}

// Two's complement of any length, if the number fits an int64_t or a uint64_t.
bool PickleParser::run_long(uint64_t length_bytes) {
  if (!has(length_bytes)) return fail_op(kCutOff);
  const uint64_t length = read_number(length_bytes);
  if (!has(length)) return fail_op(kCutOff);
  const uint8_t* const digits = cursor_.next;
  cursor_.next += length;
  const bool negative = length > 0 && digits[length - 1] >= 0x80;
  uint64_t bits = negative ? UINT64_MAX : 0;
  if (length > 0) std::memcpy(&bits, digits, std::min<uint64_t>(length, 8));
  const uint8_t* const rest = digits + std::min<uint64_t>(length, 8);
  const bool fits = std::all_of(
      rest, digits + length, [negative](uint8_t digit) { return digit == (negative ? 0xff : 0); });
  if (!fits || (negative && bits >> 63 == 0)) return fail_op("is an integer of more than 64 bits");
  const int64_t number = static_cast<int64_t>(bits);
  const bool is_unsigned = !negative && number < 0;
  constexpr int64_t kInlineEnd = int64_t{1} << (63 - PickleValue::kTagBits);
  if (!is_unsigned && number >= -kInlineEnd && number < kInlineEnd) {
    return push(PickleValue::make(Tag::kTagInt, bits));
  }
  return push_wide(Tag::kTagWideInt, bits, is_unsigned ? 1 : 0);
}

bool PickleParser::run_text(Tag tag, uint64_t length_bytes) {
  if (!has(length_bytes)) return fail_op(kCutOff);
  const uint64_t length = read_number(length_bytes);
  if (!has(length)) return fail_op(kCutOff);
  uint64_t place = static_cast<uint64_t>(cursor_.next - begin_);
  cursor_.next += length;
  if (length >= PickleValue::kLongString) {
    uint64_t ignored = 0;
    const uint64_t offset = place;
    if (const char* why = builder_.add_wide(offset, &place)) return fail_op(why);
    if (const char* why = builder_.add_wide(length, &ignored)) return fail_op(why);
  }
  return push(PickleValue::make_text(tag, place, std::min(length, PickleValue::kLongString)));
}

// Pops the mark and the values above it, and puts the values into their container.
bool PickleParser::run_mark_taker() {
  if (fence_ == stack_.data()) return fail_op("has no MARK");
  const PickleValue* const items = fence_;
  const uint64_t count = depth();
  cursor_.top = fence_ - 1;
  fence_ = stack_.data() + cursor_.top->bits_;
  switch (*op_) {
    case op::kAppends:
      return fill_top(Tag::kTagList, items, count);
    case op::kSetItems:
      return fill_top(Tag::kTagDict, items, count);
    case op::kTuple:
      return push_filled(Tag::kTagTuple, items, count);
    case op::kList:
      return push_filled(Tag::kTagList, items, count);
    case op::kDict:
      return push_filled(Tag::kTagDict, items, count);
    default:
      return true;  // POP_MARK
  }
}

bool PickleParser::run_append_or_set(Tag tag, uint64_t count) {
  if (depth() <= count) return fail_op(kNoOperand);
  cursor_.top -= count;
  return fill_top(tag, cursor_.top, count);
}

bool PickleParser::run_tuple(uint64_t count) {
  if (depth() < count) return fail_op(kNoOperand);
  cursor_.top -= count;
  return push_filled(Tag::kTagTuple, cursor_.top, count);
}

bool PickleParser::fill_top(Tag tag, const PickleValue* items, uint64_t count) {
  if (depth() == 0 || cursor_.top[-1].tag() != tag) {
    return fail_op(tag == Tag::kTagList ? "has no list to append to" : "has no dict to fill");
  }
  return fill(cursor_.top[-1], items, count);
}

bool PickleParser::push_filled(Tag tag, const PickleValue* items, uint64_t count) {
  const PickleValue made = builder_.add_empty(tag);
  return fill(made, items, count) && push(made);
}

bool PickleParser::fill(PickleValue target, const PickleValue* items, uint64_t count) {
  const char* why = nullptr;
  if (target.tag() != Tag::kTagDict) {
    why = builder_.append(target, items, count);
  } else {
    why =
        count % 2 == 0 ? builder_.set_items(target, items, count / 2) : "has a key without a value";
  }
  return why == nullptr || fail_op(why);
}

// A pickler numbers its entries in order. Gaps are allowed while the memo stays smaller than the
// input, so that one opcode cannot request a huge memo.
bool PickleParser::run_put(uint64_t index_bytes) {
  if (!has(index_bytes)) return fail_op(kCutOff);
  if (depth() == 0) return fail_op(kNoOperand);
  const uint64_t index = read_number(index_bytes);
  const uint64_t size = cursor_.memo_size;
  if (index > size && index > static_cast<uint64_t>(op_ - begin_)) {
    return fail_op("has a memo index larger than its position in the file");
  }
  if (index >= size) {
    if (!memo_.reserve(index + 1 + quantum_room())) return fail_op(kNoMemory);
    cursor_.memo = memo_.data();
    memo_has_gap_ |= index > size;
    std::fill(memo_.data() + size, memo_.data() + index, PickleValue());
    cursor_.memo_size = index + 1;
  } else {
    records_.forget();
  }
  memo_[index] = cursor_.top[-1];
  return true;
}

bool PickleParser::run_pop() {
  if (depth() == 0) return run_mark_taker();  // as in CPython: pops the mark itself
  --cursor_.top;
  return true;
}

bool PickleParser::run_dup() {
  return depth() == 0 ? fail_op(kNoOperand) : push(cursor_.top[-1]);
}

bool PickleParser::run_frame() {
  if (!has(8)) return fail_op(kCutOff);
  return has(read_number(8)) || fail_op(kCutOff);
}

bool PickleParser::run_proto() {
  if (!has(1)) return fail_op(kCutOff);
  const uint64_t version = read_number(1);
  return version <= 5 ||
         fail_op("needs protocol " + std::to_string(version) + "; 5 is the latest known");
}

// Ends the run: returns false without an error.
bool PickleParser::run_stop() {
  if (fence_ != stack_.data()) return fail_op("leaves a MARK open");
  if (depth() == 0) return fail_op(kNoOperand);
  root_ = cursor_.top[-1];
  within_limits();
  return false;
}

size_t PickleDocument::slot_of(PickleValue dict, std::string_view key) const {
  const std::span<const PickleValue> all = keys(dict);
  for (size_t slot = all.size(); slot > 0; --slot) {
    if (as_string(all[slot - 1]) == key) return slot;
  }
  return 0;
}

PickleValue PickleDocument::find(PickleValue dict, std::string_view key) const {
  const size_t slot = slot_of(dict, key);
  return slot == 0 ? PickleValue() : values(dict)[slot - 1];
}

size_t PickleDocument::memory_bytes() const {
  return container_count_ * sizeof(Container) + value_count_ * sizeof(PickleValue) +
         wide_count_ * sizeof(uint64_t);
}

Result<PickleDocument> parse_pickle(std::span<const uint8_t> bytes, const PickleLimits& limits) {
  return PickleParser(bytes, limits).parse();
}

}  // namespace tidemark
