// Python's three encodings of line numbers. tests/end_to_end compares with what CPython reports for
// live code.
#include "injector/python/code.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "injector/python/layout.h"

namespace tidemark::injector {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(PythonLines, LnotabOf39) {
  // From CPython's notes: addresses 0, 6, 50, 350, 361 are on lines 1, 2, 7, 207, 208.
  const Bytes table = {6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 11, 1};
  const auto line = [&](uint32_t address) {
    return line_from_lnotab(table.data(), table.size(), 1, address / 2);
  };
  EXPECT_EQ(line(0), 1);
  EXPECT_EQ(line(4), 1);
  EXPECT_EQ(line(6), 2);
  EXPECT_EQ(line(48), 2);
  EXPECT_EQ(line(50), 7);
  EXPECT_EQ(line(348), 7);
  EXPECT_EQ(line(350), 207);
  EXPECT_EQ(line(362), 208);
}

TEST(PythonLines, LnotabGoesBack) {
  const Bytes table = {2, 5, 2, static_cast<uint8_t>(-3)};
  EXPECT_EQ(line_from_lnotab(table.data(), table.size(), 10, 0), 10);
  EXPECT_EQ(line_from_lnotab(table.data(), table.size(), 10, 1), 15);
  EXPECT_EQ(line_from_lnotab(table.data(), table.size(), 10, 2), 12);
}

TEST(PythonLines, RangesOf310) {
  // Bytes 0-5 on line 10, 6-7 on none, 8-11 on line 12, 12-13 on line 11.
  const Bytes table = {6, 0, 2, static_cast<uint8_t>(-128), 4, 2, 2, static_cast<uint8_t>(-1)};
  const auto line = [&](uint32_t unit) {
    return line_from_ranges(table.data(), table.size(), 10, unit);
  };
  EXPECT_EQ(line(0), 10);
  EXPECT_EQ(line(2), 10);
  EXPECT_EQ(line(3), 0);
  EXPECT_EQ(line(4), 12);
  EXPECT_EQ(line(5), 12);
  EXPECT_EQ(line(6), 11);
}

TEST(PythonLines, LocationsOf311) {
  const Bytes table = {
      0x80 | (0 << 3) | 1,  0x12,               // short form: 2 units, same line
      0x80 | (11 << 3) | 0, 0x01,        0x05,  // one line further, 1 unit
      0x80 | (15 << 3) | 0,                     // no location, 1 unit
      0x80 | (13 << 3) | 3, 0x40 | 0x14, 0x04,  // 4 units; 6-bit parts 0x14, 0x04: 276 = +138
      0x80 | (14 << 3) | 0, 0x03,        0x00, 0x01, 0x02,  // long form: 1 unit, -1
  };
  const auto line = [&](uint32_t unit) {
    return line_from_locations(table.data(), table.size(), 100, unit);
  };
  EXPECT_EQ(line(0), 100);
  EXPECT_EQ(line(1), 100);
  EXPECT_EQ(line(2), 101);
  EXPECT_EQ(line(3), 0);
  EXPECT_EQ(line(4), 101 + 138);
  EXPECT_EQ(line(7), 101 + 138);
  EXPECT_EQ(line(8), 101 + 137);
}

TEST(PythonLines, CutTablesEnd) {
  const Bytes table = {0x80 | (13 << 3) | 0, 0x7f, 0x7f, 0x7f};
  // Past the end of the table, each returns the last line that it knows.
  EXPECT_EQ(line_from_locations(table.data(), 0, 7, 1000), 7);
  EXPECT_EQ(line_from_locations(table.data(), 1, 7, 1000), 7);
  EXPECT_EQ(line_from_locations(table.data(), 2, 7, 1000), 7 - 31);  // 0x3f: sign, and 31
  for (size_t size = 0; size < 2; ++size) {                          // half a pair does not count
    EXPECT_EQ(line_from_lnotab(table.data(), size, 7, 1000), 7);
    EXPECT_EQ(line_from_ranges(table.data(), size, 7, 1000), 7);
  }
}

TEST(PythonLayouts, DescribedByTheInterpreter) {
  // As in 3.13: three words, three for the runtime, thirteen for the interpreter.
  uint64_t words[80] = {};
  std::memcpy(words, "xdebugpy", 8);
  words[1] = 0x030d00f0;
  uint64_t* const thread = words + 3 + 3 + 13;
  uint64_t* const frame = thread + 9;
  uint64_t* const code = frame + 6;
  thread[4] = 72;
  frame[1] = 8;
  frame[3] = 56;
  frame[5] = 70;
  code[1] = 112;
  code[3] = 128;
  code[4] = 136;
  code[5] = 68;
  code[9] = 200;
  PythonLayout layout{};
  ASSERT_TRUE(find_python_layout(3, 13, words, layout));
  EXPECT_EQ(layout.thread_frame, 72);
  EXPECT_EQ(layout.frame_position, 56);
  EXPECT_EQ(layout.code_name, 128);
  EXPECT_EQ(layout.code_instructions, 200);
  words[2] = 1;  // free-threaded
  EXPECT_FALSE(find_python_layout(3, 13, words, layout));
  words[2] = 0;
  code[9] = 1 << 20;
  EXPECT_FALSE(find_python_layout(3, 13, words, layout));
  EXPECT_FALSE(find_python_layout(3, 13, nullptr, layout));
  EXPECT_FALSE(find_python_layout(3, 8, nullptr, layout));
  EXPECT_TRUE(find_python_layout(3, 9, nullptr, layout));
}

}  // namespace
}  // namespace tidemark::injector
