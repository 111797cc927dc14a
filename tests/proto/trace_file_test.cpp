#include <gtest/gtest.h>

#include <string>

#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"
#include "tests/support/memory_file.h"
#include "tests/support/random_rows.h"

namespace tidemark {
namespace {

template <typename Row>
std::vector<Row> all_rows(const TraceReader& reader, uint32_t process = 0) {
  BlockDecoder decoder(reader);
  std::vector<Row> all;
  for_each_block<Row>(reader, decoder, process, [&](std::span<const Row> rows, const BlockRef&) {
    all.insert(all.end(), rows.begin(), rows.end());
  });
  EXPECT_FALSE(decoder.damage().any());
  return all;
}

TEST(TraceFile, EveryTableComesBackThroughAFile) {
  std::mt19937_64 rng(5);
  MemorySink sink;
  TraceWriter writer(sink);
  std::apply(
      [&](auto... row) {
        (([&] {
           using Row = decltype(row);
           for (const Row& r : random_rows<Row>(Table<Row>::block_rows + 3, rng)) writer.append(r);
         }()),
         ...);
      },
      []<typename... Rows>(RowList<Rows...>) { return std::tuple<Rows...>{}; }(RecordedRows{}));
  ASSERT_TRUE(writer.finish());

  std::mt19937_64 again(5);
  const auto reader = open_bytes_as_trace(sink.bytes);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_FALSE(reader->damage().any());
  EXPECT_FALSE(reader->damage().unfinished);
  std::apply(
      [&](auto... row) {
        (([&] {
           using Row = decltype(row);
           const auto expected = random_rows<Row>(Table<Row>::block_rows + 3, again);
           const auto back = all_rows<Row>(*reader);
           EXPECT_TRUE(same<Row>(expected, back));
         }()),
         ...);
      },
      []<typename... Rows>(RowList<Rows...>) { return std::tuple<Rows...>{}; }(RecordedRows{}));
}

TEST(TraceFile, StringsComeBack) {
  MemorySink sink;
  TraceWriter writer(sink);
  std::vector<std::string> texts = {"", "a", std::string(1000, 'x'), std::string("\0\xff\n", 3)};
  for (int i = 0; i < 10000; ++i) texts.push_back("string " + std::to_string(i));
  for (size_t i = 0; i < texts.size(); ++i)
    writer.append_string(static_cast<uint32_t>(i + 1), texts[i]);
  writer.append_string(99999, std::string(kMaxStringBytes + 5, 'y'));
  ASSERT_TRUE(writer.finish());
  const auto reader = open_bytes_as_trace(sink.bytes);
  ASSERT_TRUE(reader);
  BlockDecoder decoder(*reader);
  std::map<uint32_t, std::string> back;
  for (const BlockRef& ref : reader->blocks()) {
    decoder.strings(ref, [&](uint32_t id, std::string_view text) { back[id] = text; });
  }
  EXPECT_FALSE(decoder.damage().any());
  ASSERT_EQ(back.size(), texts.size() + 1);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(back[static_cast<uint32_t>(i + 1)], texts[i]);
  EXPECT_EQ(back[99999].size(), kMaxStringBytes);
}

TEST(TraceFile, ProcessesAreKeptApartAndTimesAreInTheHeaders) {
  MemorySink sink;
  TraceWriter writer(sink);
  for (uint32_t process = 1; process <= 3; ++process) {
    writer.begin_process(process);
    for (int64_t t = 0; t < 10; ++t) {
      Counter counter{};
      counter.time_ns = 100 * process + t;
      counter.value = process;
      writer.append(counter);
    }
  }
  ASSERT_TRUE(writer.finish());
  EXPECT_EQ(writer.rows_written(), 30U);
  const auto reader = open_bytes_as_trace(sink.bytes);
  ASSERT_TRUE(reader);
  ASSERT_EQ(reader->blocks().size(), 3U);
  EXPECT_EQ(reader->blocks()[1].first_ns, 200);
  EXPECT_EQ(reader->blocks()[1].last_ns, 209);
  const auto second = all_rows<Counter>(*reader, 2);
  ASSERT_EQ(second.size(), 10U);
  for (const Counter& c : second) EXPECT_EQ(c.value, 2U);
}

TEST(TraceFile, FramesCanBeCopiedIntoAnotherFile) {
  std::mt19937_64 rng(6);
  const auto rows = random_rows<Kernel>(100, rng);
  MemorySink first;
  TraceWriter writer(first);
  for (const Kernel& row : rows) writer.append(row);
  ASSERT_TRUE(writer.finish());

  const auto source = open_bytes_as_trace(first.bytes);
  ASSERT_TRUE(source);
  MemorySink second;
  TraceWriter merged(second);
  BlockDecoder decoder(*source);
  for (const BlockRef& ref : source->blocks()) {
    FrameHeader header;
    const auto payload = decoder.payload(ref, header);
    merged.copy_frame(header, payload, 7);
  }
  ASSERT_TRUE(merged.finish());
  const auto reader = open_bytes_as_trace(second.bytes);
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->damage().any());
  EXPECT_TRUE(same<Kernel>(all_rows<Kernel>(*reader, 7), rows));
}

TEST(TraceFile, ScanningFindsTheSameBlocksAsTheIndex) {
  std::mt19937_64 rng(8);
  MemorySink sink;
  TraceWriter writer(sink);
  for (const auto& row : random_rows<FrameworkEvent>(3 * kHotRows, rng)) writer.append(row);
  for (const auto& row : random_rows<Mark>(10, rng)) writer.append(row);
  ASSERT_TRUE(writer.finish());
  const auto indexed = open_bytes_as_trace(sink.bytes);
  auto without = sink.bytes;
  without.resize(without.size() - 1);  // removes the trailer
  const auto scanned = open_bytes_as_trace(without);
  ASSERT_TRUE(indexed && scanned);
  EXPECT_FALSE(indexed->damage().unfinished);
  EXPECT_TRUE(scanned->damage().unfinished);
  ASSERT_EQ(indexed->blocks().size(), scanned->blocks().size());
  for (size_t i = 0; i < indexed->blocks().size(); ++i) {
    EXPECT_EQ(indexed->blocks()[i].offset, scanned->blocks()[i].offset);
    EXPECT_EQ(indexed->blocks()[i].rows, scanned->blocks()[i].rows);
    EXPECT_EQ(indexed->blocks()[i].first_ns, scanned->blocks()[i].first_ns);
  }
}

TEST(TraceFile, AnEmptyTraceOpens) {
  MemorySink sink;
  TraceWriter writer(sink);
  ASSERT_TRUE(writer.finish());
  const auto reader = open_bytes_as_trace(sink.bytes);
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->blocks().empty());
  EXPECT_FALSE(reader->damage().any());
}

TEST(TraceFile, OtherFilesAreRefused) {
  const std::vector<uint8_t> nothing;
  EXPECT_FALSE(open_bytes_as_trace(nothing));
  const std::vector<uint8_t> text(5000, 'x');
  const auto reader = open_bytes_as_trace(text);
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().message, "test: not a tidemark trace");
  EXPECT_FALSE(TraceReader::open("/nonexistent/trace.tmk"));
  EXPECT_FALSE(TraceReader::open("/"));

  MemorySink sink;
  TraceWriter writer(sink);
  ASSERT_TRUE(writer.finish());
  auto newer = sink.bytes;
  newer.resize(sizeof(FileHeader));
  newer[8] = 9;  // major version
  const auto refused = open_bytes_as_trace(newer);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("format 9"), std::string::npos);
}

}  // namespace
}  // namespace tidemark
