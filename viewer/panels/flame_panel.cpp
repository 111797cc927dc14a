#include "viewer/panels/flame_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <vector>

#include "export/names.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kRowPx = 21;
// A recursion of any depth is drawn to here; the rest is in the tooltip of the tables.
constexpr uint32_t kMostRows = 400;

// Blue went, orange came.
Rgb change_colour(const FlameNode& node) {
  const double share =
      node.bytes == 0 ? 0 : static_cast<double>(node.net) / static_cast<double>(node.bytes);
  const Rgb grey = theme().dark ? Rgb{92, 98, 108} : Rgb{200, 204, 212};
  const Rgb goal = share > 0 ? Rgb{230, 159, 0} : Rgb{86, 180, 233};
  const double by = std::min(1.0, std::abs(share));
  const auto mix = [by](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + (b - a) * by); };
  return {mix(grey.r, goal.r), mix(grey.g, goal.g), mix(grey.b, goal.b)};
}

std::string_view name_of(FrameText& text, const FlameNode& node) {
  switch (node.kind) {
    case FlameKind::kRoot:
      return "all live blocks";
    case FlameKind::kNoStack:
      return kNoStackText;
    case FlameKind::kBeforeRecording:
      return kBeforeRecordingText;
    case FlameKind::kFrame:
      return text.frame(node.frame);
  }
  return "";
}

}  // namespace

void FlamePanel::update(const Model& model, Selection& selection) {
  if (model_ == &model && version_ == selection.version()) return;
  if (model_ != &model) root_stack_ = 0;
  model_ = &model;
  version_ = selection.version();
  const Lane& lane = model.lanes[selection.lane];
  const Dictionary& names = model.process_of(lane).names;
  const std::optional<Compared> before = selection.compared(model);
  comparing_ = before.has_value();
  other_text_ = before ? &before->model.text_of(before->lane) : nullptr;
  const FlameSide now{*lane.memory, names, selection.moment(model).state};
  tree_ = before ? FlameTree::difference(
                       {*before->lane.memory, other_text_->names(), before->moment.state}, now)
                 : FlameTree::of(now);
}

FrameText& FlamePanel::text_of(const Model& model, const Selection& selection,
                               const FlameNode& node) const {
  return node.other ? *other_text_ : model.text_of(model.lanes[selection.lane]);
}

void FlamePanel::draw_toolbar(const Model& model, Selection& selection) {
  const FlameNode& root = tree_.nodes.front();
  ImGui::AlignTextToFramePadding();
  if (comparing_) {
    const bool in_time = !selection.compare->other && selection.compare->lane == selection.lane;
    text(fitted(fmt::format("{} {}", signed_size_text(root.net), selection.compared_text(model)),
                ImGui::GetContentRegionAvail().x));
    flow(px(40));
    text_in_colour({230, 159, 0}, in_time ? "came" : "more");
    flow(px(40));
    text_in_colour({86, 180, 233}, in_time ? "went" : "less");
  } else {
    text(fmt::format("{} in {}", size_text(root.bytes), counted(root.count, "block")));
  }
  flow(px(150));
  if (ImGui::Button(selection.compare ? "Stop comparing" : "Compare from here")) {
    selection.toggle_compare();
  }
  explain(
      "Remember this instant (C). Then move the cursor: the graph shows what came and went in "
      "between.");
  if (root_stack_ != 0) {
    flow(px(90));
    if (ImGui::Button("Zoom out")) root_stack_ = 0;
    explain("Show everything again (right click or Backspace).");
  }
}

void FlamePanel::explain_node(const Model& model, const Selection& selection,
                              const FlameNode& node) {
  if (!ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(px(560));
  if (node.kind == FlameKind::kFrame) {
    text(text_of(model, selection, node).names().frame_text(node.frame));
  } else {
    text(name_of(text_of(model, selection, node), node));
  }
  ImGui::PopTextWrapPos();
  const FlameNode& root = tree_.nodes.front();
  if (comparing_) {
    text_dim(fmt::format("{} net, {} moved", signed_size_text(node.net), size_text(node.bytes)));
  } else {
    text_dim(fmt::format("{}, {} of all, {}", size_text(node.bytes),
                         percent_text(node.bytes, root.bytes), counted(node.count, "block")));
  }
  text_dim("click: zoom in   right click: zoom out");
  ImGui::EndTooltip();
}

void FlamePanel::draw_node(const Model& model, Selection& selection, uint32_t index, float x0,
                           float x1, float y, float height) {
  const FlameNode& node = tree_.nodes[index];
  FrameText& names = text_of(model, selection, node);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  Rgb colour = theme().raised;
  if (comparing_) {
    colour = change_colour(node);
  } else if (node.kind == FlameKind::kFrame) {
    // Own code stands out from libraries; a little variety tells neighbours apart.
    const bool own = names.is_own_code(node.frame);
    const Rgb library = theme().dark ? Rgb{62, 72, 88} : Rgb{206, 213, 223};
    const double variety = static_cast<double>(node.frame * 2654435761U >> 28) - 8;
    colour = shade(own ? Rgb{92, 164, 210} : library, variety / (own ? 70 : 100));
  }
  bool found = true;
  const std::string wanted = lower_case(selection.search);
  const std::string_view name = name_of(names, node);
  if (!wanted.empty()) found = lower_case(name).find(wanted) != std::string::npos;
  const ImVec2 a(x0, y);
  const ImVec2 b(std::max(x1 - 1, x0 + 1), y + height - 1);
  draw.AddRectFilled(a, b, paint(colour, found ? 255 : 80), px(2));
  if (found && !wanted.empty()) draw.AddRect(a, b, paint(theme().cursor), px(2));
  std::string label(name);
  if (x1 - x0 > px(120)) {
    label += "   " + (comparing_ ? signed_size_text(node.net) : size_text(node.bytes));
  }
  const Rgb ink = !found ? theme().dim : is_light(colour) ? Rgb{12, 14, 18} : Rgb{255, 255, 255};
  draw_text_in(draw, a, b, paint(ink), label);
  if (!ImGui::IsWindowHovered() || !ImGui::IsMouseHoveringRect(a, {x1, y + height})) return;
  draw.AddRect(a, b, paint(theme().cursor, 200), px(2));
  explain_node(model, selection, node);
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) root_stack_ = node.stack;
}

void FlamePanel::draw_tree(const Model& model, Selection& selection) {
  ImGui::BeginChild("##flame");
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float height = px(kRowPx);
  const uint32_t rows = std::min(tree_.depth + 1, kMostRows);
  ImGui::Dummy({width, static_cast<float>(rows) * height});
  const uint32_t zoomed = tree_.find(root_stack_);
  const FlameNode root = tree_.nodes[zoomed];
  std::vector<bool> above(tree_.nodes.size());
  for (uint32_t i = zoomed; i != 0; i = tree_.nodes[i].parent) above[tree_.nodes[i].parent] = true;
  const double scale = root.bytes == 0 ? 0 : double{width} / static_cast<double>(root.bytes);
  const float top = ImGui::GetWindowPos().y - height;
  const float bottom = ImGui::GetWindowPos().y + ImGui::GetWindowHeight();
  for (uint32_t i = 0; i < tree_.nodes.size(); ++i) {
    const FlameNode& node = tree_.nodes[i];
    const float y = at.y + static_cast<float>(node.depth) * height;
    if (node.depth >= rows || y < top || y > bottom) continue;
    if (above[i]) {
      draw_node(model, selection, i, at.x, at.x + width, y, height);
      continue;
    }
    const bool inside = node.depth >= root.depth && node.begin >= root.begin &&
                        node.begin + node.bytes <= root.begin + root.bytes;
    if (!inside) continue;
    const float x0 =
        at.x + static_cast<float>(static_cast<double>(node.begin - root.begin) * scale);
    const float x1 = x0 + static_cast<float>(static_cast<double>(node.bytes) * scale);
    if (x1 - x0 < 0.7F) continue;
    draw_node(model, selection, i, x0, x1, y, height);
  }
  const bool back = ImGui::IsMouseClicked(ImGuiMouseButton_Right) ||
                    ImGui::IsKeyPressed(ImGuiKey_Backspace, false);
  if (ImGui::IsWindowHovered() && back && !ImGui::GetIO().WantTextInput) {
    root_stack_ = tree_.nodes[tree_.nodes[zoomed].parent].stack;
  }
  ImGui::EndChild();
}

void FlamePanel::draw(const Model& model, Selection& selection) {
  if (selection.lane >= model.lanes.size()) {
    text_dim("There is no allocator history in this trace.");
    return;
  }
  update(model, selection);
  draw_toolbar(model, selection);
  update(model, selection);
  if (tree_.nodes.front().bytes == 0) {
    text_dim(comparing_ ? "The same blocks were live at both instants."
                        : "Nothing was allocated at this instant.");
    return;
  }
  draw_tree(model, selection);
}

}  // namespace tidemark::view
