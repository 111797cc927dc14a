#include <gtest/gtest.h>

#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"
#include "tests/support/memory_file.h"

namespace tidemark {
namespace {

// Accepts a number of bytes, then the disk is full.
class SmallDisk final : public ByteSink {
 public:
  explicit SmallDisk(size_t room) : room_(room) {}
  bool write(std::span<const uint8_t> data) noexcept override {
    const size_t fits = std::min(data.size(), room_ - bytes.size());
    bytes.insert(bytes.end(), data.begin(), data.begin() + static_cast<ptrdiff_t>(fits));
    errno = ENOSPC;
    return fits == data.size();
  }
  std::vector<uint8_t> bytes;

 private:
  size_t room_;
};

TEST(WriterFailure, AFullDiskIsRememberedAndWhatIsWrittenStaysReadable) {
  constexpr uint64_t kRows = 50'000;
  for (const size_t room : {size_t{0}, size_t{10}, size_t{16}, size_t{2000}, size_t{20'000}}) {
    SmallDisk disk(room);
    TraceWriter writer(disk);
    for (uint64_t i = 0; i < kRows; ++i) {
      Counter counter{};
      counter.time_ns = static_cast<int64_t>(i);
      counter.value = i * i * 7919;
      writer.append(counter);
    }
    EXPECT_FALSE(writer.finish());
    EXPECT_TRUE(writer.failed());
    EXPECT_EQ(writer.error_number(), ENOSPC);
    EXPECT_EQ(writer.rows_written() + writer.rows_lost(), kRows);
    const auto reader = open_bytes_as_trace(disk.bytes);
    if (room < sizeof(FileHeader)) {
      EXPECT_FALSE(reader);
      continue;
    }
    ASSERT_TRUE(reader);
    BlockDecoder decoder(*reader);
    uint64_t rows = 0;
    for_each_block<Counter>(*reader, decoder, 0, [&](auto block, const BlockRef&) {
      for (const Counter& c : block) {
        EXPECT_EQ(c.value, rows * rows * 7919);
        ++rows;
      }
    });
    EXPECT_EQ(rows, writer.rows_written());
    EXPECT_EQ(decoder.damage().blocks, 0U);
  }
}

}  // namespace
}  // namespace tidemark
