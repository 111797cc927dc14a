#include "viewer/panels/stack/stack_toolbar.h"

#include <imgui.h>

#include <algorithm>

#include "viewer/panels/timeline/time_axis.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr const char* kLifeWay = "life";
struct Switch {
  const char* word;
  bool StackPanelOptions::*option;
};
constexpr Switch kSwitches[] = {{"events", &StackPanelOptions::by_event},
                                {"fit", &StackPanelOptions::fit},
                                {"steps", &StackPanelOptions::steps}};

// Blocks are ordered among all of them, or within the band of their group.
std::string order_name(BandOrder order, StackBy by) {
  const std::string name =
      order == BandOrder::kBirth ? "oldest at the bottom" : "longest-lived at the bottom";
  return by == StackBy::kBlock ? name : name + " of each " + stack_way_name(by);
}

void draw_order(StackPanelOptions& options, StackBy by) {
  if (by == StackBy::kSegment) return;
  const float width = width_of(order_name(BandOrder::kLife, by)) + px(38);
  flow(width + px(10));
  ImGui::SetNextItemWidth(width);
  if (ImGui::BeginCombo("##order", order_name(options.order, by).c_str())) {
    for (const BandOrder order : {BandOrder::kBirth, BandOrder::kLife}) {
      if (ImGui::Selectable(order_name(order, by).c_str(), order == options.order)) {
        options.order = order;
      }
    }
    ImGui::EndCombo();
  }
  explain(
      by == StackBy::kBlock
          ? "By birth, as in PyTorch's page: the oldest block is at the bottom, and those above "
            "move down when it is freed. Longest-lived at the bottom: what stays is flat."
      : by == StackBy::kCategory
          ? "The order of blocks within a category. Categories are always in the same order, "
            "those that usually stay at the bottom."
          : "The order of blocks within a band. Of the bands themselves, those whose blocks "
            "live longest are at the bottom.");
}

void draw_colouring(ColourBy& by) {
  flow(px(110));
  ImGui::SetNextItemWidth(px(100));
  if (ImGui::BeginCombo("##colour", colouring_name(by))) {
    for (int i = 0; i < kColourings; ++i) {
      const auto one = static_cast<ColourBy>(i);
      if (ImGui::Selectable(colouring_name(one), one == by)) by = one;
    }
    ImGui::EndCombo();
  }
  explain("Colours, as in the memory map. Age: how old the block becomes.");
}

void draw_step_choice(const Model& model, const Lane& lane, StepPair& pair) {
  const int last = static_cast<int>(model.steps_of(lane).begun(lane.memory->event_count())) - 1;
  const auto choose = [&](const char* id, uint32_t& step) {
    int value = static_cast<int>(step);
    flow(px(100));
    ImGui::SetNextItemWidth(px(96));
    if (ImGui::InputInt(id, &value)) step = static_cast<uint32_t>(std::clamp(value, 0, last));
  };
  choose("##first", pair.ordinary);
  choose("##second", pair.unlike);
  explain("The two steps. Suggested: an ordinary one, and the one that is least like it.");
}

}  // namespace

bool StackPanelOptions::show_as(const std::string& way) {
  for (int i = 0; i < kStackWays; ++i) {
    if (way != stack_way_name(static_cast<StackBy>(i))) continue;
    by = static_cast<StackBy>(i);
    return true;
  }
  if (way == kLifeWay) {
    order = BandOrder::kLife;
    return true;
  }
  for (const Switch& s : kSwitches) {
    if (way != s.word) continue;
    this->*s.option = true;
    return true;
  }
  return false;
}

std::vector<std::string> StackPanelOptions::ways() {
  std::vector<std::string> words;
  for (int i = 0; i < kStackWays; ++i) words.emplace_back(stack_way_name(static_cast<StackBy>(i)));
  words.emplace_back(kLifeWay);
  for (const Switch& s : kSwitches) words.emplace_back(s.word);
  return words;
}

void draw_stack_toolbar(const Model& model, Selection& selection, StackPanelOptions& options,
                        StackBy by, std::optional<StepPair>& pair, SearchField& search) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  ImGui::AlignTextToFramePadding();
  text_dim("bands");
  ImGui::SameLine();
  ImGui::SetNextItemWidth(px(110));
  if (ImGui::BeginCombo("##by", stack_way_name(by))) {
    for (int i = 0; i < kStackWays; ++i) {
      const auto way = static_cast<StackBy>(i);
      if (!has_stack_way(model, lane, way)) continue;
      if (ImGui::Selectable(stack_way_name(way), way == by)) options.by = way;
    }
    ImGui::EndCombo();
  }
  explain(
      "What a band is. Blocks that are at least a pixel high are drawn on their own in every view; "
      "smaller ones are summed, and come out when you zoom in. Segments: what is reserved, with "
      "the free part hatched.");
  draw_order(options, by);
  if (by == StackBy::kBlock) draw_colouring(selection.colouring.by);
  flow(px(90));
  ImGui::Checkbox("fit height", &options.fit);
  explain("Scale to the highest band in view. Otherwise to the peak of the whole run.");
  if (!options.steps) {
    flow(px(90));
    ImGui::Checkbox("by event", &options.by_event);
    explain("Number the events on the axis instead of the time, as in PyTorch's page.");
  }
  if (model.steps_of(lane).count() > 1) {
    flow(px(130));
    ImGui::Checkbox("step against step", &options.steps);
    explain("One ordinary step above the one that is least like it, on one scale.");
    if (options.steps && pair) draw_step_choice(model, lane, *pair);
  } else if (model.report_ready && !lane.of_driver) {
    flow(px(110));
    text_dim("no steps known");
    explain(
        "The recording has fewer than two steps of training, or nothing in it tells where they "
        "begin: no optimizer, no annotations, no loop that repeats its allocations.");
  }
  search.draw(selection.highlights.search);
  if (!options.steps) note_left_out(selection.view);
}

}  // namespace tidemark::view
