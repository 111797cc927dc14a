// The stacked timeline with real input: hover, click, legend, search, brushing, comparison.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/history/memory_state.h"
#include "analysis/wording.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "tests/support/serving_story.h"
#include "tests/support/story.h"
#include "viewer/app/start_view.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/stack/step_pair.h"

namespace tidemark::view {
namespace {

class StackPanelTest : public Interaction {
 protected:
  void show(const std::string& way) {
    shell_->panels().be_patient();
    ASSERT_TRUE(shell_->show_only(way));
    frame(4);
    ASSERT_NE(panel().view().picture(), nullptr);
  }
  StackPanel& panel() { return shell_->panels().stack; }
  const StackPicture& picture(size_t plot = 0) { return *panel().view(plot).picture(); }

  // A point of the screen in the middle of a block's band.
  ImVec2 point_of(uint32_t band) {
    const StackedColumns& columns = picture().columns;
    const uint32_t c = (columns.bands[band].first_column + columns.bands[band].last_column) / 2;
    const uint32_t slice = columns.slice_of(c, band);
    const double middle = (static_cast<double>(columns.begin_of(c, slice)) +
                           static_cast<double>(columns.slice_ends[slice])) /
                          2;
    const PlotArea& area = panel().area();
    const float x = area.min.x + (static_cast<float>(c) + 0.5F) / StackPicture::kPerPixel;
    return {x, panel().view().y(area, middle)};
  }
  // The block with the largest band.
  uint32_t largest_band() {
    const StackedColumns& columns = picture().columns;
    uint32_t best = UINT32_MAX;
    uint64_t most = 0;
    for (uint32_t b = 0; b < columns.bands.size(); ++b) {
      const StackBand& band = columns.bands[b];
      if (band.kind != BandKind::kBlock) continue;
      const uint64_t area = picture().lane().memory->allocations.block_bytes(band.block) *
                            (band.last_column - band.first_column + 1);
      if (area <= most) continue;
      most = area;
      best = b;
    }
    return best;
  }
};

TEST_F(StackPanelTest, HoverTellsAndClickSelectsTheBlockThatIsThere) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack");
  const uint32_t band = largest_band();
  ASSERT_NE(band, UINT32_MAX);
  const uint32_t block = picture().columns.bands[band].block;
  const Allocation a = picture().lane().memory->allocations[block];
  const ImVec2 at = point_of(band);
  const auto hit = panel().view().at(panel().area(), at);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->band, band);
  EXPECT_EQ(hit->bytes, a.block_bytes);
  move(at);
  const std::string line(model().text_of(picture().lane()).headline(a.stack, a.seeded));
  EXPECT_NE(read_window("Tooltip").find(without_spaces(line)), std::string::npos);
  click(at);
  ASSERT_TRUE(selection().highlights.allocation);
  EXPECT_EQ(*selection().highlights.allocation, block);
  EXPECT_LE(a.birth, selection().cursor.event());
  EXPECT_GT(a.release, selection().cursor.event());
}

TEST_F(StackPanelTest, LegendIsolatesAndHides) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack:category");
  const uint32_t groups = picture().index->groups.count;
  const auto groups_drawn = [&] {
    std::set<uint32_t> drawn;
    const StackedColumns& c = picture().columns;
    for (const uint32_t b : c.slice_bands) drawn.insert(c.bands[b].group);
    return drawn;
  };
  ASSERT_GT(groups_drawn().size(), 2U);
  const uint32_t one = *groups_drawn().begin();
  panel().legend.isolate(one, groups);
  frame();
  EXPECT_EQ(groups_drawn(), std::set<uint32_t>{one});
  // Its scale is its own.
  EXPECT_LT(picture().top_bytes, 1.2 * static_cast<double>(picture().columns.highest));
  panel().legend.isolate(one, groups);
  panel().legend.toggle(one, groups);
  frame();
  EXPECT_EQ(groups_drawn().count(one), 0U);
  EXPECT_GT(groups_drawn().size(), 1U);
}

// What the colours of blocks mean is in the legend, whatever they are chosen by.
TEST_F(StackPanelTest, LegendExplainsTheColours) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack:block");
  const auto says = [](const std::string& what) {
    return read_window("##legend").find(without_spaces(what)) != std::string::npos;
  };
  EXPECT_TRUE(says("optimizer state"));
  panel().legend.isolate(0, picture().index->groups.count);
  selection().colouring.by = ColourBy::kStack;
  frame(4);
  EXPECT_FALSE(says("optimizer state")) << read_window("##legend");
  const StackRow& most = selection().cursor.moment(model()).live.stacks.front();
  EXPECT_TRUE(says(size_text(most.bytes))) << read_window("##legend");
  const Rgb colour = stack_colour(most.stack);
  EXPECT_TRUE(painted("##legend", colour.r, colour.g, colour.b));
  // The legend has no row that would bring a hidden category back.
  EXPECT_TRUE(panel().legend.hidden().empty());
  // What is summed has many stacks, and the colour of none.
  EXPECT_TRUE(picture().has_uncoloured());
  EXPECT_TRUE(says("less than a pixel high"));
  for (const StackBand& band : picture().columns.bands) {
    if (band.kind != BandKind::kRest) continue;
    EXPECT_EQ(picture().colour_of(band), kUncoloured);
  }
  selection().colouring.by = ColourBy::kSize;
  frame(4);
  EXPECT_TRUE(says("512 B")) << read_window("##legend");
  EXPECT_TRUE(says("16.0 GiB")) << read_window("##legend");
}

// A click on blocks that are too small for a band selects the one that lies there.
TEST_F(StackPanelTest, AClickFindsSmallBlocks) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack:block");
  const StackPicture& p = picture();
  const AllocationHistory& memory = p.index->memory();
  size_t found = 0;
  for (uint32_t c = 0; c < p.columns.count(); c += 7) {
    const uint32_t event = p.columns.samples.events[c];
    for (uint32_t k = p.columns.starts[c]; k < p.columns.starts[c + 1]; ++k) {
      const StackBand& band = p.columns.bands[p.columns.slice_bands[k]];
      if (band.kind != BandKind::kRest) continue;
      // The blocks from the lower to the upper edge are those of the band.
      const uint64_t height = p.columns.slice_ends[k] - p.columns.begin_of(c, k);
      uint64_t at = 0;
      while (at < height) {
        const auto block = p.block_at(band, event, at);
        ASSERT_TRUE(block);
        const Allocation a = memory.allocations[*block];
        ASSERT_TRUE(a.alive_at(event));
        ASSERT_EQ(p.index->groups.of(memory, *block), band.group);
        ASSERT_LT(a.block_bytes, p.columns.options.least_bytes);
        at += a.block_bytes;
        ++found;
      }
      ASSERT_EQ(at, height);
      ASSERT_FALSE(p.block_at(band, event, height));
    }
  }
  EXPECT_GT(found, 100U);
}

TEST_F(StackPanelTest, SaysWhatItDrawsInsteadOfMissingGroups) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const auto says = [](const std::string& what) {
    return read_window("##only").find(without_spaces(what)) != std::string::npos;
  };
  show("stack:owner");
  EXPECT_EQ(picture().wish.by, StackBy::kCategory);
  EXPECT_TRUE(says("All of these blocks belong to PyTorch. Bands are categories instead."));
  show("stack:module");
  EXPECT_EQ(picture().wish.by, StackBy::kLine);
  EXPECT_TRUE(says("which nn.Module these blocks belong to. Bands are lines of code instead."));
  show("stack:category");
  EXPECT_FALSE(says("instead"));
  open_file(TIDEMARK_TRACES "/pool_holes");
  EXPECT_TRUE(says("What the driver allocated has no categories."));
  show("stack:segment");
  EXPECT_EQ(picture().wish.by, StackBy::kBlock);
  EXPECT_TRUE(says("every block is an allocation of its own. Bands are blocks instead."));
  show("stack:stream");
  EXPECT_EQ(picture().wish.by, StackBy::kBlock);
  EXPECT_TRUE(says("on one stream or on none. Bands are blocks instead."));
  show("stack:steps");
  EXPECT_TRUE(says("The trace does not have two steps to compare."));
}

TEST_F(StackPanelTest, NamesTheOrderOfWhatItOrders) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const auto says = [](const std::string& what) {
    return read_window("##only").find(without_spaces(what)) != std::string::npos;
  };
  show("stack:block");
  EXPECT_TRUE(says("oldest at the bottom"));
  EXPECT_FALSE(says("oldest at the bottom of each"));
  show("stack:category");
  EXPECT_TRUE(says("oldest at the bottom of each category"));
  show("stack:line:life");
  EXPECT_TRUE(says("longest-lived at the bottom of each line"));
  show("stack:segment");
  EXPECT_FALSE(says("at the bottom"));
}

// Also those that hold nothing at the cursor.
TEST_F(StackPanelTest, LegendListsAllGroupsOfThePicture) {
  const auto story = [](Story& s) {
    const auto one = s.alloc(30 * kMiB, s.user(7));
    s.tick(1'000'000);
    s.free(one);
    s.tick(1'000'000);
    s.alloc(20 * kMiB, s.user(8));
    s.tick(1'000'000);
    s.alloc(8 * kMiB, s.user(9));
  };
  const auto says = [](const std::string& what) {
    return read_window("##legend").find(without_spaces(what)) != std::string::npos;
  };
  for (const char* way : {"stack:line", "timeline:stacked"}) {
    shell_ = std::make_unique<Shell>(Config());
    shell_->set_model(told_model(story));
    shell_->panels().be_patient();
    ASSERT_TRUE(shell_->show_only(way));
    const AllocationHistory& memory = *model().lanes[0].memory;
    selection().set_event(model(), 0, memory.event_count() - 1);
    frame(4);
    if (way == std::string("timeline:stacked")) {
      EXPECT_TRUE(says("28.0 MiB") || says("20.0 MiB")) << read_window("##legend");
      continue;
    }
    EXPECT_TRUE(says("work train.py:8 20.0 MiB work train.py:9 8.0 MiB work train.py:7 0 B"))
        << read_window("##legend");
    // Only what is in view: the first block was freed before.
    selection().view.show(0.7 * model().span_ns(), model().span_ns());
    frame(4);
    EXPECT_FALSE(says("train.py:7")) << read_window("##legend");
    EXPECT_TRUE(says("train.py:9 8.0 MiB")) << read_window("##legend");
  }
}

TEST_F(StackPanelTest, LegendShowsTheFreePartOfSegments) {
  open_file(TIDEMARK_TRACES "/torch/streams.tier2.tmk");
  show("stack:segment");
  const AllocationHistory& memory = *model().lanes[0].memory;
  selection().set_event(model(), 0, memory.event_count() - 1);
  frame(4);
  const MemoryState state = state_after(memory, selection().cursor.event());
  std::map<uint64_t, uint64_t> free_in;  // by the beginning of a segment
  for (const SegmentRange& s : state.segments) {
    for (const Hole& hole : state.holes) {
      if (hole.address >= s.address && hole.address < s.address + s.size_bytes) {
        free_in[s.address] += hole.size_bytes;
      }
    }
    const std::string row = size_text(free_in[s.address]) + " free";
    EXPECT_NE(read_window("##legend").find(without_spaces(row)), std::string::npos)
        << row << " in " << read_window("##legend");
  }
}

// What stays is below what comes and goes, even if that holds more on average.
TEST_F(StackPanelTest, LinesThatStayAreAtTheBottom) {
  shell_->set_model(told_model([](Story& s) {
    s.alloc(20 * kMiB, s.user(7));
    for (int i = 0; i < 50; ++i) {
      const auto block = s.alloc(60 * kMiB, s.user(8));
      s.alloc(512, s.user(9));
      s.free(block);
    }
  }));
  show("stack:line");
  const std::vector<std::string>& names = picture().index->names;
  ASSERT_EQ(names.size(), 3U);
  EXPECT_NE(names[0].find("train.py:7"), std::string::npos) << names[0];
}

TEST_F(StackPanelTest, SearchLightsUpBands) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack");
  const auto opaque = [&] {
    return std::count_if(picture().pixels.begin(), picture().pixels.end(),
                         [](uint32_t p) { return p >> 24 == 255; });
  };
  const auto all = opaque();
  selection().highlights.search = "backward";
  frame();
  const auto some = opaque();
  EXPECT_GT(some, 0);
  EXPECT_LT(some, all);
  selection().highlights.search = "no such text anywhere";
  frame();
  EXPECT_EQ(opaque(), 0);
}

TEST_F(StackPanelTest, BrushingMeasuresAndCtrlClickCompares) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  show("stack:line");
  const PlotArea area = panel().area();
  const float y = (area.min.y + area.max.y) / 2;
  hold(ImGuiMod_Shift, true);
  move({area.min.x + 100, y});
  button(true);
  move({area.min.x + 200, y});
  move({area.min.x + 300, y});
  button(false);
  hold(ImGuiMod_Shift, false);
  ASSERT_TRUE(selection().highlights.measure);
  const VisibleRange range = since_start(model(), *selection().highlights.measure);
  EXPECT_NEAR(area.x(range.begin), area.min.x + 100, 2);
  EXPECT_NEAR(area.x(range.end), area.min.x + 300, 2);
  EXPECT_NE(read_window("legend").find("kept"), std::string::npos);
  hold(ImGuiMod_Ctrl, true);
  click({area.min.x + 150, area.max.y - 4});
  hold(ImGuiMod_Ctrl, false);
  EXPECT_TRUE(selection().comparison.reference());
}

TEST_F(StackPanelTest, TwoRanksShareOneScale) {
  open_file(TIDEMARK_TRACES "/ranks/guilty4");
  selection().compare_with(model(), {false, selection().cursor.lane() == 0 ? 1U : 0U, 0, true});
  show("stack:category");
  ASSERT_NE(panel().view(1).picture(), nullptr);
  EXPECT_NE(picture(0).wish.lane, picture(1).wish.lane);
  EXPECT_EQ(picture(0).top_bytes, picture(1).top_bytes);
  EXPECT_EQ(picture(0).wish.view.begin, picture(1).wish.view.begin);
}

TEST_F(StackPanelTest, StepsAreComparedFromTheirBeginnings) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const Lane& lane = model().lanes[selection().cursor.lane()];
  const Steps& steps = model().steps_of(lane);
  ASSERT_GT(steps.count(), 2U);
  const auto pair = steps_to_compare(*lane.memory, lane.curves, steps);
  ASSERT_TRUE(pair);
  EXPECT_NE(pair->ordinary, pair->unlike);
  show("stack:steps:category");
  ASSERT_NE(panel().view(1).picture(), nullptr);
  const auto begin = [&](uint32_t step) {
    return since_start(model(), lane.memory->time_ns[steps.boundaries[step]]);
  };
  EXPECT_EQ(picture(0).wish.offset, -begin(pair->ordinary));
  EXPECT_EQ(picture(1).wish.offset, -begin(pair->unlike));
  EXPECT_EQ(picture(0).top_bytes, picture(1).top_bytes);
}

TEST_F(StackPanelTest, StepsSayHowTheyDiffer) {
  const auto says = [](const std::string& what) {
    return read_window("##only").find(without_spaces(what)) != std::string::npos;
  };
  open_file(TIDEMARK_TEST_DATA "/scenarios/validation_with_grad.bad.tmk");
  show("stack:steps");
  EXPECT_TRUE(says("step 1, an ordinary one")) << read_window("##only");
  EXPECT_TRUE(says("step 3, least like the others: +356.0 MiB at its peak, in validation"))
      << read_window("##only");
  EXPECT_TRUE(says("at the cursor")) << "which is in step 3";
  const Lane& lane = model().lanes[0];
  const StepTitles chosen = step_titles(model(), lane, {3, 1});
  EXPECT_EQ(chosen.ordinary, "step 3");
  EXPECT_EQ(chosen.unlike, "step 1, against step 3: -356.0 MiB at its peak");

  open_file(TIDEMARK_TEST_DATA "/scenarios/healthy.bad.tmk");
  selection().set_time(model(), 0, 0);
  show("stack:steps:category");
  EXPECT_TRUE(says("step 2: no step differs from the others")) << read_window("##only");
  EXPECT_TRUE(says("at the peak of each step")) << "the cursor is in neither";
  EXPECT_TRUE(says("step 1 step 2 activation 284.1 MiB 284.1 MiB")) << read_window("##only");
}

TEST_F(StackPanelTest, AStepThatEndsWithTheTraceHasItsLength) {
  open_file(TIDEMARK_TRACES "/torch/streams.tier2.tmk");
  const Lane& lane = model().lanes[selection().cursor.lane()];
  const Steps& steps = model().steps_of(lane);
  ASSERT_EQ(steps.boundaries.back(), lane.memory->event_count());
  const uint32_t last = steps.count() - 1;
  panel().options.pair = StepPair{last, last};
  show("stack:steps");
  const double begin =
      since_start(model(), lane.memory->time_ns[steps.boundaries[steps.count() - 1]]);
  const double end = since_start(model(), lane.memory->time_ns[lane.memory->event_count() - 1]);
  EXPECT_GE(picture(0).wish.view.end, end - begin);
  EXPECT_LE(picture(0).wish.view.end, 1.2 * (end - begin));
}

// The one that is unlike the others is found, and it is not the first.
TEST(StepPair, FindsTheOddOne) {
  SyntheticOptions options;
  options.events = 60'000;
  options.oom = false;
  options.spike_bytes = uint64_t{2} << 30;  // in the middle
  const TraceModel trace = synthetic_model(options);
  const AllocationHistory& memory = trace.processes[0].framework[0];
  Steps steps;
  for (uint32_t e = 0; e < memory.event_count(); e += 4'000) steps.boundaries.push_back(e);
  steps.levels.resize(steps.boundaries.size() - 1);
  const auto pair = steps_to_compare(memory, MinMaxPyramid(memory), steps);
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->unlike, memory.allocated_peak.event / 4'000);
  EXPECT_NE(pair->ordinary, 0U);
}

TEST_F(StackPanelTest, TheCursorStartsInTheSecondStep) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const Lane& lane = model().lanes[0];
  const std::vector<uint32_t>& starts = model().steps_of(lane).boundaries;
  StartView start;
  start.steps = "1,4";
  ASSERT_TRUE(choose_steps(start, model(), selection(), panel().options));
  const uint32_t at = selection().cursor.event();
  EXPECT_GE(at, starts[4]);
  EXPECT_LT(at, starts[5]);
  uint64_t highest = 0;
  for (uint32_t e = starts[4]; e < starts[5]; ++e) {
    highest = std::max(highest, lane.memory->totals_after(e).allocated);
  }
  EXPECT_EQ(lane.memory->totals_after(at).allocated, highest);
  show("stack:steps");
  EXPECT_EQ(read_window("##legend").find(without_spaces("in neither step")), std::string::npos);

  selection().go_to_peak(model());
  const uint32_t peak = selection().cursor.event();
  start.time = "peak";
  ASSERT_TRUE(choose_steps(start, model(), selection(), panel().options));
  EXPECT_EQ(selection().cursor.event(), peak) << "a time was asked for";
}

// The step in which memory ran out is the one to look at; what follows the last step is not.
TEST(StepPair, AnUnfinishedStepIsFoundIfItIsTheHighest) {
  const auto unlike = [](uint64_t last_bytes) {
    const Trace trace([last_bytes](Story& s, uint32_t) {
      for (int step = 0; step < 9; ++step) {
        const uint64_t block = s.alloc((step == 4 ? 130 : 100) * kMiB, s.user(2));
        s.free(block);
      }
      s.alloc(last_bytes, s.user(2));
    });
    const AllocationHistory& memory = trace.model().processes[0].framework[0];
    Steps steps;
    for (const Allocation& a : memory.allocations) steps.boundaries.push_back(a.birth);
    steps.levels.resize(steps.boundaries.size() - 1);
    EXPECT_EQ(steps.begun(memory.event_count()), 10U);
    const auto pair = steps_to_compare(memory, MinMaxPyramid(memory), steps);
    return pair ? pair->unlike : 0;
  };
  EXPECT_EQ(unlike(400 * kMiB), 9U);
  EXPECT_EQ(unlike(20 * kMiB), 4U);
}

// What is reserved tells of earlier steps, not of this one.
TEST(StepPair, IsNotMisledByWhatIsReserved) {
  const Trace trace([](Story& s, uint32_t) {
    s.free(s.alloc(2048 * kMiB, s.user(1)));
    for (int step = 0; step < 9; ++step) {
      const uint64_t block = s.alloc(100 * kMiB, s.user(2));
      if (step == 5) s.free(s.alloc(200 * kMiB, s.user(3)));
      s.free(block);
      if (step == 3) s.empty_cache(s.user(4));
    }
  });
  const AllocationHistory& memory = trace.model().processes[0].framework[0];
  Steps steps;
  for (const Allocation& a : memory.allocations) {
    if (a.block_bytes == 100 * kMiB) steps.boundaries.push_back(a.birth);
  }
  steps.levels.resize(steps.boundaries.size() - 1);
  const auto pair = steps_to_compare(memory, MinMaxPyramid(memory), steps);
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->unlike, 5U);
}

// A window keeps the last picture while the next one is made.
TEST_F(StackPanelTest, TheLastPictureStaysUntilTheNextIsMade) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  ASSERT_TRUE(shell_->show_only("stack"));
  for (int i = 0; i < 500 && !panel().view().is_current(); ++i) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(panel().view().is_current());
  const double full = model().span_ns();
  selection().view.show(full * 0.3, full * 0.5);
  frame(1);
  ASSERT_NE(panel().view().picture(), nullptr);
  for (int i = 0; i < 500 && !panel().view().is_current(); ++i) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(panel().view().is_current());
  EXPECT_EQ(picture().wish.view.begin, selection().view.range().begin);
}

// One block lives for a second with few events, the other through many events of a microsecond.
TEST_F(StackPanelTest, WhatLivesLongestIsCountedAsOnTheAxis) {
  shell_->set_model(told_model([](Story& s) {
    const uint64_t many = s.alloc(30 * kMiB, s.user(1));
    for (int i = 0; i < 100; ++i) s.free(s.alloc(kMiB, s.user(3)));
    const uint64_t longest = s.alloc(30 * kMiB, s.user(2));
    s.free(many);
    s.tick(1'000'000'000);
    s.free(longest);
    s.alloc(kMiB, s.user(4));
  }));
  const AllocationColumns& blocks = model().lanes[0].memory->allocations;
  const auto line_at_the_bottom = [&] {
    const StackedColumns& columns = picture().columns;
    for (uint32_t c = 0; c < columns.count(); ++c) {
      // Where both live.
      if (columns.samples.bytes[c] < 60 * kMiB) continue;
      for (uint32_t k = columns.starts[c]; k < columns.starts[c + 1]; ++k) {
        const StackBand& band = columns.bands[columns.slice_bands[k]];
        if (band.kind != BandKind::kBlock || blocks.block_bytes(band.block) < 30 * kMiB) continue;
        return blocks.birth(band.block) < 10 ? 1 : 2;
      }
    }
    return 0;
  };
  for (const char* bands : {"stack:block:life", "stack:line:life"}) {
    SCOPED_TRACE(bands);
    panel().options.by_event = false;
    show(bands);
    EXPECT_EQ(line_at_the_bottom(), 2) << "by time";
    panel().options.by_event = true;
    frame(4);
    EXPECT_EQ(line_at_the_bottom(), 1) << "by event";
  }
}

// Nobody marked the steps of these traces, or their optimizer did.
TEST_F(StackPanelTest, DetectedStepsAreSaidToBeDetected) {
  Steps steps;
  EXPECT_EQ(how_steps_were_detected(steps), "");
  steps.source = StepSource::kMarks;
  EXPECT_EQ(how_steps_were_detected(steps), "");
  steps.source = StepSource::kLoop;
  steps.confidence = 0.83;
  EXPECT_EQ(how_steps_were_detected(steps), "detected from the program's loop, 83 % confidence");
  for (const char* name : {"/torch/training.tier2.tmk", "/train"}) {
    SCOPED_TRACE(name);
    open_file(std::string(TIDEMARK_TRACES) + name);
    const Steps& found = model().steps_of(model().lanes[selection().cursor.lane()]);
    const bool detected = !how_steps_were_detected(found).empty();
    shell_->show_only("timeline");
    frame(4);
    EXPECT_EQ(read_window("").find(without_spaces("steps (detected)")) != std::string::npos,
              detected);
    if (found.count() < 2) continue;
    show("stack:steps");
    EXPECT_EQ(read_window("").find("confidence") != std::string::npos, detected);
  }
}

}  // namespace
}  // namespace tidemark::view
