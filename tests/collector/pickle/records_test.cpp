// The fast path of the pickle reader must be invisible: the opcode loop must read the same. Each
// pickle here is read twice: as it is, and with a popped MARK before every SETITEMS, which the fast
// path does not know and leaves to the loop.
#include "collector/pickle/records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collector/pickle/reader.h"
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

// Writes a pickle. `plain` is the form for the fast path, `slow` the same for the loop only.
class Writer {
 public:
  Writer& op(const std::string& bytes) {
    plain += bytes;
    slow += bytes;
    return *this;
  }
  Writer& get(uint64_t index) {
    return op(index < 256 ? "h" + little_endian(index, 1) : "j" + little_endian(index, 4));
  }
  Writer& long_get(uint64_t index) { return op("j" + little_endian(index, 4)); }
  Writer& str(std::string_view text) {
    return op("\x8c" + little_endian(text.size(), 1) + std::string(text));
  }
  Writer& key(std::string_view text) { return str(text).op("\x94"s + "0"); }  // only for the memo
  Writer& int1(uint64_t number) { return op("K" + little_endian(number, 1)); }
  Writer& int4(uint64_t number) { return op("J" + little_endian(number, 4)); }
  Writer& long1(uint64_t number, size_t bytes) {
    return op("\x8a" + little_endian(bytes, 1) + little_endian(number, bytes));
  }
  Writer& begin() { return op("}\x94("); }
  Writer& end() {
    plain += "u";
    slow += "(1u";
    return *this;
  }

  std::string plain = "\x80\x04";
  std::string slow = "\x80\x04";
};

struct Reading {
  std::string text;
  size_t memory_bytes = 0;
};

// "SETITEMS at byte 12 has no MARK" without " at byte 12", which differs between the two forms.
std::string without_position(std::string message) {
  const size_t at = message.find(" at byte ");
  if (at != std::string::npos) message.erase(at, message.find(' ', at + 9) - at);
  return message;
}

Reading read(const std::string& body, const PickleLimits& limits) {
  const std::string bytes = body + "." + std::string(2048, '\0');
  const Result<PickleDocument> document = parse_pickle(as_span(bytes), limits);
  if (!document) {
    return {without_position(document.error().message)};
  }
  return {PickleDump(*document, PickleDump::Sharing::kShow, 100'000'000).run().value_or("large"),
          document->memory_bytes()};
}

std::string read_both(const Writer& writer, const PickleLimits& limits = {}) {
  const Reading plain = read(writer.plain, limits);
  const Reading slow = read(writer.slow, limits);
  EXPECT_EQ(plain.text, slow.text);
  EXPECT_LE(plain.memory_bytes, slow.memory_bytes);  // lists may share their items
  return plain.text;
}

TEST(PickleRecords, ReadsADictOfEveryKindOfValue) {
  Writer w;
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}) w.key(key);
  w.op("](");
  for (uint64_t i = 0; i < 3; ++i) {
    w.begin().get(0).int1(i).get(1).op("M\xff\xff").get(2).int4(0xffffffff);
    w.get(3).long1(0x7fee12345678, 6).get(4).long1(0xff80, 2).get(5).op("N").get(6).op("\x88");
    w.get(7).op("\x89").get(8).get(3).get(9).str("text").op("\x94").end();
  }
  w.op("e");
  const std::string entry =
      "\"b\", 65535, \"c\", -1, \"d\", 140660484363896, \"e\", -128, \"f\", null, \"g\", true, "
      "\"h\", false, \"i\", \"d\", \"j\", \"text\"]}";
  EXPECT_EQ(read_both(w), "[{\"dict\": [\"a\", 0, " + entry + ", {\"dict\": [\"a\", 1, " + entry +
                              ", {\"dict\": [\"a\", 2, " + entry + "]");
}

TEST(PickleRecords, ReadsListsAndPairs) {
  Writer w;
  w.key("frames").key("pool_id").key("x");
  w.op("](").begin().get(2).int1(1).end();  // memo 3, a frame
  for (int i = 0; i < 2; ++i) {
    w.begin().get(0).op("]\x94").get(3).op("a").get(1).int1(0).int1(7).op("\x86\x94").end();
    w.begin().get(0).op("]\x94(").get(3).get(2).get(3).op("e").get(1).int1(0).int1(0).op("\x86");
    w.end();
    w.begin().get(0).op("]\x94").get(1).int1(5).end();  // an empty list, followed by a key
    w.begin().get(0).op("](e").get(1).int1(5).end();
    w.begin().get(0).get(3).get(1).int1(5).end();
  }
  w.op("e");
  const std::string text = read_both(w);
  for (const char* const part :
       {"[{\"dict\": [\"x\", 1]}, {\"dict\": [\"frames\", [{\"ref\": 1}], \"pool_id\", {\"tuple\": "
        "[0, 7]}",
        "[{\"ref\": 1}, \"x\", {\"ref\": 1}], \"pool_id\", {\"tuple\": [0, 0]}",
        "[\"frames\", [], \"pool_id\", 5]", "[\"frames\", {\"ref\": 1}, \"pool_id\", 5]"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(PickleRecords, SharesTheItemsOfListsWithTheSameBytes) {
  Writer w;
  w.key("frames").key("x").op("](").begin().get(1).int1(1).end();  // memo 2, a frame
  for (int i = 0; i < 50; ++i) {
    w.begin().get(0).op("]\x94(");
    for (int k = 0; k < 8 + i % 3; ++k) w.get(2);
    // A float is for the loop: the list before it is undone.
    w.op("e").get(1).op(i % 7 == 0 ? "G\0\0\0\0\0\0\0\0"s : "N").end();
  }
  w.op("e");
  read_both(w);
  EXPECT_LT(read(w.plain, {}).memory_bytes, read(w.slow, {}).memory_bytes - 20 * 8 * 8);
}

TEST(PickleRecords, NoticesAnItemThatChangesInTheMemo) {
  Writer w;
  w.str("f").op("q\0"s + "0").str("a").op("q\1"s + "0").op("](");
  const auto add = [&](int times) {
    for (int i = 0; i < times; ++i) {
      w.op("}(").get(0).op("](").get(1).get(1).op("e").end();
    }
    w.op("e");
  };
  add(4);
  w.str("b").op("q\1"s + "0").op("(");
  add(2);
  const std::string a = "{\"dict\": [\"f\", [\"a\", \"a\"]]}, ";
  const std::string b = "{\"dict\": [\"f\", [\"b\", \"b\"]]}";
  EXPECT_EQ(read_both(w), "[" + a + a + a + a + b + ", " + b + "]");
}

TEST(PickleRecords, ReadsTheOlderWayToMemoise) {
  // Protocols 2 and 3 number the memo entries; the JIT pickler does so when a list is complete.
  Writer w;
  w.str("a").op("q\0"s + "0").str("b").op("q\1"s + "0").op("](");
  w.op("}q\2(").get(0).int1(1).end();
  w.op("}q\3(").get(0).op("]q\4(").get(2).get(2).op("e").get(1).int1(1).end();
  w.op("}(").get(0).op("](").get(2).op("eq\5").get(1).int1(1).end().op("q\6");
  w.op("}r\7\0\0\0("s).get(0).get(5).get(1).get(6).end();
  w.op("}q\3(").get(0).int1(1).get(1).get(2).end();  // an existing entry
  w.get(3).op("e");
  EXPECT_EQ(
      read_both(w),
      "[{\"dict\": [\"a\", 1]}, {\"dict\": [\"a\", [{\"ref\": 1}, {\"ref\": 1}], \"b\", 1]}, "
      "{\"dict\": [\"a\", [{\"ref\": 1}], \"b\", 1]}, {\"dict\": [\"a\", {\"ref\": 5}, \"b\", "
      "{\"ref\": 4}]}, {\"dict\": [\"a\", 1, \"b\", {\"ref\": 1}]}, {\"ref\": 7}]");
}

TEST(PickleRecords, FollowsChangingKeys) {
  Writer w;
  for (const char* key : {"a", "b", "c", "d"}) w.key(key);
  w.op("](");
  std::string expected;
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    w.begin();
    expected += std::string(i == 0 ? "" : ", ") + "{\"dict\": [";
    const uint64_t first = random() % 3;
    const uint64_t count = 1 + random() % (4 - first);
    for (uint64_t k = first; k < first + count; ++k) {
      (random() % 8 == 0 ? w.long_get(k) : w.get(k)).int1(k);
      expected += std::string(k == first ? "" : ", ") + "\"" +
                  std::string(1, static_cast<char>('a' + k)) + "\", " + std::to_string(k);
    }
    w.end();
    expected += "]}";
  }
  EXPECT_EQ(read_both(w.op("e")), "[" + expected + "]");
}

TEST(PickleRecords, NoticesAKeyThatChangesInTheMemo) {
  Writer w;
  w.str("a").op("q\0"s + "0").op("](");
  w.op("}(").get(0).int1(1).end().op("}(").get(0).int1(2).end();
  w.op("e").str("b").op("q\0"s + "0").op("(");
  w.op("}(").get(0).int1(3).end().op("e");
  EXPECT_EQ(read_both(w),
            "[{\"dict\": [\"a\", 1]}, {\"dict\": [\"a\", 2]}, {\"dict\": [\"b\", 3]}]");
}

TEST(PickleRecords, TakesNoKeyFromTheDictItself) {
  // The second key is a string that the first value put into the memo.
  Writer w;
  w.key("a").op("](");
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t memoised = 1 + 2 * i;
    w.begin().get(0).str("b" + std::to_string(i)).op("\x94").get(memoised + 1).int1(1).end();
  }
  EXPECT_EQ(read_both(w.op("e")),
            "[{\"dict\": [\"a\", \"b0\", \"b0\", 1]}, {\"dict\": [\"a\", \"b1\", \"b1\", 1]}, "
            "{\"dict\": [\"a\", \"b2\", \"b2\", 1]}, {\"dict\": [\"a\", \"b3\", \"b3\", 1]}]");
}

TEST(PickleRecords, LeavesOtherDictsToTheLoop) {
  Writer w;
  const std::string expected =
      "{\"dict\": [\"a\", [\"b\", {\"dict\": []}]]}, "
      "{\"dict\": [\"a\", {\"float\": \"0000000000000000\"}, \"b\", 1]}, "
      "{\"dict\": [\"a\", -9223372036854775808, \"b\", 2]}, "
      "{\"dict\": [\"a\", {\"dict\": []}, \"b\", {\"tuple\": []}]}, "
      "{\"dict\": [\"a\", {\"tuple\": [1, 2, 3]}, \"b\", 3]}, "
      "{\"dict\": [9, 1, \"b\", 4]}, {\"dict\": []}, {\"dict\": [\"a\", 1, \"b\", 5]}";
  w.key("a").key("b").op("](");
  for (int i = 0; i < 2; ++i) {
    w.begin().get(0).op("]\x94(").get(1).op("}e").end();
    w.begin().get(0).op("G\0\0\0\0\0\0\0\0"s).get(1).int1(1).end();
    w.begin().get(0).long1(0x8000000000000000, 8).get(1).int1(2).end();
    w.begin().get(0).op("}").get(1).op(")").end();
    w.begin().get(0).int1(1).int1(2).int1(3).op("\x87").get(1).int1(3).end();
    w.begin().int1(9).int1(1).get(1).int1(4).end();
    w.begin().end();
    w.begin().get(0).int1(1).get(1).int1(5).end();
  }
  EXPECT_EQ(read_both(w.op("e")), "[" + expected + ", " + expected + "]");
}

TEST(PickleRecords, GivesTheErrorsOfTheLoop) {
  const auto with = [](const auto& write) {
    Writer w;
    w.key("a").key("b").op("](");
    w.begin().get(0).int1(1).get(1).int1(2).end();
    write(w);
    return read_both(w.op("e"));
  };
  EXPECT_EQ(with([](Writer& w) { w.begin().get(0).get(99).get(1).int1(1).end(); }),
            "BINGET fetches a memo entry that does not exist");
  EXPECT_EQ(with([](Writer& w) { w.begin().get(0).int1(1).get(1).end(); }),
            "SETITEMS has a key without a value");
  EXPECT_EQ(with([](Writer& w) { w.begin().get(0).get(3).get(1).int1(1).end(); }),
            "SETITEMS changes a container that is inside another one or itself; a snapshot never "
            "does");
  EXPECT_EQ(with([](Writer& w) { w.begin().get(0).op("]\x94").get(4).op("a").end(); }),
            "APPEND changes a container that is inside another one or itself; a snapshot never "
            "does");
  EXPECT_EQ(with([](Writer& w) { w.begin().get(0).op("cos\nsystem\n").end(); }),
            "refused: GLOBAL could run code; a memory snapshot never needs it");
}

TEST(PickleRecords, DoesNotCloseWhatItOnlyTried) {
  // The list is fetched into a dict that is then discarded; it can still be appended to.
  Writer w;
  w.key("a").op("]\x94").begin().get(0).get(1).op("10").int1(5).op("a");
  EXPECT_EQ(read_both(w), "[5]");
}

TEST(PickleRecords, KeepsTheDepthLimit) {
  const auto nested = [](uint16_t max_depth) {
    Writer w;
    w.key("a").key("b").op("](](");
    w.begin().get(0).int1(1).end().op("e");             // memo 2: height 1, and closed
    w.begin().get(0).op("]\x94").get(2).op("a").end();  // heights 2 and, for the dict, 3
    w.begin().get(0).get(3).end();                      // 4
    w.begin().get(0).int1(0).int1(0).op("\x86").end();  // 2
    PickleLimits limits;
    limits.max_depth = max_depth;
    return read_both(w.op("e"), limits);
  };
  EXPECT_EQ(nested(1), "APPENDS nests containers deeper than the limit");
  EXPECT_EQ(nested(2), "SETITEMS nests containers deeper than the limit");
  EXPECT_EQ(nested(3), "SETITEMS nests containers deeper than the limit");
  EXPECT_EQ(nested(4), "APPENDS nests containers deeper than the limit");
  EXPECT_EQ(nested(5).substr(0, 1), "[");
}

TEST(PickleRecords, ReadsAnyNumberOfKeys) {
  for (const uint64_t count : {1UL, 15UL, 16UL, 17UL, 40UL}) {
    Writer w;
    std::string expected;
    for (uint64_t i = 0; i < count; ++i) w.key("key" + std::to_string(i));
    for (uint64_t i = 0; i < count; ++i) {
      expected += std::string(i == 0 ? "" : ", ") + "\"key" + std::to_string(i) + "\", 7";
    }
    w.op("](");
    for (int entry = 0; entry < 2; ++entry) {
      w.begin();
      for (uint64_t i = 0; i < count; ++i) w.get(i).int1(7);
      w.end();
    }
    EXPECT_EQ(read_both(w.op("e")),
              "[{\"dict\": [" + expected + "]}, {\"dict\": [" + expected + "]}]");
  }
}

TEST(PickleRecords, CrossesTheBordersOfQuanta) {
  // 200 KiB of records of varying length, so that quanta end everywhere; some do not fit at all.
  Writer w;
  w.key("size").key("frames").key("note").op("](");
  w.begin().get(0).int1(1).end();  // memo 3
  std::mt19937 random(2);
  uint64_t memo = 4;
  while (w.plain.size() < 200'000) {
    w.begin().get(0).int4(static_cast<uint64_t>(random())).get(1).op("]\x94(");
    const uint64_t items = random() % 50 == 0 ? 20'000 : random() % 12;
    for (uint64_t i = 0; i < items; ++i) w.get(3);
    w.op("e").get(2).str(std::string(random() % 256, 'n')).op("\x94").end();
    memo += 3;
    if (random() % 4 == 0) {
      w.begin().get(0).get(memo - 1).get(1).get(memo - 2).get(2).op("N").end();
      ++memo;
    }
  }
  EXPECT_GT(read_both(w.op("e")).size(), 100'000U);
}

// A trace with every form the fast path knows.
std::string small_trace() {
  Writer w;
  w.key("action").key("addr").key("time_us").key("pool_id").key("frames").op("](");
  w.begin().get(0).int1(1).end();  // memo 5
  for (uint64_t i = 0; i < 60; ++i) {
    w.begin().get(0).str("alloc").op("\x94").get(1).long1(0x7fee00000000 + i, 6);
    w.get(2).op("M\x10\x20").get(3).int1(0).int1(1).op("\x86\x94").get(4).op("]\x94(");
    for (uint64_t k = 0; k < i % 4; ++k) w.get(5);
    w.op("e").end();
  }
  return w.op("e.").plain;
}

// On the heap, so that the sanitizer checks the exact end of the input.
Result<PickleDocument> parse_exactly(std::string_view bytes, std::vector<uint8_t>& memory) {
  memory.assign(bytes.begin(), bytes.end());
  memory.shrink_to_fit();
  return parse_pickle(memory);
}

TEST(PickleRecords, RefusesEveryPrefix) {
  const std::string whole = small_trace();
  ASSERT_GT(whole.size(), 1500U);
  std::vector<uint8_t> memory;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(parse_exactly(whole.substr(0, bytes), memory).ok()) << bytes;
  }
  EXPECT_TRUE(parse_exactly(whole, memory).ok());
}

TEST(PickleRecords, StopsAtTheEndOfAnEndlessList) {
  Writer w;
  w.key("a").op("](").op("](").begin().get(0).int1(1).end().op("e");  // memo 1, closed
  w.begin().get(0).op("]\x94(");
  for (int i = 0; i < 5000; ++i) w.get(1);
  std::vector<uint8_t> memory;
  const Result<PickleDocument> document = parse_exactly(w.plain, memory);
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().message, "the pickle ends before STOP: it is truncated");
}

TEST(PickleRecords, SurvivesDamageAndReadsItAsTheLoopDoes) {
  const std::string whole = small_trace();
  std::mt19937 random(4);
  std::vector<uint8_t> memory;
  int read_well = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string damaged = whole;
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      // From all bytes, or from the opcodes that make up a dict.
      const char* const opcodes = "}]()eua0q2hjKMN.\x94\x86\x8a\x8c";
      const size_t at = 2 + random() % (whole.size() - 2);
      damaged[at] = random() % 2 == 0 ? static_cast<char>(random()) : opcodes[random() % 20];
    }
    const Result<PickleDocument> alone = parse_exactly(damaged, memory);
    const std::string alone_text =
        alone ? PickleDump(*alone, PickleDump::Sharing::kShow, 100'000).run().value_or("large")
              : alone.error().message;
    std::vector<uint8_t> padded_memory;
    const Result<PickleDocument> padded =
        parse_exactly(damaged + std::string(2048, '\0'), padded_memory);
    if (!alone || !padded) continue;  // a string may reach into the padding
    ++read_well;
    EXPECT_EQ(PickleDump(*padded, PickleDump::Sharing::kShow, 100'000).run().value_or("large"),
              alone_text);
  }
  EXPECT_GT(read_well, 1000);
}

}  // namespace
}  // namespace tidemark
