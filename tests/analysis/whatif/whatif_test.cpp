#include "analysis/whatif/whatif.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "analysis/history/history_replay.h"
#include "analysis/history/memory_state.h"
#include "analysis/whatif/history_window.h"
#include "analysis/whatif/whatif_report.h"
#include "tests/support/reference_allocator.h"

namespace tidemark {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

// Writes the events that torch would write for the actions of the model allocator.
class Recorder : public SegmentAddresses {
 public:
  explicit Recorder(const AllocatorSettings& settings, const AllocatorLimits& limits)
      : allocator_(settings, limits, *this), replay_(0, settings.rules) {}

  uint64_t allocate(uint64_t bytes) override {
    const uint64_t address = addresses_.allocate(bytes);
    write(FrameworkAction::kSegmentAlloc, address, bytes);
    return address;
  }
  void free(uint64_t address, uint64_t bytes) override {
    addresses_.free(address, bytes);
    write(FrameworkAction::kSegmentFree, address, bytes);
  }
  uint64_t reserve(uint64_t bytes) override { return addresses_.reserve(bytes); }

  void random_run(uint64_t seed, int steps, uint64_t largest, bool empties) {
    std::mt19937_64 rng(seed);
    std::vector<std::pair<uint32_t, uint64_t>> used;
    for (int step = 0; step < steps; ++step) {
      const uint64_t dice = rng() % 1000;
      if (dice < 520 || used.empty()) {
        const uint64_t size = rng() % 3 == 0 ? (1 + rng() % 24) * kMib : 1 + rng() % largest;
        const auto id = static_cast<uint32_t>(step);
        if (!allocator_.allocate(id, size, 0, 0)) {
          failures += 1;
          write(FrameworkAction::kOutOfMemory, uint64_t{1} << 40, size);
          continue;
        }
        used.emplace_back(id, size);
        write(FrameworkAction::kAlloc, allocator_.address_of(id), size);
      } else if (dice < 996 || !empties) {
        const size_t at = rng() % used.size();
        const uint64_t address = allocator_.address_of(used[at].first);
        write(FrameworkAction::kFreeRequested, address, used[at].second);
        write(FrameworkAction::kFreeCompleted, address, used[at].second);
        allocator_.complete(used[at].first);
        used.erase(used.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        allocator_.empty_cache();
      }
      reserved_peak = std::max(reserved_peak, allocator_.totals().reserved);
    }
  }

  void allocate_block(uint32_t id, uint64_t bytes) {
    if (!allocator_.allocate(id, bytes, 0, 0)) {
      write(FrameworkAction::kOutOfMemory, uint64_t{1} << 40, bytes);
      return;
    }
    write(FrameworkAction::kAlloc, allocator_.address_of(id), bytes);
  }

  void free_block(uint32_t id, uint64_t bytes) {
    const uint64_t address = allocator_.address_of(id);
    write(FrameworkAction::kFreeRequested, address, bytes);
    write(FrameworkAction::kFreeCompleted, address, bytes);
    allocator_.complete(id);
  }

  ProcessModel process() {
    ProcessModel p;
    p.framework.push_back(std::move(replay_).finish());
    return p;
  }

  uint64_t reserved_peak = 0;
  uint64_t failures = 0;

 private:
  void write(FrameworkAction action, uint64_t address, uint64_t bytes) {
    FrameworkEvent event{};
    event.action = action;
    event.address = address;
    event.size_bytes = bytes;
    event.time_ns = ++time_;
    replay_.apply(event);
  }

  DriverAddresses addresses_;  // descending: the age of segments differs from address order
  ReferenceAllocator allocator_;
  HistoryReplay replay_;
  int64_t time_ = 0;
};

struct Case {
  const char* conf;
  uint64_t allowed;
  bool empties;
};

TEST(WhatIf, FindsTheVersionAndTheLimitOfARecording) {
  for (const Case& c : {Case{"", 0, true}, Case{"", 300 * kMib, false},
                        Case{"max_split_size_mb:24", 500 * kMib, false},
                        Case{"garbage_collection_threshold:0.6", 700 * kMib, false},
                        Case{"roundup_power2_divisions:4", 0, true}}) {
    for (const uint32_t minor : {11U, 12U, 13U}) {
      SCOPED_TRACE(std::string(c.conf) + " torch 2." + std::to_string(minor));
      const auto settings = AllocatorSettings::parse(c.conf, {2, minor});
      ASSERT_TRUE(settings);
      Recorder recorder(*settings, {c.allowed, 0, uint64_t{1} << 40});
      recorder.random_run(minor, 3000, 5 * kMib, c.empties);
      const ProcessModel process = recorder.process();
      WhatIfOptions options;
      options.recorded_conf = c.conf;
      const auto whatif = WhatIf::prepare(process, 0, options);
      ASSERT_TRUE(whatif) << whatif.error().message;
      EXPECT_TRUE(whatif->own().exact())
          << whatif->own().misplaced_blocks << " of " << whatif->own().blocks << " misplaced, "
          << whatif->own().reserved_mismatches << " reserved, limit " << whatif->recorded_allowed();
      EXPECT_EQ(whatif->own().version.minor, minor);
      EXPECT_EQ(whatif->own().prediction.reserved_peak, recorder.reserved_peak);
    }
  }
}

// A failed request tells only a range for the limit of a memory fraction.
TEST(WhatIf, WhatFitsWithinTheRangeOfTheLimitIsNotSaidToFail) {
  const uint64_t allowed = 819 * kMib;
  Recorder recorder({}, AllocatorLimits::of(allowed, 0, 0));
  for (uint32_t i = 0; i < 117; ++i) recorder.allocate_block(i, 6 * kMib);
  recorder.allocate_block(117, 95 * kMib);
  const ProcessModel process = recorder.process();
  const auto whatif = WhatIf::prepare(process, 0);
  ASSERT_TRUE(whatif);
  const auto expandable = AllocatorSettings::parse("expandable_segments:True");
  const Prediction p = whatif->predict(*expandable);
  EXPECT_LE(p.limit_bytes, allowed);
  EXPECT_GE(p.most_limit_bytes, allowed);
  EXPECT_TRUE(p.out_of_memory);
  EXPECT_EQ(p.fits_below, 800 * kMib);  // 117 * 6 + 95 MiB in pages of 20 MiB
  const Prediction same = whatif->predict(AllocatorSettings{});
  EXPECT_TRUE(same.out_of_memory);
  EXPECT_EQ(same.fits_below, 0U);
}

TEST(WhatIf, UsesTheRecordedVersion) {
  Recorder recorder({}, {});
  recorder.allocate_block(0, 6 * kMib);
  ProcessModel process = recorder.process();
  process.settings.push_back({process.names.add_string("torch"),
                              process.names.add_string("2.6.0+cu124"), SettingScope::kTool});
  const auto whatif = WhatIf::prepare(process, 0);
  ASSERT_TRUE(whatif);
  EXPECT_EQ(whatif->own().version.text(), "2.6");
}

TEST(WhatIf, SaysWhatTheRecordingLacks) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {});
  const ProcessModel nothing = recorder.process();
  EXPECT_FALSE(WhatIf::prepare(nothing, 0));
  EXPECT_FALSE(WhatIf::prepare(nothing, 3));

  HistoryReplay replay(0, settings->rules);
  for (uint64_t i = 0; i < 100; ++i) {
    FrameworkEvent event{};
    event.action = FrameworkAction::kAlloc;
    event.address = (i + 1) * kMib;
    event.block_bytes = 512;  // the requested size is not known
    event.time_ns = static_cast<int64_t>(i);
    replay.apply(event);
  }
  ProcessModel blocks_only;
  blocks_only.framework.push_back(std::move(replay).finish());
  const auto whatif = WhatIf::prepare(blocks_only, 0);
  ASSERT_FALSE(whatif);
  EXPECT_NE(whatif.error().message.find("no requested sizes"), std::string::npos);
}

// A snapshot has no readings of the card, and the process holds more of it than its tensors.
TEST(WhatIf, ACardThatIsGivenHoldsTheContextToo) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {});
  recorder.random_run(5, 2000, 5 * kMib, false);
  WhatIfOptions options;
  options.card_bytes = 740 * kMib;
  const auto whatif = WhatIf::prepare(recorder.process(), 0, options);
  ASSERT_TRUE(whatif);
  EXPECT_EQ(whatif->predict(*settings).limit_bytes, 100 * kMib);
  ASSERT_FALSE(whatif->notes().empty());
  EXPECT_NE(whatif->notes()[0].find("assumed to take 640.0 MiB"), std::string::npos);
}

// A recording in which the allocator emptied its cache has a limit of its own, at which it did.
TEST(WhatIf, ACardThatIsGivenCountsAlsoAfterARetry) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(0, 652 * kMib, 0));
  for (uint32_t i = 0; i < 40; ++i) recorder.allocate_block(i, 11 * kMib);
  for (uint32_t i = 40; i < 43; ++i) recorder.allocate_block(i, 40 * kMib);
  for (uint32_t i = 0; i < 40; i += 2) recorder.free_block(i, 11 * kMib);
  recorder.allocate_block(43, 90 * kMib);  // only once the cache is emptied
  WhatIfOptions options;
  options.card_bytes = 940 * kMib;
  const auto whatif = WhatIf::prepare(recorder.process(), 0, options);
  ASSERT_TRUE(whatif);
  EXPECT_EQ(whatif->own().prediction.retries, 1U);
  EXPECT_EQ(whatif->predict(*settings).limit_bytes, 300 * kMib);
  EXPECT_TRUE(whatif->predict(*settings).out_of_memory);
}

// Only the emptied cache tells the limit: the highest that explains it is assumed, and said to be.
TEST(WhatIf, SaysThatTheLimitIsGuessedFromEmptiedCaches) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(0, 652 * kMib, 0));
  for (uint32_t i = 0; i < 40; ++i) recorder.allocate_block(i, 11 * kMib);
  for (uint32_t i = 40; i < 43; ++i) recorder.allocate_block(i, 40 * kMib);
  for (uint32_t i = 0; i < 40; i += 2) recorder.free_block(i, 11 * kMib);
  recorder.allocate_block(43, 90 * kMib);  // only once the cache is emptied
  TraceModel trace;
  trace.processes.push_back(recorder.process());
  const auto whatif = WhatIf::prepare(trace.processes[0], 0);
  ASSERT_TRUE(whatif);
  const uint64_t highest = whatif->highest_guessed_limit();
  EXPECT_GT(highest, whatif->recorded_reserved_peak());
  EXPECT_EQ(whatif->predict(*settings).limit_bytes, highest);
  const auto said = [&](bool all, uint64_t card_bytes) {
    WhatIfQuestion question;
    question.confs = {""};
    question.all = all;
    question.options.card_bytes = card_bytes;
    const auto report = make_whatif_report(trace, question);
    EXPECT_TRUE(report) << report.error().message;
    if (!report) return false;
    const WhatIfDevice& d = report->devices.at(0);
    return std::any_of(d.notes.begin(), d.notes.end(), [](const std::string& note) {
      return note.starts_with("the limit is between ");
    });
  };
  EXPECT_FALSE(said(false, 0)) << "it reserves no more than recorded";
  EXPECT_TRUE(said(true, 0)) << "others do";
  EXPECT_FALSE(said(true, 940 * kMib)) << "the card is the limit";
}

// The second failure finds the cache empty: PyTorch counts a retry, but nothing was returned.
TEST(WhatIf, ACacheIsEmptiedOnlyIfItHoldsSomething) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(0, 100 * kMib, 0));
  recorder.allocate_block(0, 40 * kMib);
  recorder.allocate_block(1, 30 * kMib);
  recorder.free_block(1, 30 * kMib);
  recorder.allocate_block(2, 90 * kMib);
  recorder.allocate_block(3, 90 * kMib);
  const auto whatif = WhatIf::prepare(recorder.process(), 0);
  ASSERT_TRUE(whatif);
  EXPECT_EQ(whatif->own().prediction.retries, 2U);
  EXPECT_EQ(whatif->own().prediction.emptied, 1U);
  EXPECT_EQ(whatif->predict(*settings).emptied, 1U);
}

TEST(WhatIf, EndsAtTheRequestThatDoesNotFit) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {});
  recorder.random_run(5, 2000, 5 * kMib, false);
  const ProcessModel process = recorder.process();
  WhatIfOptions options;
  options.card_bytes = 100 * kMib;
  const auto whatif = WhatIf::prepare(process, 0, options);
  ASSERT_TRUE(whatif);
  const Prediction p = whatif->predict(*settings);
  EXPECT_TRUE(p.out_of_memory);
  EXPECT_GT(p.failed_bytes, 0U);
  EXPECT_LE(p.reserved_peak, 100 * kMib);
  EXPECT_EQ(p.limit_bytes, 100 * kMib);
  options.card_bytes = 100'000 * kMib;
  const auto roomy = WhatIf::prepare(process, 0, options);
  ASSERT_TRUE(roomy);
  EXPECT_FALSE(roomy->predict(*settings).out_of_memory);
  const auto one = predict(process, 0, *settings);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->allocated_peak, roomy->recorded_allocated_peak());
}

// A retry only tells that the request did not fit at first. The card tells more; a reading of it
// that was taken between the driver's allocation and torch's record of it has the segment already.
TEST(WhatIf, TheLimitIsNeverMoreThanTheCardCanGive) {
  constexpr uint64_t kContext = 448 * kMib;
  constexpr uint64_t kCard = 1100 * kMib;
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(0, kCard - kContext, kCard));
  for (uint32_t i = 0; i < 40; ++i) recorder.allocate_block(i, 11 * kMib);
  for (uint32_t i = 40; i < 43; ++i) recorder.allocate_block(i, 40 * kMib);
  for (uint32_t i = 0; i < 40; i += 2) recorder.free_block(i, 11 * kMib);
  recorder.allocate_block(43, 90 * kMib);  // only once the cache is emptied
  ProcessModel process = recorder.process();
  process.devices.push_back({});
  process.devices.back().total_bytes = kCard;
  DriverAllocation first;
  first.size_bytes = 12 * kMib;
  first.birth_ns = -10;
  first.owner = process.names.add_string("torch");
  first.kind = MemoryKind::kDevice;
  process.driver.allocations.push_back(first);
  process.counters.push_back({-5, kContext + 12 * kMib, 0, 0, CounterKind::kDeviceUsed});
  const auto whatif = WhatIf::prepare(process, 0);
  ASSERT_TRUE(whatif);
  EXPECT_TRUE(whatif->own().exact());
  EXPECT_EQ(whatif->own().prediction.retries, 1U);
  EXPECT_EQ(whatif->other_bytes(), kContext);
  EXPECT_EQ(whatif->own().prediction.limit_bytes, kCard - kContext);
  EXPECT_EQ(whatif->predict(*settings).limit_bytes, kCard - kContext);
}

// What another library held, and gave back before torch needed the card, leaves it room.
TEST(WhatIf, OthersCountWhileTorchHasMuch) {
  constexpr uint64_t kContext = 448 * kMib;
  constexpr uint64_t kCard = 4096 * kMib;
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(0, kCard - kContext, kCard));
  for (uint32_t i = 0; i < 20; ++i) recorder.allocate_block(i, 60 * kMib);
  ProcessModel process = recorder.process();
  process.devices.push_back({});
  process.devices.back().total_bytes = kCard;
  const AllocationHistory& model = process.framework[0];
  process.counters.push_back({-20, 3500 * kMib, 0, 0, CounterKind::kDeviceUsed});
  process.counters.push_back({model.time_ns[model.event_count() - 1] + 1,
                              kContext + model.reserved_peak.bytes, 0, 0,
                              CounterKind::kDeviceUsed});
  const auto whatif = WhatIf::prepare(process, 0);
  ASSERT_TRUE(whatif);
  EXPECT_EQ(whatif->other_bytes(), kContext);
  process.counters.pop_back();
  const auto unknown = WhatIf::prepare(process, 0);
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->other_bytes(), kCard - model.reserved_peak.bytes) << "they had room together";
}

// The totals and live blocks of a part equal those of the whole, event by event.
// What a run reserves until it dies says nothing: it comes last, however little that is.
TEST(WhatIf, SettingsUnderWhichTheRunDiesEarlierComeLast) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, AllocatorLimits::of(300 * kMib, 0, 0));
  recorder.random_run(3, 4000, 5 * kMib, false);
  ASSERT_GT(recorder.failures, 0U);
  TraceModel trace;
  trace.processes.push_back(recorder.process());
  WhatIfQuestion question;
  question.all = true;
  const auto report = make_whatif_report(trace, question);
  ASSERT_TRUE(report);
  const std::vector<Prediction>& rows = report->devices[0].predictions;
  EXPECT_TRUE(rows.back().ended_early);
  EXPECT_FALSE(rows.front().ended_early);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.ended_early < b.ended_early;
  }));
  uint64_t least = UINT64_MAX;
  for (const Prediction& p : rows) least = std::min(least, p.reserved_peak);
  EXPECT_GT(rows.front().reserved_peak, least);
}

TEST(WhatIf, RequestsOfAChangedProgram) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {});
  recorder.random_run(7, 2000, 5 * kMib, false);
  const ProcessModel process = recorder.process();
  const auto whatif = WhatIf::prepare(process, 0);
  ASSERT_TRUE(whatif);
  const auto same = whatif->predict([](uint32_t, RequestedBlock&) { return true; });
  EXPECT_EQ(same.reserved_peak, recorder.reserved_peak);
  const auto none = whatif->predict([](uint32_t, RequestedBlock&) { return false; });
  EXPECT_EQ(none.reserved_peak, 0U);
  const auto apart = whatif->predict([](uint32_t allocation, RequestedBlock& request) {
    request.stream = allocation % 4;
    return true;
  });
  EXPECT_GT(apart.reserved_peak, same.reserved_peak);
}

TEST(HistoryWindow, GoesOnLikeTheWhole) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {250 * kMib, 0, uint64_t{1} << 40});
  recorder.random_run(9, 3000, 5 * kMib, true);
  ASSERT_GT(recorder.failures, 0U);
  const ProcessModel process = recorder.process();
  const AllocationHistory& whole = process.framework[0];
  const EventWindow window{whole.event_count() / 3, whole.event_count() * 2 / 3};
  const AllocationHistory part = history_window(whole, settings->rules, window);
  EXPECT_EQ(part.anomalies, 0U);
  ASSERT_GE(part.event_count(), window.count());
  const uint32_t seeds = part.event_count() - window.count();
  for (uint32_t e = window.first; e < window.end; ++e) {
    const MemoryTotals expected = whole.totals_after(e);
    const MemoryTotals found = part.totals_after(seeds + e - window.first);
    ASSERT_EQ(found.allocated, expected.allocated) << e;
    ASSERT_EQ(found.requested, expected.requested) << e;
    ASSERT_EQ(found.active, expected.active) << e;
    ASSERT_EQ(found.reserved, expected.reserved) << e;
  }
  const MemoryState expected = state_after(whole, window.end - 1);
  const MemoryState found = state_after(part, part.event_count() - 1);
  ASSERT_EQ(found.live.size(), expected.live.size());
  for (size_t i = 0; i < found.live.size(); ++i) {
    EXPECT_EQ(part.allocations.address(found.live[i]), whole.allocations.address(expected.live[i]));
  }
  const auto inside = [&](const FailedAllocation& f) {
    return f.event >= window.first && f.event < window.end;
  };
  EXPECT_EQ(part.failures.size(), static_cast<size_t>(std::count_if(whole.failures.begin(),
                                                                    whole.failures.end(), inside)));
  // A part of a part: its own seeds are not events of the program.
  const AllocationHistory again = history_window(part, settings->rules, {0, part.event_count()});
  EXPECT_EQ(again.event_count(), part.event_count());
  EXPECT_EQ(again.seeded_blocks, part.seeded_blocks);
}

TEST(WhatIf, ReplaysOnlyThePartAroundThePeak) {
  const auto settings = AllocatorSettings::parse("");
  Recorder recorder(*settings, {});
  recorder.random_run(11, 6000, 5 * kMib, false);
  const ProcessModel process = recorder.process();
  const AllocationHistory& whole = process.framework[0];
  WhatIfOptions options;
  options.most_events = 3000;
  const EventWindow window = window_around(whole, whole.reserved_peak.event, options.most_events);
  EXPECT_LE(window.count(), options.most_events);
  EXPECT_GE(window.count(), options.most_events / 2);
  EXPECT_LE(window.first, whole.reserved_peak.event);
  EXPECT_GT(window.end, whole.reserved_peak.event);
  const auto part = WhatIf::prepare(process, 0, options);
  ASSERT_TRUE(part);
  EXPECT_TRUE(part->is_part());
  EXPECT_LT(part->replayed_events(), whole.event_count());
  EXPECT_TRUE(part->own().exact()) << part->own().misplaced_blocks << " misplaced, "
                                   << part->own().reserved_mismatches << " reserved";
  EXPECT_EQ(part->own().prediction.reserved_peak, recorder.reserved_peak);
  // A change of the program is told which recorded allocation each request is.
  size_t known = 0;
  part->predict([&](uint32_t allocation, const RequestedBlock& request) {
    if (allocation == kNever) return true;
    ++known;
    EXPECT_EQ(request.bytes, whole.allocations.requested_bytes(allocation));
    return true;
  });
  EXPECT_GT(known, part->replayed_events() / 4);
  options.most_events = whole.event_count();
  const auto all = WhatIf::prepare(process, 0, options);
  ASSERT_TRUE(all);
  EXPECT_FALSE(all->is_part());
  EXPECT_EQ(all->replayed_events(), whole.event_count());
}

}  // namespace
}  // namespace tidemark
