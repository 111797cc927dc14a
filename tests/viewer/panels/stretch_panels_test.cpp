// A click on a range shows its memory, the flame graph shows a stretch of time, the axis counts
// events, and the list of actions is clicked through.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "viewer/panels/timeline/steps.h"

namespace tidemark::view {
namespace {

class StretchPanels : public Interaction {
 protected:
  static bool reads(const char* window, const std::string& what) {
    return read_window(window).find(without_spaces(what)) != std::string::npos;
  }
  const AllocationHistory& memory() { return *model().lanes[selection().cursor.lane()].memory; }
};

TEST_F(StretchPanels, AClickedRangeShowsItsMemory) {
  open();
  ASSERT_FALSE(model().marks.empty());
  ASSERT_FALSE(model().marks[0].rows.empty());
  const MarkRange range = model().marks[0].rows[0][model().marks[0].rows[0].size() / 2];
  selection().choose_range(model(), 0, range);
  frame(4);
  const ImGuiWindow* details = ImGui::FindWindowByName(DetailPanel::kTitle);
  EXPECT_TRUE(details->DockTabIsVisible);
  const StretchSums sums = sums_in(memory(), {range.begin_ns, range.end_ns});
  EXPECT_EQ(shell_->panels().detail.stretch().sums()[0].bytes, sums[0].bytes);
  EXPECT_TRUE(reads(DetailPanel::kTitle, size_text(sums[0].bytes) + " in")) << sums[0].bytes;
  EXPECT_TRUE(
      reads(DetailPanel::kTitle, std::string(model().trace.processes[0].names.string(range.name))));
}

// An event at the border of two steps is of one of them.
TEST_F(StretchPanels, AStepGrowsByWhatItAllocatesAndDoesNotFree) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  key(ImGuiKey_1);
  const Lane& lane = model().lanes[0];
  const std::vector<uint32_t>& starts = model().steps_of(lane).boundaries;
  ASSERT_GT(starts.size(), 3U);
  int64_t last_end = INT64_MIN;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t middle = (memory().time_ns[starts[i]] + memory().time_ns[starts[i + 1]]) / 2;
    measure_step(model(), lane, since_start(model(), middle), selection());
    frame(4);
    const TimeRange range = selection().highlights.measure.value();
    EXPECT_GT(range.begin_ns, last_end) << "step " << i;
    last_end = range.end_ns;
    const StretchSums& sums = shell_->panels().detail.stretch().sums();
    const bool fell = sums[0].bytes < sums[1].bytes;
    EXPECT_TRUE(reads(TimelinePanel::kTitle,
                      fell ? "fell by " + size_text(sums[1].bytes - sums[0].bytes)
                           : "grew by " + size_text(sums[0].bytes - sums[1].bytes)))
        << "step " << i << ": " << read_window(TimelinePanel::kTitle);
  }
}

// Also where there is no space for all.
TEST_F(StretchPanels, SomeStepsAlwaysHaveTheirNumber) {
  SyntheticOptions options;
  options.events = 400'000;
  open(options);
  const Lane& lane = model().lanes[0];
  const Steps& steps = model().steps_of(lane);
  ASSERT_GT(steps.count(), 60U);
  EXPECT_TRUE(reads("##lanes", "102030")) << read_window("##lanes");
  EXPECT_EQ(model().comma_step(lane, steps.boundaries[17]), ", " + steps.name(17));
  EXPECT_EQ(model().comma_step(lane, steps.boundaries[18] - 1), ", " + steps.name(17));
}

// Ranges are drawn below the curves: clicked along there until one is hit.
TEST_F(StretchPanels, RangesCanBeClicked) {
  open();
  const ImRect r = window(TimelinePanel::kTitle);
  for (float y = r.Max.y - 4; y > r.Min.y + 150 && selection().highlights.measured.empty();
       y -= 6) {
    click({r.Min.x + r.GetWidth() / 2, y});
  }
  EXPECT_FALSE(selection().highlights.measured.empty());
  EXPECT_TRUE(selection().highlights.measure.has_value());
}

TEST_F(StretchPanels, TheFlameGraphShowsAStretchOfTime) {
  open();
  key(ImGuiKey_3);
  frame(3);
  FlamePanel& flame = shell_->panels().flame;
  selection().highlights.measure =
      absolute_range(model(), {model().span_ns() * 0.2, model().span_ns() * 0.6});
  const StretchSums sums = sums_in(memory(), *selection().highlights.measure);
  const char* words[] = {"allocated", "freed", "kept", "short-lived"};
  for (size_t part = 0; part < kStretchParts; ++part) {
    ASSERT_TRUE(flame.show_as(words[part]));
    frame(2);
    EXPECT_EQ(flame.tree().nodes.front().bytes, sums[part].bytes) << words[part];
    EXPECT_EQ(flame.tree().nodes.front().count, sums[part].count) << words[part];
    const TimeRange& time = *selection().highlights.measure;
    EXPECT_TRUE(reads(FlamePanel::kTitle,
                      fmt::format("{} in the {} measured", words[part],
                                  span_text(static_cast<double>(time.end_ns - time.begin_ns)))));
    const float left = window(FlamePanel::kTitle).Min.x;
    for (const ImGuiWindow* w : ImGui::GetCurrentContext()->Windows) {
      const std::string_view name = w->Name;
      if (name.find("##icicle") == name.npos) continue;
      EXPECT_LT(w->Pos.x, left + 40) << "below the toolbar";
    }
  }
  EXPECT_EQ(sums[0].bytes, sums[2].bytes + sums[3].bytes) << "kept or short-lived";
  ASSERT_TRUE(flame.show_as("freed"));
  frame(2);
  EXPECT_TRUE(reads(FlamePanel::kTitle, size_text(sums[1].bytes - sums[3].bytes) + " of it older"))
      << read_window(FlamePanel::kTitle);
  // Without a measured time: what is in view.
  selection().highlights.measure.reset();
  ASSERT_TRUE(flame.show_as("allocated"));
  frame(2);
  EXPECT_GT(flame.tree().nodes.front().bytes, sums[0].bytes);
  EXPECT_TRUE(
      reads(FlamePanel::kTitle, "allocated in the whole run of " + span_text(model().span_ns())))
      << "without the margins of the view";
  selection().view.show(model().span_ns() * 0.5, model().span_ns() * 0.75);
  frame(2);
  EXPECT_TRUE(
      reads(FlamePanel::kTitle, "in the " + span_text(model().span_ns() * 0.25) + " in view"));
  selection().view.fit();
  ASSERT_TRUE(flame.show_as("live"));
  frame(2);
  EXPECT_EQ(flame.tree().nodes.front().bytes,
            selection().cursor.moment(model()).state.totals.active);
}

TEST_F(StretchPanels, TheAxisCountsEvents) {
  open();
  shell_->panels().timeline.options.by_event = true;
  frame(3);
  EXPECT_TRUE(
      reads(TimelinePanel::kTitle, "event " + grouped(uint64_t{selection().cursor.event()} + 1)));
  // A click in the middle goes to the event in the middle, whenever that was.
  click(in_timeline(0.5F, 0.1F));
  const auto middle = static_cast<double>(memory().event_count()) / 2;
  EXPECT_NEAR(selection().cursor.event(), middle, middle * 0.1);
  // Zoomed in around it, it stays in view.
  const uint32_t event = selection().cursor.event();
  const VisibleRange before = selection().view.range();
  move(in_timeline(0.5F, 0.1F));
  ImGui::GetIO().AddMouseWheelEvent(0, 3);
  frame(3);
  EXPECT_LT(selection().view.range().span(), before.span());
  EXPECT_EQ(selection().cursor.event(), event);
  const double now = selection().cursor.time(model());
  EXPECT_GE(now, selection().view.range().begin);
  EXPECT_LE(now, selection().view.range().end);
  // The strip of the whole run has the same axis: a click shows the events there.
  ImGui::GetIO().AddMouseWheelEvent(0, 6);
  frame(3);
  const ImRect r = window(TimelinePanel::kTitle);
  const EventAxis axis(memory(), model().trace.start_ns);
  const auto middle_of_view = [&] {
    const VisibleRange view = selection().view.range();
    return (axis.position(view.begin) + axis.position(view.end)) / 2;
  };
  const double was = middle_of_view();
  const float x = r.Min.x + 110 + (r.GetWidth() - 140) * 0.8F;
  for (float y = r.Min.y + 30; y < r.Min.y + 160 && middle_of_view() == was; y += 8) click({x, y});
  EXPECT_NEAR(middle_of_view(), memory().event_count() * 0.8, memory().event_count() * 0.05);
}

TEST_F(StretchPanels, ActionsAreClickedThrough) {
  open();
  selection().set_event(model(), 0, 2000);
  shell_->panels().tables.show_table("Actions");
  key(ImGuiKey_4);
  frame(6);
  EXPECT_TRUE(reads(TablesPanel::kTitle, "allocate"));
  EXPECT_TRUE(reads("##actions", grouped(2001))) << "the cursor's row is in view";
  const ImRect r = window(TablesPanel::kTitle);
  const uint32_t before = selection().cursor.event();
  click({r.Min.x + 200, r.Min.y + r.GetHeight() * 0.8F});
  EXPECT_NE(selection().cursor.event(), before);
  EXPECT_NEAR(selection().cursor.event(), before, 40);
}

TEST_F(StretchPanels, KeysInTheListOfActionsChooseTheBlock) {
  open();
  selection().set_event(model(), 0, 2000);
  shell_->panels().tables.show_table("Actions");
  key(ImGuiKey_4);
  frame(6);
  for (int i = 0; i < 5; ++i) {
    key(ImGuiKey_RightArrow);
    const uint32_t event = selection().cursor.event();
    EXPECT_EQ(event, 2001U + static_cast<uint32_t>(i));
    const Change change = memory().change[event];
    if (change == Change::kGrow || change == Change::kShrink) continue;
    EXPECT_EQ(selection().highlights.allocation.value(), memory().subject[event]);
  }
  // With another table in front, they only move the cursor.
  shell_->panels().tables.show_table("Stacks");
  frame(3);
  selection().choose_allocation(3);
  key(ImGuiKey_RightArrow);
  EXPECT_EQ(selection().highlights.allocation.value(), 3U);
}

// What was chosen elsewhere is brought into view, once.
TEST_F(StretchPanels, TheMapAndTheTableGoToTheChosenBlock) {
  open();
  key(ImGuiKey_2);
  frame(3);
  const Moment& moment = selection().cursor.moment(model());
  const SegmentRange& segment = moment.state.segments.back();
  const std::string row = fmt::format("{:#x}", segment.address);
  ASSERT_FALSE(reads("##rows", row)) << "too few segments to scroll";
  const auto in_segment = [&](uint32_t b) {
    return memory().allocations[b].address - segment.address < segment.size_bytes;
  };
  const auto block = std::find_if(moment.state.live.begin(), moment.state.live.end(), in_segment);
  ASSERT_NE(block, moment.state.live.end());
  selection().choose_allocation(*block);
  frame(4);
  key(ImGuiKey_2);
  EXPECT_TRUE(reads("##rows", row));
  ImGuiWindow* rows = nullptr;
  for (ImGuiWindow* w : ImGui::GetCurrentContext()->Windows) {
    if (std::string_view(w->Name).find("##rows") != std::string_view::npos) rows = w;
  }
  ASSERT_NE(rows, nullptr);
  ImGui::SetScrollY(rows, 0);
  frame(4);
  EXPECT_FALSE(reads("##rows", row)) << "one can look elsewhere";

  shell_->panels().tables.show_table("Allocations");
  key(ImGuiKey_4);
  frame(4);
  const uint32_t smallest = *std::min_element(
      moment.state.live.begin(), moment.state.live.end(), [&](uint32_t a, uint32_t b) {
        return memory().allocations[a].block_bytes < memory().allocations[b].block_bytes;
      });
  selection().choose_allocation(smallest);
  frame(4);
  key(ImGuiKey_4);
  EXPECT_TRUE(reads("##allocations", fmt::format("{:#x}", memory().allocations[smallest].address)))
      << read_window("##allocations");
}

}  // namespace
}  // namespace tidemark::view
