#include "analysis/events/capture_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tidemark {
namespace {

FrameworkEvent at(int64_t time_ns, uint64_t address) {
  FrameworkEvent event{};
  event.time_ns = time_ns;
  event.address = address;
  return event;
}

// Rows of several threads, each in order, as a writer collects them round by round.
TEST(CaptureOrder, IsTheOrderOfTimes) {
  std::mt19937 dice(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<FrameworkEvent> truth;
    for (int64_t i = 0; i < 4000; ++i) truth.push_back(at(i * 1'000'000, static_cast<uint64_t>(i)));
    std::vector<FrameworkEvent> file;
    for (size_t begin = 0; begin < truth.size();) {
      const size_t end = std::min(truth.size(), begin + 1 + dice() % 700);
      std::vector<FrameworkEvent> threads[4];
      for (size_t i = begin; i < end; ++i) threads[dice() % 4].push_back(truth[i]);
      for (const auto& rows : threads) file.insert(file.end(), rows.begin(), rows.end());
      begin = end;
    }
    std::vector<int64_t> next_ns(file.size() + 1, INT64_MAX);  // of the row and all later ones
    for (size_t i = file.size(); i-- > 0;) {
      next_ns[i] = std::min(next_ns[i + 1], file[i].time_ns);
    }
    for (const bool is_known : {false, true}) {
      std::vector<uint64_t> found;
      CaptureOrder order({}, [&](auto events) {
        for (const FrameworkEvent& e : events) found.push_back(e.address);
      });
      for (size_t i = 0; i < file.size();) {
        const size_t size = std::min<size_t>(file.size() - i, 1 + dice() % 300);
        order.add({file.data() + i, size}, is_known ? next_ns[i + size] : INT64_MIN);
        i += size;
      }
      order.finish();
      ASSERT_EQ(found.size(), truth.size());
      EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
      EXPECT_EQ(order.too_late(), 0u);
    }
  }
}

TEST(CaptureOrder, PassesOnAtOnceWhatNoLaterRowPrecedes) {
  std::vector<uint64_t> found;
  CaptureOrder order({}, [&](auto events) {
    for (const FrameworkEvent& e : events) found.push_back(e.address);
  });
  const FrameworkEvent rows[] = {at(1, 1), at(2, 2), at(9, 3)};
  order.add(rows, 2);
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 2}));
  const FrameworkEvent late[] = {at(3, 4), at(9, 5)};
  order.add(late, INT64_MAX);
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 2, 4, 3, 5}));
}

TEST(CaptureOrder, OtherEventsComeBetweenAndFirst) {
  std::vector<uint64_t> found;
  CaptureOrder order({at(5, 100), at(20, 101), at(99, 102)}, [&](auto events) {
    for (const FrameworkEvent& e : events) found.push_back(e.address);
  });
  const FrameworkEvent rows[] = {at(1, 1), at(20, 3), at(5, 2)};
  order.add(rows);
  order.finish();
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 100, 2, 101, 3, 102}));
}

TEST(CaptureOrder, RowsThatComeMuchTooLateAreKeptAndCounted) {
  std::vector<uint64_t> found;
  CaptureOrder order({}, [&](auto events) {
    for (const FrameworkEvent& e : events) found.push_back(e.address);
  });
  const FrameworkEvent early[] = {at(0, 1), at(10'000'000'000, 2)};
  const FrameworkEvent late[] = {at(-5, 3)};
  order.add(early);
  order.add(late);
  order.finish();
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 3, 2}));
  EXPECT_EQ(order.too_late(), 1u);
}

}  // namespace
}  // namespace tidemark
