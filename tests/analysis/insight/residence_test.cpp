// Memory that is unmapped while PyTorch counts it, in pieces of segments.
#include "analysis/insight/card/residence.h"

#include <gtest/gtest.h>

#include <random>

#include "analysis/insight/card/ledger.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Parts = std::vector<std::pair<uint64_t, uint64_t>>;

Parts asleep_at(const Residence& residence, int64_t time_ns) {
  Parts parts;
  for (const AddressRange& p : residence.asleep_at(time_ns)) parts.emplace_back(p.begin, p.end);
  return parts;
}

TEST(Residence, PiecesOfASegmentSleepByThemselves) {
  uint64_t at = 0;
  std::vector<int64_t> times;
  const Trace trace([&](Story& s, uint32_t) {
    s.alloc(4 * kMiB, s.user(1));  // in a segment of PyTorch's own
    at = s.alloc(48 * kMiB, s.user(2));
    // Three pieces.
    for (const uint64_t piece : {0U, 16U, 32U}) s.map(at + piece * kMiB, 16 * kMiB);
    times.push_back(s.tick());
    s.unmap(at + 16 * kMiB, 16 * kMiB);
    times.push_back(s.tick());
    s.unmap(at + 32 * kMiB, 16 * kMiB);
    times.push_back(s.tick());
    s.map(at + 16 * kMiB, 8 * kMiB);  // woken in other pieces than it went to sleep
    times.push_back(s.tick());
    s.unmap(at, 16 * kMiB);
    times.push_back(s.tick());
  });
  const ProcessModel& process = trace.model().processes[0];
  const LedgerSource source(process, 0);
  const auto parts = [&](const std::vector<std::pair<uint64_t, uint64_t>>& mib) {
    Parts sums;
    for (const auto& [begin, end] : mib) sums.emplace_back(at + begin * kMiB, at + end * kMiB);
    return sums;
  };
  const Parts expected[] = {
      {}, parts({{16, 32}}), parts({{16, 48}}), parts({{24, 48}}), parts({{0, 16}, {24, 48}})};
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(asleep_at(source.residence(), times[i]), expected[i]) << i;
    uint64_t asleep = 0;
    for (const auto& [begin, end] : expected[i]) asleep += end - begin;
    EXPECT_EQ(source.residence().asleep().at(times[i]), asleep) << i;
    EXPECT_EQ(source.residence().asleep_in_use(times[i]), asleep) << i;
    const Ledger ledger = source.at(times[i]);
    EXPECT_EQ(ledger.not_resident_bytes, asleep) << i;
    EXPECT_EQ(ledger.lines[0].owner, "torch.allocated");
    EXPECT_EQ(ledger.lines[0].bytes, static_cast<int64_t>(52 * kMiB - asleep)) << i;
    for (const LedgerLine& line : ledger.lines) EXPECT_NE(line.owner, "sleeper") << i;
  }
}

// Random pieces, against a look at every page.
TEST(Residence, EqualsALookAtEveryPage) {
  constexpr uint64_t kPage = 2 * kMiB;
  constexpr uint64_t kPages = 40;
  constexpr uint64_t kBase = uint64_t{1} << 40;
  std::minstd_rand random(5);
  for (int round = 0; round < 30; ++round) {
    ProcessModel process;
    AllocationHistory& history = process.framework.emplace_back();
    process.driver.allocations.emplace_back();
    std::vector<std::pair<uint64_t, uint64_t>> segments;  // in pages
    for (uint64_t page = 0; page < kPages;) {
      const uint64_t end = std::min<uint64_t>(kPages, page + 1 + random() % 12);
      segments.emplace_back(page, end);
      page = end + random() % 3;
    }
    for (const auto& [begin, end] : segments) {
      SegmentChange grown;
      grown.address = kBase + begin * kPage;
      grown.size_bytes = (end - begin) * kPage;
      grown.grows = true;
      history.segment_changes.push_back(grown);
    }
    std::vector<int64_t> mapping(kPages, -1);  // the live mapping of each page
    std::vector<bool> was_mapped(kPages, false);
    std::vector<std::vector<bool>> asleep;  // after each time
    for (int64_t time = 1; time < 60; ++time) {
      const uint64_t from = random() % kPages;
      if (mapping[from] >= 0) {
        const int64_t old = mapping[from];
        process.driver.mappings[static_cast<size_t>(old)].death_ns = time;
        std::replace(mapping.begin(), mapping.end(), old, int64_t{-1});
      } else {
        uint64_t to = from;
        const auto index = static_cast<int64_t>(process.driver.mappings.size());
        for (const uint64_t most = from + 1 + random() % 8;
             to < std::min(most, kPages) && mapping[to] < 0; ++to) {
          mapping[to] = index;
          was_mapped[to] = true;
        }
        process.driver.mappings.push_back(
            {kBase + from * kPage, (to - from) * kPage, time, INT64_MAX, 0});
      }
      std::vector<bool>& now = asleep.emplace_back(kPages, false);
      for (const auto& [begin, end] : segments) {
        for (uint64_t p = begin; p < end; ++p) now[p] = was_mapped[p] && mapping[p] < 0;
      }
    }
    const Residence residence(process, 0);
    for (size_t i = 0; i < asleep.size(); ++i) {
      const auto time = static_cast<int64_t>(i) + 1;
      uint64_t bytes = 0;
      for (uint64_t p = 0; p < kPages; ++p) {
        const AddressRange page{kBase + p * kPage, kBase + (p + 1) * kPage};
        bytes += asleep[i][p] ? kPage : 0;
        ASSERT_EQ(bytes_in(residence.asleep_at(time), page), asleep[i][p] ? kPage : 0)
            << "round " << round << ", time " << time << ", page " << p;
      }
      ASSERT_EQ(residence.asleep().at(time), bytes);
    }
  }
}

}  // namespace
}  // namespace tidemark
