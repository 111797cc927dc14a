#include "collector/pickle/reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/pickle_dump.h"

namespace tidemark {
namespace {

using namespace std::string_literals;

std::span<const uint8_t> as_span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string little_endian(uint64_t number, size_t bytes) {
  std::string out(bytes, '\0');
  std::memcpy(out.data(), &number, bytes);
  return out;
}

// Opcodes, each as a pickler writes it.
const std::string kProto4 = "\x80\x04"s;
const std::string kMemoize = "\x94"s;
const std::string kTuple2 = "\x86"s;
std::string str(std::string_view text) {
  return "\x8c" + little_endian(text.size(), 1) + std::string(text);
}
std::string int1(uint64_t number) {
  return "K" + little_endian(number, 1);
}
std::string int4(int32_t number) {
  return "J" + little_endian(static_cast<uint32_t>(number), 4);
}
std::string long1(std::string_view digits) {
  return "\x8a" + little_endian(digits.size(), 1) + std::string(digits);
}
std::string get(uint64_t index) {
  return index < 256 ? "h" + little_endian(index, 1) : "j" + little_endian(index, 4);
}
std::string put4(uint64_t index) {
  return "r" + little_endian(index, 4);
}
std::string pickle(const std::string& body) {
  return kProto4 + body + ".";
}

std::string dump(const PickleDocument& document) {
  return PickleDump(document, PickleDump::Sharing::kShow, 10'000'000).run().value_or("too large");
}

// The document as canonical JSON that shows sharing, or the error. Small pickles are also read with
// bytes after their STOP, which lets the fast path look ahead: the result must be the same.
std::string read(const std::string& bytes, const PickleLimits& limits = {}) {
  const Result<PickleDocument> document = parse_pickle(as_span(bytes), limits);
  const std::string padded_bytes = bytes + std::string(2048, '\0');
  const Result<PickleDocument> padded = parse_pickle(as_span(padded_bytes), limits);
  const std::string text = document ? dump(*document) : document.error().message;
  EXPECT_EQ(document.ok(), padded.ok()) << text;
  if (document && padded) {
    EXPECT_EQ(dump(*padded), text);
    EXPECT_EQ(document->consumed_bytes(), bytes.size());
    EXPECT_EQ(padded->consumed_bytes(), bytes.size());
  }
  return text;
}

TEST(PickleReader, ReadsScalars) {
  EXPECT_EQ(read(pickle("N")), "null");
  EXPECT_EQ(read(pickle("\x88")), "true");
  EXPECT_EQ(read(pickle("\x89")), "false");
  EXPECT_EQ(read(pickle(int1(255))), "255");
  EXPECT_EQ(read(pickle("M\xff\xff")), "65535");
  EXPECT_EQ(read(pickle(int4(-1))), "-1");
  EXPECT_EQ(read(pickle(int4(std::numeric_limits<int32_t>::min()))), "-2147483648");
  EXPECT_EQ(read(pickle("G\x3f\xf8\0\0\0\0\0\0"s)), "{\"float\": \"3ff8000000000000\"}");
}

TEST(PickleReader, ReadsIntegersUpTo64Bits) {
  EXPECT_EQ(read(pickle(long1(""))), "0");
  EXPECT_EQ(read(pickle(long1("\x80"))), "-128");
  EXPECT_EQ(read(pickle(long1("\xff\x00"s))), "255");
  for (const int shift : {30, 47, 55, 58, 59, 60, 61, 62}) {
    for (const int64_t delta : {-1, 0, 1}) {
      const int64_t number = (int64_t{1} << shift) + delta;
      const std::string digits = little_endian(static_cast<uint64_t>(number), 8);
      EXPECT_EQ(read(pickle(long1(digits))), std::to_string(number));
      const std::string negative = little_endian(static_cast<uint64_t>(-number), 8);
      EXPECT_EQ(read(pickle(long1(negative))), std::to_string(-number));
    }
  }
  const std::string int64_min = "\0\0\0\0\0\0\0\x80"s;
  EXPECT_EQ(read(pickle(long1(int64_min))), "-9223372036854775808");
  EXPECT_EQ(read(pickle(long1(int64_min + "\0"s))), "9223372036854775808");
  EXPECT_EQ(read(pickle(long1("\xff\xff\xff\xff\xff\xff\xff\xff\0"s))), "18446744073709551615");
  EXPECT_EQ(read(pickle("\x8b\x02\0\0\0\x39\x30"s)), "12345");           // LONG4
  EXPECT_EQ(read(pickle(long1("\x05" + std::string(200, '\0')))), "5");  // padded
}

TEST(PickleReader, RefusesIntegersBeyond64Bits) {
  const std::string why = "LONG1 at byte 2 is an integer of more than 64 bits";
  EXPECT_EQ(read(pickle(long1("\0\0\0\0\0\0\0\0\1"s))), why);
  EXPECT_EQ(read(pickle(long1("\0\0\0\0\0\0\0\0\xff"s))), why);
  EXPECT_EQ(read(pickle(long1("\xff\xff\xff\xff\xff\xff\xff\x7f\xff"s))), why);
}

TEST(PickleReader, ConvertsIntegersOnlyWhereTheyFit) {
  const std::string bytes = pickle("(" + int1(7) + int4(-7) + long1("\0\0\0\0\0\0\0\x80"s) +
                                   long1("\0\0\0\0\0\0\0\x80\0"s) + "\x88t");
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok());
  const auto items = doc->items(doc->root());
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(doc->as_i64(items[0]), 7);
  EXPECT_EQ(doc->as_u64(items[0]), 7U);
  EXPECT_EQ(doc->as_i64(items[1]), -7);
  EXPECT_EQ(doc->as_u64(items[1]), std::nullopt);
  EXPECT_EQ(doc->as_address(items[1]), ~uint64_t{6});
  EXPECT_EQ(doc->as_i64(items[2]), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(doc->as_u64(items[2]), std::nullopt);
  EXPECT_EQ(doc->as_address(items[2]), uint64_t{1} << 63);
  EXPECT_EQ(doc->as_i64(items[3]), std::nullopt);
  EXPECT_EQ(doc->as_u64(items[3]), uint64_t{1} << 63);
  EXPECT_EQ(doc->as_address(items[3]), uint64_t{1} << 63);
  EXPECT_EQ(doc->as_i64(items[4]), std::nullopt);  // a bool is not an int here
  EXPECT_EQ(doc->as_u64(items[4]), std::nullopt);
  EXPECT_EQ(doc->as_bool(items[4]), true);
  EXPECT_EQ(doc->as_f64(items[0]), std::nullopt);
  EXPECT_EQ(doc->as_string(items[0]), std::nullopt);
}

TEST(PickleReader, ReadsTextOfEveryLengthAsViewsOfTheInput) {
  for (const size_t length : {0UL, 1UL, 255UL, 256UL, 65534UL, 65535UL, 65536UL, 100000UL}) {
    const std::string text(length, 'x');
    for (const std::string& bytes : {pickle("X" + little_endian(length, 4) + text),
                                     pickle("\x8d" + little_endian(length, 8) + text),
                                     pickle("T" + little_endian(length, 4) + text)}) {
      const auto doc = parse_pickle(as_span(bytes));
      ASSERT_TRUE(doc.ok());
      ASSERT_EQ(doc->root().kind(), PickleKind::kString);
      EXPECT_EQ(doc->as_string(doc->root()), text);
      EXPECT_GE(doc->as_string(doc->root())->data(), bytes.data());
      EXPECT_LE(doc->as_string(doc->root())->data() + length, bytes.data() + bytes.size());
    }
  }
  EXPECT_EQ(read(pickle("U\x02hi")), "\"hi\"");
  EXPECT_EQ(read(pickle("C\x02hi")), "{\"bytes\": \"hi\"}");
  EXPECT_EQ(read(pickle("B\x02\0\0\0hi"s)), "{\"bytes\": \"hi\"}");
  EXPECT_EQ(read(pickle("\x8e\x02\0\0\0\0\0\0\0hi"s)), "{\"bytes\": \"hi\"}");
  EXPECT_EQ(read(pickle("\x96\x02\0\0\0\0\0\0\0hi"s)), "{\"bytes\": \"hi\"}");
}

TEST(PickleReader, ReadsContainers) {
  EXPECT_EQ(read(pickle("]")), "[]");
  EXPECT_EQ(read(pickle(")")), "{\"tuple\": []}");
  EXPECT_EQ(read(pickle("}")), "{\"dict\": []}");
  EXPECT_EQ(read(pickle("N\x85")), "{\"tuple\": [null]}");
  EXPECT_EQ(read(pickle("NN\x86")), "{\"tuple\": [null, null]}");
  EXPECT_EQ(read(pickle("NNN\x87")), "{\"tuple\": [null, null, null]}");
  EXPECT_EQ(read(pickle("(NNNNt")), "{\"tuple\": [null, null, null, null]}");
  EXPECT_EQ(read(pickle("(NNl")), "[null, null]");
  EXPECT_EQ(read(pickle("(" + str("a") + "Nd")), "{\"dict\": [\"a\", null]}");
  EXPECT_EQ(read(pickle("](e")), "[]");
  EXPECT_EQ(read(pickle("}(u")), "{\"dict\": []}");
  EXPECT_EQ(read(pickle("](K\1]}e")), "[1, [], {\"dict\": []}]");
}

TEST(PickleReader, AppendsToAListThatHasItems) {
  EXPECT_EQ(read(pickle("]K\1a(K\2K\3eK\4a")), "[1, 2, 3, 4]");
}

TEST(PickleReader, GrowsListsAndDictsInBatchesOfAnySize) {
  for (const int batch : {1, 2, 3, 10, 1000}) {
    std::string list = "]";
    std::string dict = "}";
    std::string list_items;
    std::string dict_items;
    for (int i = 0; i < 2100;) {
      list += "(";
      dict += "(";
      for (int j = 0; j < batch; ++j, ++i) {
        list += "]Na" + int4(i);  // the values of the inner list make the outer one move
        dict += int4(i) + "]Na";
        list_items += std::string(i == 0 ? "" : ", ") + "[null], " + std::to_string(i);
        dict_items += std::string(i == 0 ? "" : ", ") + std::to_string(i) + ", [null]";
      }
      list += "e";
      dict += "u";
    }
    EXPECT_EQ(read(pickle(list)), "[" + list_items + "]") << batch;
    EXPECT_EQ(read(pickle(dict)), "{\"dict\": [" + dict_items + "]}") << batch;
  }
}

TEST(PickleReader, GrowsManyContainersInTurns) {
  constexpr uint64_t kLists = 4;
  std::mt19937 random(5);
  std::string body;
  for (uint64_t i = 0; i < kLists; ++i) body += "]" + kMemoize + "}" + kMemoize;
  std::vector<std::string> lists(kLists);
  std::vector<std::string> dicts(kLists);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t which = random() % kLists;
    const bool is_list = random() % 2 == 0;
    std::string& expected = is_list ? lists[which] : dicts[which];
    body += get(2 * which + (is_list ? 0 : 1)) + "(";
    const uint64_t count = random() % 20 == 0 ? random() % 100 : random() % 3;
    for (uint64_t i = 0; i < count; ++i) {
      const auto number = static_cast<int32_t>(random());
      body += int4(number) + (is_list ? "" : "\x88");
      expected +=
          (expected.empty() ? "" : ", ") + std::to_string(number) + (is_list ? "" : ", true");
    }
    body += is_list ? "e0" : "u0";
  }
  std::string all;
  for (uint64_t i = 0; i < kLists; ++i) {
    all += (i == 0 ? "[" : ", [") + lists[i] + "], {\"dict\": [" + dicts[i] + "]}";
  }
  EXPECT_EQ(read(pickle("(" + body + "t")), "{\"tuple\": [" + all + "]}");
}

TEST(PickleReader, MovesAListThatFillsItsCapacityExactly) {
  const auto append = [](uint64_t list, uint64_t number) {
    return get(list) + int1(number) + "a0";
  };
  const std::string body = "(]" + kMemoize + "]" + kMemoize + append(0, 1) + append(1, 9) +
                           append(0, 2) + append(0, 3) + append(1, 8) + append(0, 4) + "t";
  EXPECT_EQ(read(pickle(body)), "{\"tuple\": [[1, 2, 3, 4], [9, 8]]}");
}

TEST(PickleReader, SetsItemsOfADictAgainAndAgain) {
  EXPECT_EQ(read(pickle("}" + str("a") + "Ns(" + str("b") + "K\1" + str("c") + "K\2u" + str("d") +
                        "K\3s")),
            "{\"dict\": [\"a\", null, \"b\", 1, \"c\", 2, \"d\", 3]}");
  const std::string bytes =
      pickle("}(" + str("a") + "K\1" + str("b") + "K\2" + str("a") + "K\3u" + str("b") + "K\4s");
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(doc->as_i64(doc->find(doc->root(), "a")), 3);  // the last one, as in Python
  EXPECT_EQ(doc->as_i64(doc->find(doc->root(), "b")), 4);
  EXPECT_TRUE(doc->find(doc->root(), "c").is_absent());
}

TEST(PickleReader, TakesTuplesButNoListsAsKeys) {
  EXPECT_EQ(read(pickle("}K\1\x85Ns")), "{\"dict\": [{\"tuple\": [1]}, null]}");
  EXPECT_EQ(read(pickle("}]Ns")), "SETITEM at byte 5 has a list or dict as a key");
  EXPECT_EQ(read(pickle("}}Ns")), "SETITEM at byte 5 has a list or dict as a key");
  EXPECT_EQ(read(pickle("}K\1Ns(]Nu")), "SETITEMS at byte 10 has a list or dict as a key");
}

TEST(PickleReader, MovesValuesOnTheStack) {
  EXPECT_EQ(read(pickle("NK\1" + "0"s)), "null");
  EXPECT_EQ(read(pickle("N(K\1K\2" + "1"s)), "null");
  EXPECT_EQ(read(pickle("N(0")), "null");  // POP pops a mark, as in CPython
  EXPECT_EQ(read(pickle("]2\x86")), "{\"tuple\": [[], {\"ref\": 1}]}");
  EXPECT_EQ(read(kProto4 + "\x95\x02\0\0\0\0\0\0\0N."s), "null");
}

TEST(PickleReader, KeepsTheIdentityOfContainers) {
  const std::string bytes = pickle("](]" + kMemoize + get(0) + "]" + get(0) + "e");
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok());
  const auto items = doc->items(doc->root());
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].container_id(), items[1].container_id());
  EXPECT_EQ(items[0].container_id(), items[3].container_id());
  EXPECT_EQ(items[0], items[3]);
  EXPECT_NE(items[0].container_id(), items[2].container_id());
  for (const PickleValue item : items) EXPECT_LT(item.container_id(), doc->container_count());
}

TEST(PickleReader, ShowsLaterItemsOfAMemoisedListInAllReferences) {
  // Memoised empty, fetched, then filled through the second reference.
  EXPECT_EQ(read(pickle("]" + kMemoize + get(0) + "K\1a(K\2K\3e" + get(0) + "\x87")),
            "{\"tuple\": [[1, 2, 3], {\"ref\": 1}, {\"ref\": 1}]}");
  EXPECT_EQ(read(pickle("}" + kMemoize + get(0) + "K\1K\2s\x86")),
            "{\"tuple\": [{\"dict\": [1, 2]}, {\"ref\": 1}]}");
}

TEST(PickleReader, RefusesCycles) {
  const std::string why =
      "changes a container that is inside another one or itself; a snapshot never does";
  EXPECT_EQ(read(pickle("]" + kMemoize + get(0) + "a")), "APPEND at byte 6 " + why);
  EXPECT_EQ(read(pickle("]2a")), "APPEND at byte 4 " + why);
  EXPECT_EQ(read(pickle("}" + kMemoize + "K\1" + get(0) + "s")), "SETITEM at byte 8 " + why);
  // a contains b, and a is put into b.
  EXPECT_EQ(read(pickle("]" + kMemoize + "]" + kMemoize + get(0) + "aa")),
            "APPEND at byte 9 " + why);
  EXPECT_EQ(read(pickle("]" + kMemoize + "(]" + kMemoize + "(" + get(0) + "eN" + "e")),
            "APPENDS at byte 12 " + why);
  // A tuple in the list that it contains.
  EXPECT_EQ(read(pickle("]" + kMemoize + "\x85" + kMemoize + get(0) + get(1) + "a")),
            "APPEND at byte 10 " + why);
  // A dict that is its own key through a tuple.
  EXPECT_EQ(read(pickle("}" + kMemoize + get(0) + "\x85Ns")), "SETITEM at byte 8 " + why);
  // No cycle, but changed after it was stored.
  EXPECT_EQ(read(pickle("](]" + kMemoize + "e" + get(0) + "Na")), "APPEND at byte 10 " + why);
}

TEST(PickleReader, LimitsTheDepth) {
  PickleLimits limits;
  limits.max_depth = 10;
  const auto nested = [](size_t depth) {
    return pickle(std::string(depth, ']') + std::string(depth - 1, 'a'));
  };
  EXPECT_EQ(read(nested(10), limits), std::string(10, '[') + std::string(10, ']'));
  EXPECT_EQ(read(nested(11), limits), "APPEND at byte 22 nests containers deeper than the limit");
  EXPECT_EQ(read(pickle("N" + std::string(11, '\x85')), limits),
            "TUPLE1 at byte 13 nests containers deeper than the limit");
  // Depth built through the memo counts as well.
  std::string body = "]" + kMemoize;
  for (uint64_t i = 0; i < 10; ++i) body += "]" + get(i) + "a" + kMemoize;
  EXPECT_EQ(read(pickle(body), limits), "APPEND at byte 52 nests containers deeper than the limit");
  EXPECT_EQ(read(nested(1'000'000)),
            "APPEND at byte 1000065 nests containers deeper than the limit");
}

TEST(PickleReader, KeepsABillionLaughsSmall) {
  std::string body = "]" + kMemoize;
  for (uint64_t i = 0; i < 60; ++i) {
    body += "](";
    for (int j = 0; j < 10; ++j) body += get(i);
    body += "e" + kMemoize;
  }
  const std::string bytes = pickle(body);
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(doc->container_count(), 61U);
  EXPECT_LT(doc->memory_bytes(), 10'000U);
  EXPECT_EQ(PickleDump(*doc, PickleDump::Sharing::kExpand, 100'000).run(), std::nullopt);
  EXPECT_NE(PickleDump(*doc, PickleDump::Sharing::kShow, 100'000).run(), std::nullopt);
}

TEST(PickleReader, KeepsMemoryProportionalToTheInput) {
  std::vector<std::string> bodies;
  for (const std::string& piece : {"]"s, ")"s, "}"s, "]\x94"s, "N\x85"s, "]Na"s, "})Ns"s, "}K\1Ns"s,
                                   "N"s, "("s, "]2"s, "G\0\0\0\0\0\0\0\0"s, "}(K\1Nu"s}) {
    std::string body;
    while (body.size() < 300'000) body += piece;
    bodies.push_back("(" + body + (piece == "(" ? std::string(body.size(), '1') : "") + "t");
  }
  std::string appended = "]";
  std::string appended_apart = "]";
  std::string set = "}";
  for (int i = 0; i < 100'000; ++i) {
    appended += "Na";
    appended_apart += "]a";
    set += "NNs";
  }
  bodies.insert(bodies.end(), {appended, appended_apart, set});
  for (const std::string& body : bodies) {
    const std::string bytes = pickle(body);
    const auto doc = parse_pickle(as_span(bytes));
    ASSERT_TRUE(doc.ok()) << doc.error().message << " " << body.substr(0, 10);
    EXPECT_LE(doc->memory_bytes(), 40 * bytes.size()) << body.substr(0, 10);
  }
}

TEST(PickleReader, ChecksTheMemo) {
  EXPECT_EQ(read(pickle(get(0))), "BINGET at byte 2 fetches a memo entry that does not exist");
  EXPECT_EQ(read(pickle(get(300))),
            "LONG_BINGET at byte 2 fetches a memo entry that does not exist");
  EXPECT_EQ(read(pickle(kMemoize)), "MEMOIZE at byte 2 has too few values on the stack");
  EXPECT_EQ(read(pickle("Nq\1" + get(0))),
            "BINGET at byte 5 fetches a memo entry that does not exist");
  EXPECT_EQ(read(pickle("Nq\1" + get(1) + "\x86")), "{\"tuple\": [null, null]}");
  EXPECT_EQ(read(pickle("Nq\0K\1q\0"s + get(0) + get(0) + "\x87")), "{\"tuple\": [1, 1, 1]}");
}

TEST(PickleReader, RefusesToCountMemoEntriesWithGaps) {
  EXPECT_EQ(read(pickle("Nq\1K\1" + kMemoize)),
            "MEMOIZE at byte 7 follows numbered memo entries with gaps");
  EXPECT_EQ(read(pickle("Nq\0K\1"s + kMemoize + get(1) + "\x87")), "{\"tuple\": [null, 1, 1]}");
}

TEST(PickleReader, RefusesAHugeMemoIndex) {
  for (const uint64_t index : {100UL, 1UL << 20, 0xffffffffUL}) {
    EXPECT_EQ(read(pickle("N" + put4(index))),
              "LONG_BINPUT at byte 3 has a memo index larger than its position in the file");
  }
}

TEST(PickleReader, EnforcesItsLimits) {
  PickleLimits limits;
  limits.max_memo_entries = 2;
  EXPECT_EQ(read(pickle("N\x94\x94"), limits), "null");
  EXPECT_EQ(read(pickle("N\x94\x94\x94"), limits),
            "STOP at byte 6 exceeds the limit of memo entries");
  limits = {};
  limits.max_containers = 2;
  EXPECT_EQ(read(pickle("]]a"), limits), "[[]]");
  EXPECT_EQ(read(pickle("]]]aa"), limits), "STOP at byte 7 creates more containers than the limit");
  limits = {};
  limits.max_values = 2;
  EXPECT_EQ(read(pickle("](NNe"), limits), "[null, null]");
  EXPECT_EQ(read(pickle("](NNNe"), limits), "APPENDS at byte 7 stores more values than the limit");
}

TEST(PickleReader, RefusesWhatCouldRunCode) {
  struct Case {
    std::string opcode;
    std::string name;
  };
  const std::vector<Case> cases = {{"cos\nsystem\n", "GLOBAL"},
                                   {"\x93", "STACK_GLOBAL"},
                                   {"R", "REDUCE"},
                                   {"b", "BUILD"},
                                   {"\x81", "NEWOBJ"},
                                   {"\x92", "NEWOBJ_EX"},
                                   {"ios\nsystem\n", "INST"},
                                   {"o", "OBJ"},
                                   {"\x82\1", "EXT1"},
                                   {"\x83\1\1", "EXT2"},
                                   {"\x84\1\1\1\1", "EXT4"},
                                   {"Pid\n", "PERSID"},
                                   {"Q", "BINPERSID"}};
  for (const Case& c : cases) {
    EXPECT_EQ(read(pickle("N" + c.opcode)),
              "refused: " + c.name + " at byte 3 could run code; a memory snapshot never needs it");
  }
  EXPECT_EQ(read(pickle("\x97")),
            "refused: NEXT_BUFFER at byte 2 needs a buffer outside the file; a memory snapshot "
            "never needs it");
  EXPECT_NE(read(pickle("N\x98")).find("READONLY_BUFFER"), std::string::npos);
  EXPECT_NE(read(pickle("\x8f")).find("refused: EMPTY_SET at byte 2"), std::string::npos);
  EXPECT_NE(read(pickle("(\x91")).find("refused: FROZENSET"), std::string::npos);
}

TEST(PickleReader, ExplainsOldProtocolsAndOtherFiles) {
  EXPECT_EQ(read(pickle("I1\n")),
            "refused: INT at byte 2 is a text opcode of pickle protocol 0, which is not supported; "
            "save with protocol 2 or later");
  for (const char text : {'L', 'F', 'S', 'V', 'g', 'p'}) {
    EXPECT_NE(read(pickle(std::string(1, text))).find("protocol 0"), std::string::npos) << text;
  }
  EXPECT_EQ(read("(dp0\n."), "byte 0 is not PROTO, so this is not a pickle of protocol 2 or later");
  EXPECT_EQ(read("{\"segments\": []}"),
            "byte 0 is not PROTO, so this is not a pickle of protocol 2 or later");
  EXPECT_EQ(read("\x80\x06N."), "PROTO at byte 0 needs protocol 6; 5 is the latest known");
  EXPECT_EQ(read(pickle("\xff")), "the value 255 at byte 2 is not a pickle opcode");
  const auto nothing = parse_pickle({});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().message, "the input is empty: a pickle has at least two bytes");
}

TEST(PickleReader, ExplainsStackFaults) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a", "APPEND at byte 2 has too few values on the stack"},
      {"]a", "APPEND at byte 3 has too few values on the stack"},
      {"](Na", "APPEND at byte 5 has too few values on the stack"},  // the list is below the mark
      {"]NNs", "SETITEM at byte 5 has no dict to fill"},
      {"}Na", "APPEND at byte 4 has no list to append to"},
      {"e", "APPENDS at byte 2 has no MARK"},
      {"(e", "APPENDS at byte 3 has no list to append to"},
      {"N(Ne", "APPENDS at byte 5 has no list to append to"},
      {"](}(((u", "SETITEMS at byte 8 has no dict to fill"},
      {"}(Nu", "SETITEMS at byte 5 has a key without a value"},
      {"(Nd", "DICT at byte 4 has a key without a value"},
      {"t", "TUPLE at byte 2 has no MARK"},
      {"N\x86", "TUPLE2 at byte 3 has too few values on the stack"},
      {"0", "POP at byte 2 has no MARK"},
      {"1", "POP_MARK at byte 2 has no MARK"},
      {"2", "DUP at byte 2 has too few values on the stack"},
      {"q\0"s, "BINPUT at byte 2 has too few values on the stack"},
      {"", "STOP at byte 2 has too few values on the stack"},
      {"(N", "STOP at byte 4 leaves a MARK open"},
  };
  for (const auto& [body, why] : cases) EXPECT_EQ(read(pickle(body)), why) << body;
}

TEST(PickleReader, IgnoresBytesAfterStop) {
  const std::string bytes = pickle("N") + "cos\nsystem\n";
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok());
  EXPECT_EQ(doc->root().kind(), PickleKind::kNone);
  EXPECT_EQ(doc->consumed_bytes(), 4U);
}

TEST(PickleReader, LooksUpKeys) {
  std::string body = str("a") + kMemoize + "0" + str("b") + kMemoize + "0](";
  for (uint64_t i = 0; i < 5; ++i) body += "}(" + get(0) + int1(i) + get(1) + int1(i + 100) + "u";
  body += "}(" + get(1) + int1(7) + get(0) + int1(8) + "u}" + get(0) + "Ns}K\1e";
  const std::string bytes = pickle(body);
  const auto doc = parse_pickle(as_span(bytes));
  ASSERT_TRUE(doc.ok()) << doc.error().message;
  PickleKey a(*doc, "a");
  PickleKey b(*doc, "b");
  PickleKey none(*doc, "none");
  const auto items = doc->items(doc->root());
  ASSERT_EQ(items.size(), 9U);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(doc->as_u64(doc->find(items[i], a)), i);
    EXPECT_EQ(doc->as_u64(doc->find(items[i], b)), i + 100);
    EXPECT_TRUE(doc->find(items[i], none).is_absent());
    EXPECT_EQ(doc->keys(items[i]).data(), doc->keys(items[0]).data());  // stored once
  }
  EXPECT_EQ(doc->as_u64(doc->find(items[5], a)), 8U);
  EXPECT_EQ(doc->as_u64(doc->find(items[5], b)), 7U);
  EXPECT_EQ(doc->find(items[6], a).kind(), PickleKind::kNone);
  EXPECT_TRUE(doc->find(items[6], b).is_absent());
  EXPECT_TRUE(doc->find(items[7], a).is_absent());  // an empty dict
  EXPECT_TRUE(doc->find(items[8], a).is_absent());  // not a dict
  EXPECT_TRUE(doc->find(PickleValue(), "a").is_absent());
  EXPECT_TRUE(doc->items(items[0]).empty());
  EXPECT_TRUE(doc->keys(items[8]).empty());
  EXPECT_TRUE(doc->values(doc->root()).empty());
}

TEST(PickleReader, DocumentsMove) {
  const std::string bytes = pickle("](K\1" + str("a") + "e");
  Result<PickleDocument> parsed = parse_pickle(as_span(bytes));
  ASSERT_TRUE(parsed.ok());
  const PickleDocument moved = std::move(*parsed);
  EXPECT_EQ(dump(moved), "[1, \"a\"]");
}

}  // namespace
}  // namespace tidemark
