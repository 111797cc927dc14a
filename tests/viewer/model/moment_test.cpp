// The memory at one instant: state index, map, flame tree and tables against simple computations.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "collector/trace_source.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/serving_story.h"
#include "tests/support/story.h"
#include "tests/support/synthetic_trace.h"
#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/tables/line_rows.h"
#include "viewer/model/timeline/event_axis.h"
#include "viewer/model/trace/loader.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {
namespace {

void expect_same_state(const MemoryState& got, const MemoryState& expected) {
  EXPECT_EQ(got.event, expected.event);
  EXPECT_EQ(got.time_ns, expected.time_ns);
  EXPECT_EQ(got.totals, expected.totals);
  EXPECT_EQ(got.live, expected.live);
  ASSERT_EQ(got.segments.size(), expected.segments.size());
  for (size_t i = 0; i < got.segments.size(); ++i) {
    EXPECT_EQ(got.segments[i].address, expected.segments[i].address);
    EXPECT_EQ(got.segments[i].size_bytes, expected.segments[i].size_bytes);
  }
  ASSERT_EQ(got.holes.size(), expected.holes.size());
  for (size_t i = 0; i < got.holes.size(); ++i) {
    EXPECT_EQ(got.holes[i].address, expected.holes[i].address);
    EXPECT_EQ(got.holes[i].size_bytes, expected.holes[i].size_bytes);
  }
}

// Every nn.Module is as wide as what it and those inside it hold.
// Two ways of the interpreter from one line of Python to the next are one branch; what a line
// called stays.
TEST(Flame, HasNoFramesOfTheInterpreterBetweenThoseOfPython) {
  const Trace trace([](Story& s, uint32_t) {
    for (const char* way : {"eval ceval.cpp:1", "call object.cpp:2"}) {
      s.alloc(4 * kMiB, s.stack({"add tensor.cpp:5", "forward model.py:3", way, "main train.py:1",
                                 "start boot.cpp:9"}));
    }
  });
  const ProcessModel& process = trace.model().processes[0];
  const std::vector<uint32_t> blocks = {0, 1};
  for (const FlameOrder order : {FlameOrder::kTopDown, FlameOrder::kBottomUp}) {
    const FlameTree tree = FlameTree::of_blocks(process.framework[0], process.names, blocks, order);
    std::string lines;
    for (const FlameNode& node : tree.nodes) {
      if (node.kind != FlameKind::kFrame) continue;
      EXPECT_EQ(node.bytes, 8 * kMiB);
      lines += process.names.frame_text(node.frame).substr(0, 4) + " ";
    }
    EXPECT_EQ(lines, order == FlameOrder::kTopDown ? "main forw add  " : "add  forw main ");
  }
}

TEST(Flame, ByModule) {
  test::TransformerShape shape;
  shape.layers = 12;
  shape.width = 1024;
  shape.seq = 1024;
  const auto model = layered_model(shape);
  ASSERT_TRUE(model);
  const Lane& lane = model->lanes[0];
  const AllocationHistory& m = *lane.memory;
  const ProcessModel& process = model->process_of(lane);
  const MemoryState state = state_after(m, m.allocated_peak.event);
  const FlameTree tree = FlameTree::by_module({process, m, state.live, &state});
  EXPECT_EQ(tree.nodes[0].bytes, state.totals.active);
  std::map<std::string, uint64_t> expected;
  for (const uint32_t i : state.live) {
    const Allocation a = m.allocations[i];
    std::string path = process.names.nn_module_text(process.nn_module_of(a));
    if (path.empty()) path = "no module";
    for (size_t dot = 0; dot != path.npos;) {
      dot = path.find('.', dot + 1);
      expected[path.substr(0, dot)] += a.block_bytes;
    }
  }
  std::map<std::string, uint64_t> found;
  std::vector<std::string> paths(tree.nodes.size());
  for (size_t i = 1; i < tree.nodes.size(); ++i) {
    const FlameNode& n = tree.nodes[i];
    paths[i] = (n.parent == 0 ? "" : paths[n.parent] + ".") + tree.names[n.frame];
    found[paths[i]] = n.bytes;
  }
  EXPECT_EQ(found, expected);
  EXPECT_GT(found.at("layers"), found.at("layers.3"));
  // Nothing changes between an instant and itself.
  const ModuleSide side{process, m, state.live, &state};
  EXPECT_EQ(FlameTree::module_difference(side, side).nodes.size(), 1U);
  EXPECT_EQ(module_rows(process, m, state, "11.UP").size(), 2U);
}

TEST(StateIndex, EqualsTheReplayFromTheStart) {
  SyntheticOptions options;
  options.events = 60'000;
  options.spike_bytes = 1 << 30;
  const TraceModel trace = synthetic_model(options);
  const AllocationHistory& m = trace.processes[0].framework[0];
  const StateIndex index(m);
  EXPECT_GE(index.keyframe_count(), 4U);
  EXPECT_LT(index.memory_bytes(), size_t{8} * m.event_count());
  for (uint32_t e = 0; e < m.event_count(); e += 997) {
    expect_same_state(index.state_after(e), state_after(m, e));
  }
  for (const uint32_t e : {0U, 8191U, 8192U, 8193U, m.event_count() - 1, m.event_count() + 5}) {
    expect_same_state(index.state_after(e), state_after(m, e));
  }
}

// Each line is one row, which its stacks add up to.
void check_lines(const TableSource& source) {
  std::set<std::string> lines;
  uint64_t bytes = 0;
  for (const LineRow& r : line_rows(source, "", {}, {})) {
    EXPECT_TRUE(lines.insert(r.line).second) << r.line << " twice";
    bytes += r.sum.bytes;
  }
  EXPECT_EQ(bytes, source.state.totals.allocated);
  uint64_t of_line = 0;
  uint64_t of_stacks = 0;
  for (const LineRow& r : line_rows(source, "", {}, lines)) {
    if (r.stacks > 1) of_line += r.sum.bytes;
    if (r.stacks == 0) of_stacks += r.sum.bytes;
  }
  EXPECT_EQ(of_line, of_stacks);
}

// Every recorded snapshot: at each checked instant, all views agree.
class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, ViewsAgree) {
  const auto loaded =
      load_model(std::string(TIDEMARK_TEST_DATA) + "/snapshots/" + GetParam() + ".pickle.gz");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Model& model = **loaded;
  ASSERT_FALSE(model.lanes.empty());
  const Lane& lane = model.lanes[0];
  const AllocationHistory& m = *lane.memory;
  ASSERT_GT(m.event_count(), 0U);
  EXPECT_EQ(lane.curves.extremes(0, m.event_count()).max[0], m.allocated_peak.bytes);
  Selection selection;
  selection.reset(model);
  uint32_t most_pending = 0;
  for (uint32_t e = 0; e < m.event_count(); ++e) {
    if (m.totals_after(e).pending() > m.totals_after(most_pending).pending()) most_pending = e;
  }
  for (const uint32_t e :
       {m.event_count() / 3, m.allocated_peak.event, m.event_count() - 1, most_pending}) {
    selection.set_event(model, 0, e);
    const Moment& moment = selection.cursor.moment(model);
    expect_same_state(moment.state, state_after(m, e));
    const FlameTree tree = FlameTree::of({model.process_of(lane).names, moment.live});
    EXPECT_EQ(tree.nodes[0].bytes, moment.state.totals.active);
    EXPECT_EQ(tree.nodes[0].count, moment.state.live.size());
    for (const FlameNode& n : tree.nodes) {
      EXPECT_LE(n.begin + n.bytes, tree.nodes[n.parent].begin + tree.nodes[n.parent].bytes);
    }
    uint64_t pending = 0;
    for (const FlameNode& n : tree.nodes) pending += n.kind == FlameKind::kPending ? n.bytes : 0;
    EXPECT_EQ(pending, moment.state.totals.pending());
    for (uint32_t s = 0; s < moment.state.segments.size(); ++s) {
      float at = 0;
      uint64_t bytes = 0;
      for (const MapCell& cell : moment.layout.cells(s, 700)) {
        EXPECT_NEAR(cell.begin_px, at, 0.01);
        at = cell.end_px;
        bytes += cell.size_bytes;
      }
      EXPECT_NEAR(at, 700, 0.01);
      EXPECT_EQ(bytes, moment.state.segments[s].size_bytes);
    }
    const TableSource source{m, moment.state, moment.layout, model.text_of(lane)};
    uint64_t by_stack = 0;
    for (const StackRow& r : stack_rows(source, "")) by_stack += r.bytes;
    EXPECT_EQ(by_stack, moment.state.totals.allocated);
    check_lines(source);
    uint64_t by_category = 0;
    for (const CategoryRow& r : moment.live.categories) by_category += r.bytes;
    EXPECT_EQ(by_category, moment.state.totals.allocated);
    pending = 0;
    for (const uint32_t i : allocation_rows(source, "pending free", {})) {
      pending += m.allocations.block_bytes(i);
    }
    EXPECT_EQ(pending, moment.state.totals.pending());
  }
}

// The line that the report names is one row, however many stacks lead to it.
TEST(Lines, EachStackSaysInWhatItDiffers) {
  const auto loaded = load_model(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  ASSERT_TRUE(loaded);
  const Lane& lane = (*loaded)->lanes[0];
  const Moment moment = *make_moment(**loaded, {0, lane.memory->allocated_peak.event});
  const TableSource source{*lane.memory, moment.state, moment.layout, (*loaded)->text_of(lane)};
  const std::string line = "training  programs.py:33";
  std::vector<LineRow> rows = line_rows(source, "", {}, {});
  EXPECT_EQ(rows[0].text, line);
  EXPECT_EQ(rows[0].stacks, 11U);
  rows = line_rows(source, "", {}, {line});
  std::set<std::string> texts;
  for (size_t i = 1; i <= 11; ++i) {
    EXPECT_EQ(rows[i].stacks, 0U);
    EXPECT_TRUE(texts.insert(rows[i].text).second) << rows[i].text << " twice";
    EXPECT_EQ(rows[i].text.find("programs.py"), std::string::npos) << "all are of this line";
  }
  for (const char* text : {"in the line itself",
                           "in relu   via TransformerEncoderLayer.forward  transformer.py:956 > "
                           "TransformerEncoderLayer._ff_block  transformer.py:981"}) {
    EXPECT_TRUE(texts.contains(text)) << text;
  }
  // A search counts only the stacks that contain it.
  rows = line_rows(source, "layer_norm", {}, {});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].text, line + "  in layer_norm");
}

INSTANTIATE_TEST_SUITE_P(Snapshots, Recorded,
                         testing::Values("default", "expandable", "graphs", "graphs_expandable",
                                         "late", "long", "oom_fraction", "ring", "streams",
                                         "streams_expandable", "empty_cache", "annotated",
                                         "max_split", "roundup", "cpp_stacks"));

class Moments : public testing::Test {
 protected:
  Moments() {
    auto made = make_model(synthetic_model({}), {});
    model_ = std::shared_ptr<const Model>(std::move(*made));
    selection_.reset(*model_);
    selection_.set_event(*model_, 0, 5'000);
  }
  const Lane& lane() const { return model_->lanes[0]; }
  TableSource source() {
    const Moment& moment = selection_.cursor.moment(*model_);
    return {*lane().memory, moment.state, moment.layout, model_->text_of(lane())};
  }

  std::shared_ptr<const Model> model_;
  Selection selection_;
};

TEST_F(Moments, FlameDifferenceIsWhatCameAndWent) {
  const MemoryState before = state_after(*lane().memory, 4'000);
  const MemoryState after = state_after(*lane().memory, 5'000);
  const Dictionary& names = model_->process_of(lane()).names;
  const LiveSums live = sums_of_live(*lane().memory, names, after);
  const LiveSums were = sums_of_live(*lane().memory, names, before);
  const FlameTree tree = FlameTree::difference({names, were}, {names, live});
  EXPECT_EQ(tree.nodes[0].net,
            static_cast<int64_t>(after.totals.active) - static_cast<int64_t>(before.totals.active));
  std::map<uint32_t, int64_t> change;
  for (const uint32_t i : after.live) {
    change[lane().memory->allocations[i].stack] +=
        static_cast<int64_t>(lane().memory->allocations[i].block_bytes);
  }
  for (const uint32_t i : before.live) {
    change[lane().memory->allocations[i].stack] -=
        static_cast<int64_t>(lane().memory->allocations[i].block_bytes);
  }
  uint64_t moved = 0;
  for (const auto& [stack, net] : change) {
    moved += static_cast<uint64_t>(std::abs(net));
    if (net != 0) {
      const uint32_t node = tree.find(stack);
      ASSERT_NE(node, 0U);
      EXPECT_EQ(tree.nodes[node].net, net);
    }
  }
  EXPECT_EQ(tree.nodes[0].bytes, moved);
}

// Every line of code with the bytes below it, however many paths lead to it.
TEST_F(Moments, BottomUpBeginsWithTheLinesThatAllocated) {
  const MemoryState before = state_after(*lane().memory, 4'000);
  const MemoryState after = state_after(*lane().memory, 5'000);
  const Dictionary& names = model_->process_of(lane()).names;
  const LiveSums live = sums_of_live(*lane().memory, names, after);
  const FlameSide now{names, live};
  const FlameTree tree = FlameTree::of(now, FlameOrder::kBottomUp);
  std::map<uint32_t, uint64_t> by_line;
  for (const uint32_t i : after.live) {
    const Allocation& a = lane().memory->allocations[i];
    if (a.stack != 0) by_line[names.stack(a.stack).frame] += a.block_bytes;
  }
  ASSERT_GT(by_line.size(), 3U);
  size_t lines = 0;
  for (size_t i = 1; i < tree.nodes.size(); ++i) {
    const FlameNode& n = tree.nodes[i];
    EXPECT_EQ(tree.find(n.key), i) << "keys are unique";
    EXPECT_LE(n.begin + n.bytes, tree.nodes[n.parent].begin + tree.nodes[n.parent].bytes);
    if (n.depth != 1 || n.kind != FlameKind::kFrame) continue;
    ++lines;
    EXPECT_EQ(n.bytes, by_line[n.frame]);
  }
  EXPECT_EQ(lines, by_line.size());
  EXPECT_EQ(tree.nodes[0].bytes, after.totals.active);

  const LiveSums were = sums_of_live(*lane().memory, names, before);
  const FlameSide then{names, were};
  const FlameTree change = FlameTree::difference(then, now, FlameOrder::kBottomUp);
  const FlameTree same = FlameTree::difference(then, now);
  EXPECT_EQ(change.nodes[0].net, same.nodes[0].net);
  EXPECT_EQ(change.nodes[0].bytes, same.nodes[0].bytes);
  // Keys do not change, so that a zoom survives a move of the cursor.
  size_t found = 0;
  for (const FlameNode& n : change.nodes) found += tree.find(n.key) != 0 ? 1U : 0U;
  EXPECT_GT(found, 3U);
}

TEST_F(Moments, TablesSortAndFilter) {
  const auto rows = allocation_rows(source(), "", {});
  ASSERT_EQ(rows.size(), source().state.live.size());
  const auto& all = lane().memory->allocations;
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GE(all[rows[i - 1]].block_bytes, all[rows[i]].block_bytes);
  }
  const auto oldest =
      allocation_rows(source(), "", {static_cast<int>(AllocationColumn::kAge), true});
  EXPECT_TRUE(std::is_sorted(oldest.begin(), oldest.end(),
                             [&](uint32_t a, uint32_t b) { return all[a].birth < all[b].birth; }));
  const auto some = allocation_rows(source(), "BLOCK7.", {});
  EXPECT_GT(some.size(), 0U);
  EXPECT_LT(some.size(), rows.size());
  for (const uint32_t i : some) {
    EXPECT_EQ(source().text.headline(all[i].stack), "Block7.forward  model.py:17  in linear");
  }
  EXPECT_TRUE(allocation_rows(source(), "no such thing", {}).empty());
  const auto segments = segment_rows(source(), {static_cast<int>(SegmentColumn::kFree), true});
  EXPECT_EQ(segments.size(), source().state.segments.size());
}

// Long after the last event, blocks are as old as the cursor says.
TEST_F(Moments, BlocksAgeBetweenEvents) {
  const AllocationHistory& m = *lane().memory;
  const auto born_ns = static_cast<double>(m.time_ns[5'000] - model_->trace.start_ns);
  const auto next_ns = static_cast<double>(m.time_ns[5'001] - model_->trace.start_ns);
  ASSERT_GT(next_ns, born_ns + 2);
  selection_.set_time(*model_, 0, (born_ns + next_ns) / 2);
  Allocation block;
  block.times = m.time_ns.data();
  block.birth = 5'000;
  const std::optional<int64_t> age_ns = selection_.cursor.age_ns(*model_, block);
  ASSERT_TRUE(age_ns);
  EXPECT_NEAR(static_cast<double>(*age_ns), (next_ns - born_ns) / 2, 2);
  block.seeded = true;
  EXPECT_FALSE(selection_.cursor.age_ns(*model_, block)) << "older than the recording";
  EXPECT_EQ(selection_.cursor.age_text(*model_, block), "older than the recording");
  block.seeded = false;
  block.birth = 5'001;
  EXPECT_EQ(selection_.cursor.age_ns(*model_, block), 0);
}

// A history that began late: before it, the memory that is older, and never a part of that.
TEST(LateHistory, TheStateBeforeItIsWhole) {
  const auto loaded = load_model(TIDEMARK_TEST_DATA "/snapshots/ring.pickle.gz", {});
  ASSERT_TRUE(loaded);
  const Model& model = **loaded;
  const AllocationHistory& m = *model.lanes[0].memory;
  ASSERT_GT(m.seed_events, 1U);
  Selection selection;
  selection.reset(model);
  selection.set_time(model, 0, 0);
  EXPECT_EQ(selection.cursor.time(model), 0);
  EXPECT_EQ(selection.cursor.moment(model).state.totals.allocated, m.seeded_bytes);
  EXPECT_EQ(m.event_number(selection.cursor.event()), 0U);
  selection.set_event(model, 0, 0);
  EXPECT_EQ(selection.cursor.moment(model).state.totals.allocated, m.seeded_bytes);
  selection.step_events(model, 1);
  EXPECT_EQ(m.event_number(selection.cursor.event()), 1U);
  selection.step_events(model, -5);
  EXPECT_EQ(m.event_number(selection.cursor.event()), 0U);
  const EventAxis axis(m, model.trace.start_ns);
  EXPECT_EQ(axis.position(axis.time(0)), 0);
  for (uint32_t event = m.first_state(); event < m.event_count(); ++event) {
    EXPECT_EQ(axis.time(m.event_number(event)), since_start(model, m.time_ns[event]));
  }
}

TEST(Losses, KilledProcessesAreShown) {
  TraceModel trace = synthetic_model({});
  Health killed{};
  killed.kind = HealthKind::kRecovered;
  killed.value = 2;
  trace.processes[0].health.push_back(killed);
  const auto made = make_model(std::move(trace), {});
  ASSERT_TRUE(made);
  const std::vector<std::string>& losses = (*made)->losses;
  EXPECT_TRUE(std::any_of(losses.begin(), losses.end(), [](const std::string& text) {
    return text.find("was killed or did not exit normally") != std::string::npos;
  }));
}

TEST_F(Moments, NeighboursAreThoseOfTheMap) {
  const Moment& moment = selection_.cursor.moment(*model_);
  const auto& all = lane().memory->allocations;
  for (const uint32_t i : moment.state.live) {
    const MapLayout::Neighbours n = moment.layout.neighbours(i);
    if (n.after != kNever) {
      EXPECT_EQ(all[i].address + all[i].block_bytes + n.hole_after, all[n.after].address);
      EXPECT_EQ(moment.layout.neighbours(n.after).before, i);
    }
  }
}

TEST_F(Moments, NarrowCellsFoldButNothingIsLost) {
  const Moment& moment = selection_.cursor.moment(*model_);
  for (uint32_t s = 0; s < moment.state.segments.size(); ++s) {
    uint64_t used = 0;
    uint32_t blocks = 0;
    for (const MapCell& cell : moment.layout.cells(s, 9)) {
      used += cell.used_bytes;
      blocks += cell.blocks;
    }
    EXPECT_EQ(used, moment.layout.used_bytes(s));
    EXPECT_EQ(blocks, moment.layout.block_count(s));
  }
}

TEST_F(Moments, SelectionMovesAndStaysInside) {
  const double full = model_->span_ns();
  selection_.view.zoom(full / 2, 1e-30);
  EXPECT_GE(selection_.view.range().span(), 10);
  selection_.view.fit();
  const double at = full * 0.3;
  const double share = (at - selection_.view.range().begin) / selection_.view.range().span();
  selection_.view.zoom(at, 0.25);
  EXPECT_NEAR((at - selection_.view.range().begin) / selection_.view.range().span(), share, 1e-6);
  for (int i = 0; i < 50; ++i) selection_.view.pan(0.9);
  EXPECT_LE(selection_.view.range().begin, full);
  selection_.view.zoom(0, 1e9);
  EXPECT_LE(selection_.view.range().span(), full * 1.05);
  EXPECT_TRUE(selection_.go_to_oom(*model_, 1));
  EXPECT_EQ(selection_.cursor.event(), model_->ooms[0].event);
  selection_.go_to_peak(*model_);
  EXPECT_EQ(selection_.cursor.event(), lane().memory->allocated_peak.event);
  selection_.step_events(*model_, -1'000'000);
  EXPECT_EQ(selection_.cursor.event(), 0U);
}

TEST_F(Moments, MarksPairUp) {
  ASSERT_EQ(model_->marks.size(), 1U);
  ASSERT_EQ(model_->marks[0].rows.size(), 1U);
  EXPECT_GE(model_->marks[0].rows[0].size(), 2U);
  EXPECT_EQ(model_->marks[0].unmatched_ends, 0U);
  ProcessModel odd;
  odd.marks = {{10, 0, 0, 1, 0, 0, MarkPhase::kBegin, MarkKind::kUser},
               {12, 0, 0, 2, 0, 0, MarkPhase::kBegin, MarkKind::kUser},
               {15, 0, 0, 2, 0, 0, MarkPhase::kEnd, MarkKind::kUser},
               {16, 0, 0, 9, 0, 0, MarkPhase::kEnd, MarkKind::kUser},
               {17, 0, 0, 3, 0, 0, MarkPhase::kInstant, MarkKind::kUser}};
  const MarkLanes lanes = MarkLanes::of(odd, 100);
  EXPECT_EQ(lanes.unmatched_ends, 1U);
  ASSERT_EQ(lanes.rows.size(), 2U);
  EXPECT_TRUE(lanes.rows[0][0].open);
  EXPECT_EQ(lanes.rows[0][0].end_ns, 100);
  EXPECT_EQ(lanes.rows[1][0].end_ns, 15);
  EXPECT_EQ(lanes.rows[1][1].begin_ns, 17);
}

TEST(Loading, PreviewThenModelThenErrors) {
  Loader loader;
  EXPECT_FALSE(loader.take());
  loader.start(std::string(TIDEMARK_TEST_DATA) + "/snapshots/long.pickle.gz");
  std::optional<Result<std::shared_ptr<const Model>>> outcome;
  while (!outcome) {
    outcome = loader.take();
    std::this_thread::yield();
  }
  ASSERT_TRUE(*outcome) << outcome->error().message;
  EXPECT_GT((**outcome)->events, 200'000U);
  EXPECT_FALSE(loader.busy());
  loader.start("/no/such/file.tmk");
  outcome.reset();
  while (!outcome) {
    outcome = loader.take();
    std::this_thread::yield();
  }
  EXPECT_FALSE(*outcome);
  EXPECT_NE(outcome->error().message.find("/no/such/file.tmk"), std::string::npos);
}

// A long trace is shown before all its events are analysed. Then its blocks get their categories,
// the same as when everything is loaded at once.
TEST(Loading, LongTracesAreShownBeforeTheirCategories) {
  const test::ScratchDirectory folder;
  SyntheticOptions options;
  options.events = 1'050'000;
  ASSERT_TRUE(write_synthetic_trace(options, folder / "long.tmk"));
  Loader loader;
  loader.start(folder / "long.tmk");
  std::optional<Result<std::shared_ptr<const Model>>> outcome;
  while (!outcome) {
    EXPECT_FALSE(loader.attach_insight());
    outcome = loader.take();
    std::this_thread::yield();
  }
  ASSERT_TRUE(*outcome) << outcome->error().message;
  const std::shared_ptr<const Model> model = **outcome;
  EXPECT_FALSE(model->categories_known);
  while (!loader.attach_insight()) std::this_thread::yield();
  EXPECT_TRUE(model->categories_known);
  while (!model->report_ready) {
    ASSERT_TRUE(loader.attach_report());
    std::this_thread::yield();
  }
  EXPECT_FALSE(loader.attach_insight());
  const auto at_once = load_model(folder / "long.tmk");
  ASSERT_TRUE(at_once) << at_once.error().message;
  const AllocationColumns& got = model->lanes[0].memory->allocations;
  const AllocationColumns& expected = (*at_once)->lanes[0].memory->allocations;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.category(i), expected.category(i)) << i;
  EXPECT_EQ(model->report.findings.size(), (*at_once)->report.findings.size());
}

TEST(Loading, PreviewFollowsTheCurve) {
  SyntheticOptions options;
  options.events = 100'000;
  const TraceReader reader = synthetic_trace(options);
  // With too many points, each point covers more events, and no event is lost.
  size_t published = 0;
  PreviewMaker maker(
      {&reader, 1}, [&](const Preview&) { ++published; }, 2);
  const auto watch = [&](const auto& from, const auto& ref, auto rows) {
    maker.add(from, ref, rows);
  };
  const Result<TraceModel> loaded = load_trace({&reader, 1}, {}, {}, watch);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const TraceModel& trace = *loaded;
  const Preview last = maker.preview();
  EXPECT_GE(published, 1U);
  ASSERT_EQ(last.curves.size(), 1U);
  EXPECT_LE(last.curves[0].high.size(), kMostPreviewPoints);
  EXPECT_GE(last.curves[0].high.size(), kMostPreviewPoints / 4);
  EXPECT_TRUE(std::is_sorted(last.curves[0].time_ns.begin(), last.curves[0].time_ns.end()));
  ASSERT_EQ(trace.processes[0].framework[0].anomalies, 0U);
  double highest = 0;
  for (const double y : last.curves[0].high) highest = std::max(highest, y);
  EXPECT_EQ(highest, static_cast<double>(trace.processes[0].framework[0].requested_peak.bytes));
}

// Where very many blocks are live, the drawing thread does not wait for them.
TEST(CrowdedMoments, AreMadeInTheBackground) {
  SyntheticOptions options;
  options.events = 120'000;
  options.slots = 1 << 16;
  options.events_per_step = 100'000;
  options.oom = false;
  auto made = make_model(synthetic_model(options), {});
  ASSERT_TRUE(made);
  const std::shared_ptr<const Model> model(std::move(*made));
  Selection selection;
  selection.reset(*model);
  const auto wait = [&] {
    for (int i = 0; i < 2000 && !selection.poll(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  const uint32_t peak = model->lanes[0].memory->allocated_peak.event;
  EXPECT_FALSE(selection.cursor.moment(*model).known) << "it waited";
  wait();
  const Moment& first = selection.cursor.moment(*model);
  ASSERT_TRUE(first.known);
  EXPECT_EQ(first.event, peak);
  ASSERT_GT(first.state.live.size(), 10'000U);
  // The last one stays until the next is there; only then panels have to look again.
  const uint64_t version = selection.version();
  selection.set_event(*model, 0, peak - 100);
  EXPECT_EQ(selection.cursor.moment(*model).event, peak);
  EXPECT_EQ(selection.version(), version);
  wait();
  EXPECT_GT(selection.version(), version);
  EXPECT_EQ(selection.cursor.moment(*model).event, peak - 100);
  EXPECT_EQ(selection.cursor.moment(*model).state.live,
            state_after(*model->lanes[0].memory, peak - 100).live);
  // For a picture it is there at once.
  selection.be_patient();
  selection.set_event(*model, 0, peak - 200);
  EXPECT_EQ(selection.cursor.moment(*model).event, peak - 200);
}

}  // namespace
}  // namespace tidemark::view
