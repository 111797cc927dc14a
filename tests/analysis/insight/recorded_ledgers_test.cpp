// The ledger of every recorded trace at its peaks, its errors and at random instants: what was
// recorded equals a plain sum over all allocations, and the lines add up.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "analysis/insight/card/ledger.h"
#include "analysis/load/trace_model.h"
#include "collector/trace_source.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> recorded_traces() {
  std::vector<std::string> paths;
  for (const char* folder :
       {TIDEMARK_TEST_DATA "/scenarios", TIDEMARK_TEST_DATA "/../../samples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".tmk") paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Recorded {
  int64_t allocated = 0;
  int64_t pending = 0;
  int64_t reserved = 0;
  int64_t torch_by_driver = 0;
  std::map<std::string, int64_t> others;  // owners other than torch

  int64_t sum(bool torch_is_known) const {
    int64_t bytes = torch_is_known ? std::max(allocated, reserved) : 0;
    bytes += std::max<int64_t>(0, torch_by_driver - (torch_is_known ? reserved : 0));
    for (const auto& [owner, held] : others) bytes += held;
    return bytes;
  }
};

// By plain sums; `alive(first, last)` tells whether something of that life counts.
template <typename Alive>
Recorded recorded(const ProcessModel& p, int64_t device, int64_t time_ns, const Alive& alive) {
  Recorded r;
  const AllocationHistory* const h = p.framework_on(device);
  if (h != nullptr) {
    for (const Allocation& a : h->allocations) {
      if (alive(a.birth, a.release)) r.allocated += static_cast<int64_t>(a.block_bytes);
      if (alive(a.release, a.death)) r.pending += static_cast<int64_t>(a.block_bytes);
    }
    for (const SegmentChange& c : h->segment_changes) {
      if (!alive(c.event, UINT32_MAX)) continue;
      r.reserved += (c.grows ? 1 : -1) * static_cast<int64_t>(c.size_bytes);
    }
  }
  for (const DriverAllocation& a : p.driver.allocations) {
    if (a.device != device || !a.on_card() || a.birth_ns > time_ns || a.death_ns <= time_ns) {
      continue;
    }
    std::string owner(p.names.string(a.owner));
    if (owner.empty()) owner = "unknown";
    (owner == "torch" ? r.torch_by_driver : r.others[owner]) += static_cast<int64_t>(a.size_bytes);
    if (h == nullptr || owner != "torch") continue;
    // PyTorch records a segment after the driver has allocated it.
    for (const SegmentChange& change : h->segment_changes) {
      if (change.time_ns <= time_ns) continue;
      const bool its = change.grows && change.address == a.address &&
                       change.size_bytes == a.size_bytes && a.death_ns > change.time_ns;
      if (its) r.reserved += static_cast<int64_t>(a.size_bytes);
      break;
    }
  }
  return r;
}

Recorded recorded_at(const ProcessModel& p, int64_t device, int64_t time_ns) {
  const AllocationHistory* h = p.framework_on(device);
  return recorded(p, device, time_ns, [&](uint32_t first, uint32_t last) {
    return first < h->event_count() && h->time_ns[first] <= time_ns &&
           (last >= h->event_count() || h->time_ns[last] > time_ns);
  });
}

class RecordedLedgers : public ::testing::Test {
 protected:
  void expect_exact(const Ledger& ledger, const Recorded& r, bool torch_is_known) {
    std::map<std::string, int64_t> lines;
    int64_t sum = 0;
    for (const LedgerLine& line : ledger.lines) {
      lines[line.owner] += line.bytes;
      sum += line.bytes;
      EXPECT_GE(line.bytes, 0) << line.owner;
    }
    if (torch_is_known) {
      EXPECT_EQ(lines["torch.allocated"], r.allocated);
      EXPECT_EQ(lines["torch.pending"], r.pending);
      EXPECT_EQ(lines["torch.cached"], std::max<int64_t>(0, r.reserved - r.allocated - r.pending));
      EXPECT_EQ(lines["torch.other"], std::max<int64_t>(0, r.torch_by_driver - r.reserved));
    } else {
      EXPECT_EQ(lines["torch"], r.torch_by_driver);
    }
    for (const auto& [owner, bytes] : r.others) EXPECT_EQ(lines[owner], bytes) << owner;
    if (!ledger.reading) return;
    ++with_reading_;
    EXPECT_EQ(sum, static_cast<int64_t>(ledger.device_used_bytes));
    EXPECT_EQ(ledger.lines.back().owner, "unexplained");
  }

  // A ledger at the time of a reading that can be used is what this reading said.
  void expect_agreement(const LedgerSource& source, const Ledger& ledger) {
    if (!ledger.reading) return;
    const Ledger there = source.at(ledger.reading->time_ns);
    ASSERT_TRUE(there.reading);
    if (there.reading->time_ns != ledger.reading->time_ns) return;
    ++agreeing_;
    EXPECT_EQ(there.device_used_bytes, ledger.reading->used_bytes);
  }

  void check(const ProcessModel& p, int64_t device, int64_t start_ns, int64_t end_ns) {
    const LedgerSource source(p, device);
    if (const AllocationHistory* h = p.framework_on(device); h != nullptr) {
      std::vector<uint32_t> events = {h->allocated_peak.event, h->reserved_peak.event};
      for (const FailedAllocation& f : h->failures) events.push_back(f.event);
      for (const uint32_t event : events) {
        const MemoryTotals totals = h->totals_after(event);
        const int64_t time_ns = h->time_ns[event];
        const Ledger ledger = source.at(time_ns, &totals);
        expect_exact(
            ledger,
            recorded(p, device, time_ns,
                     [&](uint32_t first, uint32_t last) { return first <= event && last > event; }),
            true);
        expect_agreement(source, ledger);
      }
      EXPECT_EQ(source.at(h->allocated_peak.time_ns).time_ns, h->allocated_peak.time_ns);
    }
    for (int i = 0; i < 50; ++i) {
      const int64_t time_ns =
          start_ns + static_cast<int64_t>(random_() % static_cast<uint64_t>(end_ns - start_ns + 1));
      const AllocationHistory* h = p.framework_on(device);
      const bool begun = h != nullptr && h->event_count() != 0 && h->time_ns[0] <= time_ns;
      const Ledger ledger = source.at(time_ns);
      expect_exact(ledger, recorded_at(p, device, time_ns), begun);
      expect_agreement(source, ledger);
    }
  }

  std::mt19937_64 random_{7};
  size_t with_reading_ = 0;
  size_t agreeing_ = 0;
};

TEST_F(RecordedLedgers, AreExactAtEveryInstant) {
  size_t devices = 0;
  for (const std::string& path : recorded_traces()) {
    SCOPED_TRACE(path);
    const Result<TraceSource> source = open_trace(path);
    ASSERT_TRUE(source) << source.error().message;
    const auto model = load_trace(source->readers);
    ASSERT_TRUE(model);
    for (const ProcessModel& p : model->processes) {
      for (const int64_t device : p.device_ordinals()) {
        check(p, device, model->start_ns, model->end_ns);
        ++devices;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(devices, 60U);
  EXPECT_GT(with_reading_, 1000U);
  EXPECT_GT(agreeing_, with_reading_ / 10 * 9);
}

}  // namespace
}  // namespace tidemark
