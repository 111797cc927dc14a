// Truncated, damaged or forged files: the intact part opens, the rest is counted.
#include <gtest/gtest.h>

#include <cstring>

#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"
#include "tests/support/memory_file.h"
#include "tests/support/random_rows.h"

namespace tidemark {
namespace {

constexpr size_t kRowsPerBlock = 100;
constexpr size_t kBlocks = 40;

// Blocks of marks (row i of block b has correlation b * 1000 + i) between blocks of strings.
std::vector<uint8_t> sample_file() {
  MemorySink sink;
  TraceWriter writer(sink);
  std::mt19937_64 rng(3);
  for (size_t block = 0; block < kBlocks; ++block) {
    for (size_t i = 0; i < kRowsPerBlock; ++i) {
      Mark mark{};
      mark.time_ns = static_cast<int64_t>(block * 1000 + i);
      mark.correlation = block * 1000 + i;
      mark.name = static_cast<uint32_t>(rng());
      writer.append(mark);
    }
    writer.append_string(static_cast<uint32_t>(block + 1), "name " + std::to_string(rng()));
    writer.flush();
  }
  EXPECT_TRUE(writer.finish());
  return sink.bytes;
}

struct Survivors {
  bool opened = false;
  std::vector<uint64_t> blocks;  // numbers of the mark blocks that were read completely
  size_t strings = 0;
  Damage damage;
};

Survivors read_all(std::span<const uint8_t> bytes) {
  Survivors s;
  const auto reader = open_bytes_as_trace(bytes);
  if (!reader) return s;
  s.opened = true;
  BlockDecoder decoder(*reader);
  for (const BlockRef& ref : reader->blocks()) {
    if (ref.kind == BlockKind::kStrings) {
      decoder.strings(ref, [&](uint32_t, std::string_view) { ++s.strings; });
    } else if (ref.kind == BlockKind::kMarks) {
      const auto rows = decoder.rows<Mark>(ref);
      if (rows.empty()) continue;
      s.blocks.push_back(rows[0].correlation / 1000);
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(rows[i].correlation, s.blocks.back() * 1000 + i);
      }
    }
  }
  s.damage = reader->damage();
  s.damage += decoder.damage();
  return s;
}

TEST(Damage, ACutFileOpensUpToItsLastWholeBlock) {
  const auto whole = sample_file();
  const auto reader = open_bytes_as_trace(whole);
  ASSERT_TRUE(reader);
  for (size_t size = 0; size < whole.size(); size += 97) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    size_t expected = 0;
    for (const BlockRef& ref : reader->blocks()) {
      const uint64_t end = ref.offset + sizeof(FrameHeader) + ref.stored_bytes;
      if (ref.kind == BlockKind::kMarks && end <= size) ++expected;
    }
    const Survivors s = read_all(cut);
    if (size < sizeof(FileHeader)) {
      EXPECT_FALSE(s.opened);
      continue;
    }
    ASSERT_TRUE(s.opened) << size;
    EXPECT_EQ(s.blocks.size(), expected) << size;
    EXPECT_EQ(s.damage.blocks, 0U) << size;
    EXPECT_TRUE(s.damage.unfinished) << size;
  }
}

TEST(Damage, AFlippedBitCostsOneBlockAndIsCounted) {
  const auto whole = sample_file();
  std::mt19937_64 rng(4);
  for (int round = 0; round < 3000; ++round) {
    auto flipped = whole;
    const size_t bit = rng() % (whole.size() * 8);
    flipped[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    const Survivors s = read_all(flipped);
    ASSERT_TRUE(s.opened) << "bit " << bit;
    const size_t lost = 2 * kBlocks - s.blocks.size() - s.strings;
    EXPECT_LE(lost, 1U) << "bit " << bit;
    EXPECT_TRUE(lost == 0 || s.damage.any()) << "bit " << bit;
  }
}

TEST(Damage, EveryBitOfOneFrameHeaderCostsAtMostItsBlock) {
  const auto whole = sample_file();
  const auto reader = open_bytes_as_trace(whole);
  ASSERT_TRUE(reader);
  const BlockRef victim = reader->blocks()[6];
  for (size_t bit = 0; bit < sizeof(FrameHeader) * 8; ++bit) {
    auto flipped = whole;
    flipped[victim.offset + bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    for (const bool with_index : {true, false}) {
      if (!with_index) flipped.resize(flipped.size() - 5);
      const Survivors s = read_all(flipped);
      EXPECT_EQ(s.blocks.size() + s.strings, 2 * kBlocks - 1) << "bit " << bit;
      EXPECT_GE(s.damage.blocks, 1U);
    }
  }
}

// A false header with a valid checksum, as an attacker would write it.
void forge(std::vector<uint8_t>& bytes, uint64_t offset,
           const std::function<void(FrameHeader&)>& change) {
  FrameHeader header;
  std::memcpy(&header, bytes.data() + offset, sizeof header);
  change(header);
  header.header_crc = header_crc(header);
  std::memcpy(bytes.data() + offset, &header, sizeof header);
}

TEST(Damage, ForgedLengthsAreRefused) {
  const auto whole = sample_file();
  const auto reader = open_bytes_as_trace(whole);
  ASSERT_TRUE(reader);
  const uint64_t offset = reader->blocks()[4].offset;
  const std::vector<std::function<void(FrameHeader&)>> lies = {
      [](FrameHeader& h) { h.stored_bytes = UINT32_MAX; },
      [](FrameHeader& h) { h.stored_bytes = kMaxPayloadBytes; },
      [](FrameHeader& h) { h.stored_bytes = 0; },
      [](FrameHeader& h) { h.stored_bytes += 1; },
      [](FrameHeader& h) { h.raw_bytes = UINT32_MAX; },
      [](FrameHeader& h) { h.raw_bytes = kMaxPayloadBytes; },
      [](FrameHeader& h) { h.raw_bytes = 1; },
      [](FrameHeader& h) { h.rows = UINT32_MAX; },
      [](FrameHeader& h) { h.rows = h.raw_bytes; },
      [](FrameHeader& h) { h.rows = 0; },
      [](FrameHeader& h) { h.flags ^= kFrameCompressed; },
      [](FrameHeader& h) { h.kind = static_cast<uint16_t>(BlockKind::kKernels); },
      [](FrameHeader& h) { h.kind = static_cast<uint16_t>(BlockKind::kIndex); },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    for (const bool with_index : {true, false}) {
      auto forged = whole;
      forge(forged, offset, lies[i]);
      if (!with_index) forged.resize(forged.size() - 5);
      const Survivors s = read_all(forged);
      ASSERT_TRUE(s.opened);
      EXPECT_LT(s.blocks.size() + s.strings, 2 * kBlocks) << i;
    }
  }
}

TEST(Damage, AForgedIndexIsNotBelieved) {
  const auto whole = sample_file();
  Trailer trailer;
  std::memcpy(&trailer, whole.data() + whole.size() - sizeof trailer, sizeof trailer);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{16}, uint64_t{1} << 40, UINT64_MAX,
                                uint64_t{whole.size()}, uint64_t{whole.size() - 16}}) {
    auto forged = whole;
    Trailer lie{offset, crc32(&offset, sizeof offset)};
    std::memcpy(forged.data() + forged.size() - sizeof lie, &lie, sizeof lie);
    const Survivors s = read_all(forged);
    EXPECT_EQ(s.blocks.size() + s.strings, 2 * kBlocks);
  }
  // An index whose entries point to the wrong places.
  std::vector<IndexEntry> entries(3);
  entries[0].offset = 16;
  entries[0].stored_bytes = 1 << 20;
  BlockEncoder encoder;
  const auto frame = encoder.encode(std::span<const IndexEntry>(entries), 0, 0);
  std::vector<uint8_t> forged(whole.begin(),
                              whole.begin() + static_cast<ptrdiff_t>(trailer.index_offset));
  forged.insert(forged.end(), frame.begin(), frame.end());
  forged.insert(forged.end(), whole.end() - sizeof(Trailer), whole.end());
  EXPECT_EQ(read_all(forged).blocks.size(), kBlocks);
}

TEST(Damage, UnknownKindsOfBlocksAreLeftAlone) {
  const auto whole = sample_file();
  const auto reader = open_bytes_as_trace(whole);
  ASSERT_TRUE(reader);
  auto newer = whole;
  forge(newer, reader->blocks()[2].offset, [](FrameHeader& h) { h.kind = 4242; });
  newer.resize(newer.size() - 5);
  const Survivors s = read_all(newer);
  EXPECT_EQ(s.blocks.size() + s.strings, 2 * kBlocks - 1);
  EXPECT_EQ(s.damage.blocks, 0U);
}

TEST(Damage, AFrameThatUnfoldsBeyondItsHeaderIsRefused) {
  // 64 KiB of zeros compress to a few bytes; the header claims less.
  std::vector<Mark> rows(kColdRows);
  BlockEncoder encoder;
  const auto frame = encoder.encode(std::span<const Mark>(rows), 1, 0);
  MemorySink sink;
  TraceWriter writer(sink);
  auto bytes = sink.bytes;
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  forge(bytes, sizeof(FileHeader), [](FrameHeader& h) { h.raw_bytes -= 1; });
  const Survivors s = read_all(bytes);
  EXPECT_TRUE(s.blocks.empty());
  EXPECT_EQ(s.damage.blocks, 1U);
}

}  // namespace
}  // namespace tidemark
