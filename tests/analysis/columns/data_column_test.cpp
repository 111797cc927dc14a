// Columns in memory and in files hold the same values, even when the disk fails.
#include "analysis/columns/data_column.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "analysis/columns/allocation_columns.h"
#include "tests/support/scratch_directory.h"

namespace tidemark::test {
namespace {

uint64_t value_at(uint64_t i) {
  return i * 0x9E3779B97F4A7C15U;
}

void fill(DataColumn<uint64_t>& column, uint64_t count) {
  for (uint64_t i = column.size(); i < count; ++i) column.push_back(value_at(i));
}

void expect_values(const DataColumn<uint64_t>& column, uint64_t count) {
  ASSERT_EQ(column.size(), count);
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(column[i], value_at(i)) << i;
}

TEST(DataColumn, GrowsInMemory) {
  DataColumn<uint64_t> column;
  fill(column, 100'000);
  column.push_back(column[7]);  // one of its own elements, which may move meanwhile
  EXPECT_EQ(column.back(), value_at(7));
  EXPECT_FALSE(column.finish_file());
  DataColumn<uint64_t> moved = std::move(column);
  EXPECT_EQ(moved.size(), 100'001U);
  EXPECT_EQ(moved[99'999], value_at(99'999));
}

TEST(DataColumn, FileHoldsWhatLeftMemory) {
  const ScratchDirectory folder;
  constexpr uint64_t kCount = 3'000'000;  // several steps of a file's growth
  DataColumn<uint64_t> column;
  ASSERT_TRUE(column.bytes().create_file(folder / "column"));
  fill(column, kCount / 2);
  column[5] = 1;  // long after its page was released
  column[5] = value_at(5);
  column.release_pages();
  fill(column, kCount);
  EXPECT_TRUE(column.bytes().in_file());
  expect_values(column, kCount);
  ASSERT_TRUE(column.finish_file());
  EXPECT_EQ(std::filesystem::file_size(folder / "column"), kCount * sizeof(uint64_t));
  column.release_pages();
  expect_values(column, kCount);

  DataColumn<uint64_t> again;
  EXPECT_FALSE(again.map_file(folder / "column", kCount - 1));
  EXPECT_FALSE(again.map_file(folder / "none", kCount));
  ASSERT_TRUE(again.map_file(folder / "column", kCount));
  expect_values(again, kCount);
}

TEST(DataColumn, GoesOnInMemoryWhenTheFileCannotGrow) {
  const ScratchDirectory folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{10 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  DataColumn<uint64_t> column;
  ASSERT_TRUE(column.bytes().create_file(folder / "column"));
  fill(column, 1000);
  EXPECT_TRUE(column.bytes().in_file());
  fill(column, 3'000'000);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(column.bytes().in_file());
  expect_values(column, 3'000'000);
  EXPECT_FALSE(column.finish_file());
}

TEST(DataColumn, EmptyFileIsAColumnToo) {
  const ScratchDirectory folder;
  DataColumn<uint32_t> column;
  ASSERT_TRUE(column.bytes().create_file(folder / "column"));
  ASSERT_TRUE(column.finish_file());
  DataColumn<uint32_t> again;
  ASSERT_TRUE(again.map_file(folder / "column", 0));
  EXPECT_TRUE(again.empty());
}

// More kinds than the table of kinds remembers.
TEST(AllocationColumns, KeepSizesThatNeverRepeat) {
  constexpr uint32_t kCount = 700'000;
  const auto allocation = [](uint32_t i) {
    Allocation a;
    a.address = i;
    a.block_bytes = uint64_t{i} * 512;
    a.requested_bytes = uint64_t{i} * 511 + i % 7;
    a.stack = i % 1000;
    return a;
  };
  AllocationColumns columns;
  for (uint32_t i = 0; i < kCount; ++i) columns.add(allocation(i));
  for (uint32_t i = 0; i < kCount; i += 3) columns.add(allocation(i));  // still known, or forgotten
  const std::vector<int64_t> times(1);
  columns.finish(times.data());
  const auto expect = [&](size_t row, uint32_t i) {
    ASSERT_EQ(columns.block_bytes(row), allocation(i).block_bytes);
    ASSERT_EQ(columns.requested_bytes(row), allocation(i).requested_bytes);
    ASSERT_EQ(columns.stack(row), allocation(i).stack);
  };
  for (uint32_t i = 0; i < kCount; ++i) expect(i, i);
  for (uint32_t i = 0; i < kCount; i += 3) expect(kCount + i / 3, i);
}

TEST(AllocationColumns, KindsThatReturnAreKeptOnce) {
  AllocationColumns columns;
  for (uint32_t i = 0; i < 50'000; ++i) {
    Allocation a;
    a.requested_bytes = i % 100;
    a.stack = i % 7;
    columns.add(a);
  }
  EXPECT_EQ(columns.kinds().size(), 700U);
}

}  // namespace
}  // namespace tidemark::test
