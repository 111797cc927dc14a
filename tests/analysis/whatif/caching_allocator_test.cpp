#include "analysis/whatif/allocator/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "tests/support/reference_allocator.h"

namespace tidemark {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

struct Case {
  const char* conf;
  uint64_t allowed;
  uint64_t capacity;
  uint64_t largest;  // request
};

// Sizes that exercise every rule: tiny, around the thresholds of pools and segments, and arbitrary.
uint64_t random_size(std::mt19937_64& rng, uint64_t largest) {
  switch (rng() % 6) {
    case 0:
      return 1 + rng() % 2048;
    case 1:
      return kMib - 600 + rng() % 1200;
    case 2:
      return 10 * kMib - 600 + rng() % 1200;
    case 3:
      return (1 + rng() % (rng() % 2 == 0 ? 12 : largest / kMib)) * kMib;  // produces ties
    case 4:
      return 1 + rng() % (4 * kMib);
    default:
      return 1 + rng() % largest;
  }
}

// Blocks of a segment are contiguous; no two neighbours could be merged; the sums match the
// statistics.
void check_invariants(const CachingAllocator& allocator) {
  using State = CachingAllocator::State;
  MemoryTotals sums;
  std::map<uint64_t, CachingAllocator::Block> by_address;
  allocator.for_each_block([&](const CachingAllocator::Block& b) {
    ASSERT_GT(b.size, 0U);
    ASSERT_TRUE(by_address.emplace(b.address, b).second);
    if (b.state != State::kUnmapped) sums.reserved += b.size;
    if (b.state == State::kAllocated) sums.allocated += b.size;
    if (b.state == State::kAllocated || b.state == State::kPending) {
      sums.active += b.size;
      sums.requested += b.requested;
    }
  });
  for (auto it = by_address.begin(); it != by_address.end(); ++it) {
    const auto next = std::next(it);
    const CachingAllocator::Block& b = it->second;
    if (next == by_address.end() || next->second.segment != b.segment) {
      ASSERT_EQ(b.next, 0U);
      continue;
    }
    ASSERT_EQ(b.address + b.size, next->first);
    const bool idle = b.state == State::kFree || b.state == State::kUnmapped;
    ASSERT_FALSE(idle && b.state == next->second.state) << "free neighbours were not merged";
  }
  EXPECT_EQ(sums, allocator.totals());
}

void compare(const Case& c, uint32_t minor, uint64_t seed, int steps) {
  // Older versions have no such setting.
  if (std::string_view(c.conf).find("large_segment_size_mb") != std::string_view::npos) {
    minor = std::max(minor, 11U);
  }
  SCOPED_TRACE(std::string(c.conf) + " torch 2." + std::to_string(minor) + " seed " +
               std::to_string(seed));
  const auto settings = AllocatorSettings::parse(c.conf, {2, minor});
  ASSERT_TRUE(settings) << settings.error().message;
  const AllocatorLimits limits{c.allowed, c.capacity, 600 * kMib};
  PlainAddresses fast_addresses;
  PlainAddresses slow_addresses;
  CachingAllocator fast(*settings, limits, fast_addresses);
  ReferenceAllocator slow(*settings, limits, slow_addresses);
  std::mt19937_64 rng(seed);
  std::vector<uint32_t> used;
  std::vector<uint32_t> waiting;
  const auto take = [&](std::vector<uint32_t>& from) {
    const size_t at = rng() % from.size();
    const uint32_t id = from[at];
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    return id;
  };
  for (int step = 0; step < steps; ++step) {
    const uint64_t dice = rng() % 1000;
    const auto id = static_cast<uint32_t>(step);
    if (dice < 500 || used.empty()) {
      const uint64_t size = random_size(rng, c.largest);
      const uint64_t stream = rng() % 4 == 0 ? 77 : 5;
      const uint32_t pool = rng() % 10 == 0 ? 3 : 0;
      const bool served = slow.allocate(id, size, stream, pool);
      ASSERT_EQ(fast.allocate(id, size, stream, pool), served);
      if (served) used.push_back(id);
      ASSERT_EQ(fast.address_of(id), slow.address_of(id));
    } else if (dice < 900) {
      const uint32_t gone = take(used);
      fast.complete(gone);
      slow.complete(gone);
    } else if (dice < 950) {
      waiting.push_back(take(used));
      fast.release(waiting.back());
      slow.release(waiting.back());
    } else if (dice < 990 && !waiting.empty()) {
      const uint32_t gone = take(waiting);
      fast.complete(gone);
      slow.complete(gone);
    } else if (dice >= 996) {
      if (dice == 999) {
        fast.retire_pool(3);
        slow.retire_pool(3);
      }
      fast.empty_cache();
      slow.empty_cache();
    }
    ASSERT_EQ(fast.totals(), slow.totals()) << "step " << step;
    ASSERT_EQ(fast.counts().driver_allocations, slow.counts.driver_allocations);
    ASSERT_EQ(fast.counts().driver_frees, slow.counts.driver_frees);
    ASSERT_EQ(fast.counts().retries, slow.counts.retries);
    ASSERT_EQ(fast.counts().collections, slow.counts.collections);
    if (step % 50 == 0) check_invariants(fast);
  }
  check_invariants(fast);
}

constexpr Case kCases[] = {
    {"", 0, 0, 60 * kMib},
    {"", 500 * kMib, 0, 60 * kMib},
    {"", 0, 400 * kMib, 60 * kMib},
    {"max_split_size_mb:24", 0, 600 * kMib, 90 * kMib},
    {"max_split_size_mb:24,max_non_split_rounding_mb:40", 700 * kMib, 0, 90 * kMib},
    {"roundup_power2_divisions:8", 0, 0, 60 * kMib},
    {"roundup_power2_divisions:[1:4,8:2,>:1]", 0, 500 * kMib, 60 * kMib},
    {"garbage_collection_threshold:0.5", 600 * kMib, 0, 60 * kMib},
    {"garbage_collection_threshold:0.4,max_split_size_mb:24", 800 * kMib, 0, 60 * kMib},
    {"expandable_segments:True", 0, 0, 60 * kMib},
    {"expandable_segments:True", 0, 300 * kMib, 60 * kMib},
    {"expandable_segments:True", 400 * kMib, 0, 700 * kMib},
    {"expandable_segments:True,garbage_collection_threshold:0.5", 500 * kMib, 0, 60 * kMib},
    {"expandable_segments:True,max_split_size_mb:24,roundup_power2_divisions:4", 0, 350 * kMib,
     60 * kMib},
    {"large_segment_size_mb:12", 0, 500 * kMib, 60 * kMib},
    {"large_segment_size_mb:40,expandable_segments:True", 0, 600 * kMib, 60 * kMib},
    {"throw_on_cudamalloc_oom:True", 0, 400 * kMib, 60 * kMib},
};

TEST(CachingAllocator, DoesWhatTheReferenceDoes) {
  for (const uint32_t minor : {3U, 11U, 12U, 13U}) {
    for (const Case& c : kCases) {
      for (uint64_t seed = 1; seed <= 2; ++seed) compare(c, minor, seed, 700);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tidemark
