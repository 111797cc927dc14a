// The stacked timeline, compared with brute force on random and recorded traces at random zooms:
// the bands of every column sum to the curve, every large block has a band of its own, nothing is
// counted twice, and a point of the picture belongs to the block that is there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "analysis/history/history_replay.h"
#include "analysis/stacked/category_curves.h"
#include "analysis/stacked/stacked_columns.h"
#include "proto/base/byte_sink.h"
#include "proto/write/trace_writer.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/story.h"
#include "tests/support/synthetic_trace.h"
#include "tests/support/toy_allocator.h"
#include "viewer/model/stack/stack_index.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {
namespace {

BlockGroups by_stack(const AllocationHistory& memory) {
  BlockGroups groups;
  for (const AllocationKind& kind : memory.allocations.kinds()) {
    groups.of_kind.push_back(kind.stack % 61);
    groups.count = std::max(groups.count, groups.of_kind.back() + 1);
  }
  return groups;
}

// Columns of a random part of the history.
std::vector<uint32_t> random_edges(const AllocationHistory& memory, std::mt19937& random) {
  const uint32_t n = memory.event_count();
  const uint32_t span = std::max<uint32_t>(1, n >> (random() % 12));
  const auto begin = static_cast<uint32_t>(random() % (n - std::min(span, n - 1)));
  const auto columns = static_cast<uint32_t>(1 + random() % 300);
  std::vector<uint32_t> edges;
  for (uint32_t i = 0; i <= columns; ++i) {
    edges.push_back(begin + static_cast<uint32_t>(uint64_t{span} * i / columns));
  }
  return edges;
}

struct Expected {
  std::map<uint32_t, uint64_t> alone;  // by block
  std::map<uint32_t, uint64_t> rest;   // by group
  uint64_t all = 0;
};

// From nothing but the columns of the allocations.
Expected brute(const AllocationHistory& memory, const BlockGroups& groups,
               const StackOptions& options, uint32_t event) {
  Expected out;
  for (uint32_t b = 0; b < memory.allocations.size(); ++b) {
    const Allocation a = memory.allocations[b];
    if (a.birth > event || a.release <= event) continue;
    const uint32_t group = groups.of(memory, b);
    if (group < options.hidden.size() && options.hidden[group]) continue;
    if (options.blocks_alone && a.block_bytes >= options.least_bytes) {
      out.alone[b] = a.block_bytes;
    } else {
      out.rest[group] += a.block_bytes;
    }
    out.all += a.block_bytes;
  }
  return out;
}

// What is summed is above the blocks of its group, or anywhere among those of all; the groups that
// share a band are above everything.
void expect_order(const StackedColumns& stack, uint32_t column, bool by_group) {
  uint32_t group = 0;
  bool rest = false;
  bool others = false;
  for (uint32_t k = stack.starts[column]; k < stack.starts[column + 1]; ++k) {
    const StackBand& band = stack.bands[stack.slice_bands[k]];
    ASSERT_FALSE(others);
    others = band.kind == BandKind::kOthers;
    if (others) continue;
    if (!by_group) continue;
    if (band.group != group) rest = false;
    ASSERT_GE(band.group, group);
    group = band.group;
    rest |= band.kind == BandKind::kRest;
    ASSERT_FALSE(rest && band.kind == BandKind::kBlock) << "group " << band.group;
  }
}

// Two bands do not change places.
void expect_same_order(const StackedColumns& stack, uint32_t a, uint32_t b) {
  const auto shared_of = [&](uint32_t column, uint32_t other) {
    std::vector<uint32_t> bands;
    for (uint32_t k = stack.starts[column]; k < stack.starts[column + 1]; ++k) {
      const uint32_t band = stack.slice_bands[k];
      if (stack.slice_of(other, band) != StackedColumns::kNothing) bands.push_back(band);
    }
    return bands;
  };
  ASSERT_EQ(shared_of(a, b), shared_of(b, a)) << "columns " << a << " and " << b;
}

// One column.
void expect_column(const AllocationHistory& memory, const StackedColumns& stack, uint32_t column,
                   const Expected& expected, uint64_t least) {
  uint64_t at = stack.base[column];
  ASSERT_EQ(at, 0U);
  std::map<uint32_t, uint64_t> alone;
  std::map<uint32_t, uint64_t> rest;
  uint64_t others = 0;
  for (uint32_t k = stack.starts[column]; k < stack.starts[column + 1]; ++k) {
    const StackBand& band = stack.bands[stack.slice_bands[k]];
    const uint64_t bytes = stack.slice_ends[k] - at;
    ASSERT_GT(bytes, 0U);
    switch (band.kind) {
      case BandKind::kBlock:
        ASSERT_EQ(alone.count(band.block), 0U);
        alone[band.block] = bytes;
        ASSERT_LE(band.first_column, column);
        ASSERT_GE(band.last_column, column);
        break;
      case BandKind::kRest:
        rest[band.group] += bytes;
        break;
      case BandKind::kOthers:
        others += bytes;
        break;
      case BandKind::kFree:
      case BandKind::kPending:
        FAIL() << "a band of the wrong kind";
    }
    // Any point of it.
    ASSERT_EQ(stack.slice_at(column, at), k);
    ASSERT_EQ(stack.slice_at(column, stack.slice_ends[k] - 1), k);
    ASSERT_EQ(stack.slice_of(column, stack.slice_bands[k]), k);
    ASSERT_EQ(stack.begin_of(column, k), at);
    at = stack.slice_ends[k];
  }
  ASSERT_EQ(at, expected.all);
  ASSERT_EQ(stack.slice_at(column, at), StackedColumns::kNothing);
  ASSERT_EQ(alone, expected.alone) << "column " << column << ", " << memory.event_count();
  uint64_t missing = 0;
  for (const auto& [group, bytes] : expected.rest) {
    const auto found = rest.find(group);
    if (found != rest.end()) {
      ASSERT_EQ(found->second, bytes) << "group " << group;
      rest.erase(found);
    } else {
      missing += bytes;
      ASSERT_LT(bytes, least) << "group " << group;
    }
  }
  ASSERT_TRUE(rest.empty());
  ASSERT_EQ(missing, others);
}

void expect_samples(const AllocationHistory& memory, const ColumnSamples& samples, Curve curve) {
  for (uint32_t c = 0; c < samples.count(); ++c) {
    const auto value = [&](uint32_t event) {
      const MemoryTotals t = memory.totals_after(event);
      return curve == Curve::kAllocated ? t.allocated : t.reserved;
    };
    uint64_t most = 0;
    const uint32_t first = samples.edges[c] == 0 ? 0 : samples.edges[c] - 1;
    for (uint32_t e = first; e < samples.edges[c + 1]; ++e) most = std::max(most, value(e));
    if (samples.edges[c + 1] == 0) {
      ASSERT_EQ(samples.events[c], kNoSample);
      continue;
    }
    ASSERT_EQ(samples.bytes[c], most);
    ASSERT_EQ(value(samples.events[c]), most);
    ASSERT_GE(samples.events[c], first);
    ASSERT_TRUE(samples.events[c] < samples.edges[c + 1] || samples.events[c] == first);
  }
}

void check(const AllocationHistory& memory, uint32_t seed, int rounds) {
  ASSERT_GT(memory.event_count(), 1U);
  std::mt19937 random(seed);
  const LifeTree lives(memory);
  const std::vector<BlockGroups> ways = {category_groups(), by_stack(memory), one_group(memory)};
  std::vector<GroupTotals> totals;
  for (const BlockGroups& groups : ways) totals.emplace_back(memory, groups);
  for (int round = 0; round < rounds; ++round) {
    const size_t way = random() % ways.size();
    StackOptions options;
    options.least_bytes = std::max<uint64_t>(1, memory.allocated_peak.bytes >> (random() % 18));
    options.by_group = random() % 2 == 0;
    options.blocks_alone = random() % 5 != 0;
    options.order = random() % 2 == 0 ? BandOrder::kBirth : BandOrder::kLife;
    if (random() % 3 == 0) {
      options.hidden.resize(ways[way].count);
      for (uint32_t g = 0; g < ways[way].count; ++g) options.hidden[g] = random() % 2 == 0;
    }
    ColumnSamples samples =
        highest_in_columns(memory, Curve::kAllocated, random_edges(memory, random));
    ASSERT_NO_FATAL_FAILURE(expect_samples(memory, samples, Curve::kAllocated));
    const StackedColumns stack =
        stack_columns(memory, lives, ways[way], totals[way], std::move(samples), options);
    std::set<uint32_t> checked;
    for (int k = 0; k < 8; ++k) checked.insert(static_cast<uint32_t>(random() % stack.count()));
    std::set<uint32_t> drawn;
    for (const StackBand& band : stack.bands) {
      if (band.kind == BandKind::kBlock) drawn.insert(band.block);
    }
    for (const uint32_t c : checked) {
      const uint32_t event = stack.samples.events[c];
      if (event == kNoSample) continue;
      const Expected expected = brute(memory, ways[way], options, event);
      if (options.hidden.empty()) {
        ASSERT_EQ(expected.all, stack.samples.bytes[c]);
      }
      ASSERT_NO_FATAL_FAILURE(expect_column(memory, stack, c, expected, options.least_bytes));
      ASSERT_NO_FATAL_FAILURE(expect_order(stack, c, options.by_group));
      ASSERT_NO_FATAL_FAILURE(expect_same_order(stack, *checked.begin(), c));
      StackOptions all;
      all.blocks_alone = false;
      for (const auto& [group, bytes] : brute(memory, ways[way], all, event).rest) {
        ASSERT_GE(stack.group_highest[group], bytes) << "group " << group;
      }
      // Every large block that lives through a whole column, whatever its instant.
      for (uint32_t b = 0; b < memory.allocations.size() && options.blocks_alone; ++b) {
        const Allocation a = memory.allocations[b];
        const uint32_t group = ways[way].of(memory, b);
        const bool hidden = group < options.hidden.size() && options.hidden[group];
        if (a.birth < stack.samples.edges[c] && a.release >= stack.samples.edges[c + 1] &&
            a.block_bytes >= options.least_bytes && !hidden) {
          ASSERT_EQ(drawn.count(b), 1U);
        }
      }
    }
  }
}

TEST(Stack, OfRandomTracesEqualsBruteForce) {
  for (const uint32_t seed : {3U, 4U}) {
    ToyAllocator toy(AllocatorRules(), seed);
    while (toy.events.size() < 4'000) toy.random_step();
    HistoryReplay replay(0, AllocatorRules());
    for (const FrameworkEvent& event : toy.events) replay.apply(event);
    const AllocationHistory memory = std::move(replay).finish();
    ASSERT_NO_FATAL_FAILURE(check(memory, seed, 40));
  }
  SyntheticOptions options;
  options.events = 30'000;
  options.spike_bytes = uint64_t{1} << 30;
  const TraceModel trace = synthetic_model(options);
  ASSERT_NO_FATAL_FAILURE(check(trace.processes[0].framework[0], 5, 40));
}

TEST(Stack, OfRecordedTracesEqualsBruteForce) {
  for (const char* path :
       {"/torch/streams.tier2.tmk", "/torch/expandable.tier1.tmk", "/torch/graphs.tier1.tmk",
        "/torch/out_of_memory.tier1.tmk", "/ranks/guilty4", "/leak", "/pool_holes"}) {
    const auto model = load_model(std::string(TIDEMARK_TRACES) + path);
    ASSERT_TRUE(model) << path;
    for (const Lane& lane : (*model)->lanes) {
      if (lane.memory->event_count() < 2) continue;
      ASSERT_NO_FATAL_FAILURE(check(*lane.memory, 6, 12)) << path << " " << lane.name;
    }
  }
}

// Every segment with its free part; all together are what is reserved.
void check_segments(const AllocationHistory& memory, uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  const LifeTree lives(memory);
  const BlockGroups groups = segment_groups(memory);
  const GroupTotals totals(memory, groups);
  for (int round = 0; round < rounds; ++round) {
    const StackedColumns stack = stack_columns(
        memory, lives, groups, totals,
        highest_in_columns(memory, Curve::kReserved, random_edges(memory, random)), StackOptions());
    for (int k = 0; k < 6; ++k) {
      const auto c = static_cast<uint32_t>(random() % stack.count());
      const uint32_t event = stack.samples.events[c];
      if (event == kNoSample) continue;
      const MemoryState state = state_after(memory, event);
      uint64_t free_bytes = 0;
      uint64_t at = 0;
      std::set<uint32_t> segments;
      for (uint32_t s = stack.starts[c]; s < stack.starts[c + 1]; ++s) {
        const StackBand& band = stack.bands[stack.slice_bands[s]];
        if (band.kind == BandKind::kFree) free_bytes += stack.slice_ends[s] - at;
        segments.insert(band.group);
        at = stack.slice_ends[s];
      }
      ASSERT_EQ(at, state.totals.reserved);
      uint64_t holes = 0;
      for (const Hole& hole : state.holes) holes += hole.size_bytes;
      ASSERT_EQ(free_bytes, holes);
      ASSERT_LE(segments.size(), state.segments.size());
      if (std::none_of(state.segments.begin(), state.segments.end(),
                       [](const SegmentRange& s) { return s.expandable; })) {
        ASSERT_EQ(segments.size(), state.segments.size());
      }
    }
  }
}

TEST(Stack, OfSegmentsSumsToWhatIsReserved) {
  ToyAllocator toy(AllocatorRules(), 8);
  while (toy.events.size() < 4'000) toy.random_step();
  HistoryReplay replay(0, AllocatorRules());
  for (const FrameworkEvent& event : toy.events) replay.apply(event);
  const AllocationHistory memory = std::move(replay).finish();
  ASSERT_NO_FATAL_FAILURE(check_segments(memory, 9, 30));
  for (const char* path : {"/torch/streams.tier2.tmk", "/torch/expandable.tier1.tmk", "/pool_holes",
                           "/torch/out_of_memory.tier1.tmk"}) {
    const auto model = load_model(std::string(TIDEMARK_TRACES) + path);
    ASSERT_TRUE(model) << path;
    ASSERT_NO_FATAL_FAILURE(check_segments(*(*model)->lanes[0].memory, 10, 10)) << path;
  }
}

// What a report or an export shows of the categories over time.
TEST(Stack, CategoriesOverTimeSumToWhatIsAllocated) {
  for (const char* path : {"/torch/training.tier2.tmk", "/ranks/guilty4"}) {
    const auto model = load_model(std::string(TIDEMARK_TRACES) + path);
    ASSERT_TRUE(model) << path;
    const TraceModel& trace = (*model)->trace;
    const auto ground = lay_groundwork(trace, compare_ranks(trace));
    const auto curves = category_curves(*ground, trace.start_ns, trace.end_ns, 300);
    ASSERT_EQ(curves.size(), (*model)->lanes.size());
    const auto again = category_curves(trace, trace.start_ns, trace.end_ns, 300);
    ASSERT_EQ(again.size(), curves.size());
    for (size_t i = 0; i < curves.size(); ++i) {
      const AllocationHistory& memory = *curves[i].process->framework_on(curves[i].device);
      const MinMaxPyramid pyramid(memory);
      uint64_t most = 0;
      int64_t last_ns = INT64_MIN;
      for (size_t k = 0; k < curves[i].columns.size(); ++k) {
        const CategoryCurve::Column& c = curves[i].columns[k];
        EXPECT_LT(c.begin_ns, c.end_ns);
        EXPECT_GE(c.begin_ns, last_ns);
        EXPECT_GE(c.time_ns, c.begin_ns);
        EXPECT_LE(c.time_ns, c.end_ns);
        last_ns = c.end_ns;
        uint64_t sum = 0;
        for (const uint64_t bytes : c.bytes) sum += bytes;
        most = std::max(most, sum);
        EXPECT_EQ(c.bytes, again[i].columns[k].bytes) << "the same from the blocks themselves";
      }
      EXPECT_EQ(most, memory.allocated_peak.bytes) << "no peak is missed";
      const auto& at_end = curves[i].columns.back().bytes;
      EXPECT_EQ(std::accumulate(at_end.begin(), at_end.end(), uint64_t{0}),
                memory.totals_after(memory.event_count() - 1).allocated);
    }
  }
}

// Oldest at the bottom, and nothing changes its place in the order while it lives.
TEST(Stack, OrderIsThatOfBirth) {
  SyntheticOptions synthetic;
  synthetic.events = 8'000;
  const TraceModel trace = synthetic_model(synthetic);
  const AllocationHistory& memory = trace.processes[0].framework[0];
  const LifeTree lives(memory);
  const BlockGroups groups = one_group(memory);
  const GroupTotals totals(memory, groups);
  std::mt19937 random(12);
  StackOptions options;
  options.by_group = false;
  for (const BandOrder order : {BandOrder::kBirth, BandOrder::kLife}) {
    options.order = order;
    options.life = LifeUnit::kEvents;
    const StackedColumns stack = stack_columns(
        memory, lives, groups, totals,
        highest_in_columns(memory, Curve::kAllocated, random_edges(memory, random)), options);
    for (uint32_t c = 0; c < stack.count(); ++c) {
      for (uint32_t k = stack.starts[c] + 1; k < stack.starts[c + 1]; ++k) {
        const Allocation below = memory.allocations[stack.bands[stack.slice_bands[k - 1]].block];
        const Allocation above = memory.allocations[stack.bands[stack.slice_bands[k]].block];
        const auto life = [](const Allocation& a) { return uint64_t{a.release} - a.birth; };
        if (order == BandOrder::kBirth) {
          ASSERT_LT(below.birth, above.birth);
        } else if (above.release != kNever) {
          ASSERT_GE(life(below), life(above));
        }
      }
    }
  }
}

// Small blocks that stay and add up from the first step to the last are above the large blocks that
// were there before them and below those that came later; those that come and go are above all.
// What stays is flat.
TEST(Stack, SmallBlocksAreWhereALargeOneWouldBe) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(64 * kMiB, s.user(1));
    for (int step = 0; step < 20; ++step) {
      if (step == 16) s.alloc(65 * kMiB, s.user(4));
      std::vector<uint64_t> passing;
      for (int i = 0; i < 8; ++i) passing.push_back(s.alloc(2 * kMiB, s.user(3)));
      s.alloc(2 * kMiB, s.user(2));
      for (const uint64_t block : passing) s.free(block);
    }
  });
  const AllocationHistory& memory = trace.model().processes[0].framework[0];
  const BlockGroups groups = by_stack(memory);
  StackOptions options;
  options.by_group = false;
  options.least_bytes = 32 * kMiB;
  std::vector<uint32_t> edges(memory.event_count() + 1);
  std::iota(edges.begin(), edges.end(), 0U);
  const StackedColumns stack =
      stack_columns(memory, LifeTree(memory), groups, GroupTotals(memory, groups),
                    highest_in_columns(memory, Curve::kAllocated, edges), options);
  const uint32_t column = stack.count() - 4;
  std::vector<uint32_t> stacks;  // from the bottom
  for (uint32_t k = stack.starts[column]; k < stack.starts[column + 1]; ++k) {
    const StackBand& band = stack.bands[stack.slice_bands[k]];
    for (uint32_t b = 0; b < memory.allocations.size(); ++b) {
      if (groups.of(memory, b) != band.group) continue;
      stacks.push_back(memory.allocations.stack(b));
      break;
    }
  }
  const auto of = [&](uint64_t bytes, size_t nth) {
    for (const Allocation& a : memory.allocations) {
      if (a.block_bytes == bytes && nth-- == 0) return a.stack;
    }
    return 0U;
  };
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  EXPECT_EQ(stacks, (std::vector<uint32_t>{of(64 * kMiB, 0), of(2 * kMiB, 8), of(65 * kMiB, 0),
                                           of(2 * kMiB, 8), of(2 * kMiB, 0)}));
  for (uint32_t b = 0; b < stack.bands.size(); ++b) {
    if (stack.bands[b].kind != BandKind::kBlock) continue;
    std::set<uint64_t> heights;
    for (uint32_t c = stack.bands[b].first_column + stack.count() / 32; c < stack.count(); ++c) {
      heights.insert(stack.begin_of(c, stack.slice_of(c, b)));
    }
    EXPECT_EQ(heights.size(), 1U);
  }
}

// Two modules that allocate in the same line, of which one has a parameter, and a block of none.
TEST(Stack, BandsAreNnModules) {
  const test::ScratchDirectory folder;
  const std::string path = folder / "modules.tmk";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  FdSink sink(fd);
  TraceWriter writer(sink);
  uint32_t id = 0;
  for (const char* text : {"forward", "layers.0", "layers.1", "Linear"}) {
    writer.append_string(++id, text);
  }
  Process process{};
  process.rank = -1;
  process.source = Source::kCapture;
  writer.append(process);
  Frame frame{};
  frame.id = frame.function = 1;
  frame.kind = FrameKind::kPython;
  writer.append(frame);
  writer.append(NnModule{1, 2, 4, 1});
  writer.append(NnModule{2, 3, 4, 1});
  for (const uint32_t nn_module : {0U, 1U, 2U})
    writer.append(Stack{nn_module + 1, 0, 1, nn_module});
  FrameworkEvent event{};
  event.action = FrameworkAction::kAlloc;
  for (const uint32_t stack : {1U, 2U, 3U, 3U, 1U}) {
    event.time_ns += 1000;
    event.address += 1 << 20;
    event.size_bytes = event.block_bytes = stack << 16;
    event.stack = stack;
    writer.append(event);
  }
  TensorTag tag{};
  tag.time_ns = event.time_ns + 1;
  tag.address = event.address;
  tag.category = Category::kParameter;
  tag.nn_module = 1;
  writer.append(tag);
  ASSERT_TRUE(writer.finish());
  ::close(fd);

  const auto model = load_model(path);
  ASSERT_TRUE(model);
  const Lane& lane = (*model)->lanes.at(0);
  ASSERT_TRUE(has_stack_way(**model, lane, StackBy::kModule));
  StackIndexes indexes;
  const auto index = indexes.get(**model, 0, StackBy::kModule, false);
  std::vector<std::string> found;
  for (uint32_t b = 0; b < lane.memory->allocations.size(); ++b) {
    found.push_back(index->names.at(index->groups.of(*lane.memory, b)));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"no module", "layers.0", "layers.1", "layers.1",
                                             "layers.0"}));
  EXPECT_EQ(index->names.front(), "no module") << "the one that lives longest first";
  EXPECT_EQ(index->colours.size(), index->names.size());
}

}  // namespace
}  // namespace tidemark::view
