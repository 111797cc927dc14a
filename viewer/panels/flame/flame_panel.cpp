#include "viewer/panels/flame/flame_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "analysis/wording.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kRowPx = 21;
// Deeper recursion is cut off in the graph; the rows have all of it.
constexpr uint32_t kMostRows = 400;

constexpr const char* kViews[] = {"icicle", "flame", "rows"};
constexpr const char* kOrders[] = {"top-down", "bottom-up", "module"};
constexpr const char* kBlocks[] = {"live", "allocated", "freed", "kept", "short-lived"};

// To add up this many takes too little time to notice.
constexpr uint32_t kManyEvents = 500'000;

// Orange was allocated, blue was freed. People with any kind of colour vision can tell them apart,
// and each box shows the sign.
constexpr Rgb kMore{230, 159, 0};
constexpr Rgb kLess{86, 180, 233};

Rgb change_colour(const FlameNode& node) {
  const double share =
      node.bytes == 0 ? 0 : static_cast<double>(node.net) / static_cast<double>(node.bytes);
  const Rgb grey = theme().dark ? Rgb{92, 98, 108} : Rgb{200, 204, 212};
  const Rgb goal = share > 0 ? kMore : kLess;
  const double by = std::min(1.0, std::abs(share));
  const auto mix = [by](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + (b - a) * by); };
  return {mix(grey.r, goal.r), mix(grey.g, goal.g), mix(grey.b, goal.b)};
}

}  // namespace

FlamePanel::Source FlamePanel::wanted_source(const Model& model, const Selection& selection) const {
  Source source{&model, 0, order, blocks, selection.cursor.lane(), 0, 0};
  if (blocks == FlameBlocks::kLive) {
    source.version = selection.version();
  } else {
    const TimeRange time = selection.highlights.measure
                               ? *selection.highlights.measure
                               : absolute_range(model, selection.view.range());
    source.begin_ns = time.begin_ns;
    source.end_ns = time.end_ns;
  }
  return source;
}

void FlamePanel::update(const Model& model, Selection& selection) {
  work_.poll();
  const Source wanted = wanted_source(model, selection);
  if (wanted == source_) {
    if (waiting_ && !work_.busy()) {
      waiting_ = false;
      adopt(model, selection, work_.value());
    }
    if (searched_ != selection.highlights.search) search(model, selection);
    return;
  }
  if (source_.model != &model || source_.order != order) zoom_key_ = 0;
  source_ = wanted;
  make_tree(model, selection);
}

void FlamePanel::make_tree(const Model& model, Selection& selection) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  if (blocks != FlameBlocks::kLive) {
    comparing_ = false;
    const auto part = static_cast<StretchPart>(static_cast<int>(blocks) - 1);
    const bool at_once = patient || events_of(*lane.memory, source_.time()).count() < kManyEvents;
    work_.wish(
        [held = model.weak_from_this().lock(), memory = lane.memory,
         &process = model.process_of(lane), part, time = source_.time(), way = order] {
          const std::vector<uint32_t> found = blocks_in(*memory, time, part);
          FlameTree tree = way == FlameOrder::kModule
                               ? FlameTree::by_module({process, *memory, found})
                               : FlameTree::of_blocks(*memory, process.names, found, way);
          tree.older_bytes = older_bytes(*memory, time, found);
          return tree;
        },
        at_once);
    waiting_ = !at_once;
    adopt(model, selection, at_once ? work_.value() : FlameTree{{FlameNode{}}, 0, {}, 0});
    return;
  }
  waiting_ = false;
  const std::optional<Compared> before = selection.compared(model);
  comparing_ = before.has_value();
  other_text_ = before ? &before->model.text_of(before->lane) : nullptr;
  const Moment& moment = selection.cursor.moment(model);
  if (order == FlameOrder::kModule) {
    const auto side = [](const Model& of, const Lane& at, const Moment& when) {
      return ModuleSide{of.process_of(at), *at.memory, when.state.live, &when.state};
    };
    const ModuleSide now = side(model, lane, moment);
    adopt(model, selection,
          before
              ? FlameTree::module_difference(side(before->model, before->lane, before->moment), now)
              : FlameTree::by_module(now));
    return;
  }
  const FlameSide now{model.process_of(lane).names, moment.live};
  adopt(model, selection,
        before ? FlameTree::difference({other_text_->names(), before->moment.live}, now, order)
               : FlameTree::of(now, order));
}

void FlamePanel::adopt(const Model& model, const Selection& selection, FlameTree tree) {
  tree_ = std::move(tree);
  rows_.adopt(tree_);
  search(model, selection);
}

void FlamePanel::search(const Model& model, const Selection& selection) {
  searched_ = selection.highlights.search;
  matches_ = {};
  if (searched_.empty()) return;
  const std::string wanted = folded(searched_);
  const size_t count = tree_.nodes.size();
  matches_.here.resize(count);
  matches_.inside.resize(count);
  std::vector<bool> below(count);  // at or below a match: its bytes are already counted
  for (size_t i = 0; i < count; ++i) {
    const FlameNode& node = tree_.nodes[i];
    const std::string name = folded(name_of(model, selection, node));
    matches_.here[i] = i != 0 && name.find(wanted) != std::string::npos;
    const bool counted_above = i != 0 && below[node.parent];
    if (matches_.here[i] && !counted_above) matches_.bytes += node.bytes;
    below[i] = matches_.here[i] || counted_above;
  }
  for (size_t i = count; i-- > 1;) {
    if (matches_.here[i] || matches_.inside[i]) matches_.inside[tree_.nodes[i].parent] = true;
  }
}

std::string_view FlamePanel::name_of(const Model& model, const Selection& selection,
                                     const FlameNode& node) const {
  switch (node.kind) {
    case FlameKind::kRoot:
      return "all blocks";
    case FlameKind::kNoStack:
      return text_of(model, selection, node).no_stack();
    case FlameKind::kBeforeRecording:
      return kBeforeRecordingText;
    case FlameKind::kPending:
      return kPendingText;
    case FlameKind::kModule:
      return tree_.names[node.frame];
    case FlameKind::kFrame:
      return text_of(model, selection, node).frame(node.frame);
  }
  return "";
}

const FrameText& FlamePanel::text_of(const Model& model, const Selection& selection,
                                     const FlameNode& node) const {
  return node.other ? *other_text_ : model.text_of(model.lanes[selection.cursor.lane()]);
}

std::vector<std::string> FlamePanel::ways() {
  std::vector<std::string> words;
  words.insert(words.end(), std::begin(kViews), std::end(kViews));
  words.insert(words.end(), std::begin(kOrders), std::end(kOrders));
  words.insert(words.end(), std::begin(kBlocks), std::end(kBlocks));
  return words;
}

bool FlamePanel::show_as(std::string_view way) {
  const auto named = [&](const char* name) { return way == name; };
  const auto* v = std::find_if(std::begin(kViews), std::end(kViews), named);
  const auto* o = std::find_if(std::begin(kOrders), std::end(kOrders), named);
  if (v != std::end(kViews)) view = static_cast<FlameView>(v - kViews);
  if (o != std::end(kOrders)) order = static_cast<FlameOrder>(o - kOrders);
  const auto* b = std::find_if(std::begin(kBlocks), std::end(kBlocks), named);
  if (b != std::end(kBlocks)) blocks = static_cast<FlameBlocks>(b - kBlocks);
  return v != std::end(kViews) || o != std::end(kOrders) || b != std::end(kBlocks);
}

void FlamePanel::draw_views() {
  const auto choose = [](const char* id, int now, std::span<const char* const> names, float width) {
    flow(width);
    ImGui::SetNextItemWidth(width);
    ImGui::Combo(id, &now, names.data(), static_cast<int>(names.size()));
    return now;
  };
  blocks = static_cast<FlameBlocks>(choose("##blocks", static_cast<int>(blocks), kBlocks, px(110)));
  explain(
      "Live: at the cursor. The others are about the measured time (shift-drag, or click a range), "
      "else the time in view: allocated in it, freed in it, kept after it, or short-lived, which "
      "means allocated and freed in it.");
  view = static_cast<FlameView>(choose("##view", static_cast<int>(view), kViews, px(90)));
  explain("Icicle: root at the top. Flame: root at the bottom. Rows: a tree with numbers.");
  order = static_cast<FlameOrder>(choose("##order", static_cast<int>(order), kOrders, px(118)));
  explain(
      "Top-down: from the outermost function to the line that allocated. Bottom-up: from that line "
      "to its callers, so that each line has one box. Module: nn.Modules in those that "
      "contain them.");
}

std::string FlamePanel::whole_text(const Selection& selection) const {
  const FlameNode& root = tree_.nodes.front();
  const std::string bytes =
      fmt::format("{} in {}", size_text(root.bytes), counted(root.count, "block"));
  if (blocks == FlameBlocks::kLive) return bytes;
  // A view of everything has margins, in which nothing was recorded.
  const TraceModel& trace = source_.model->trace;
  const int64_t begin_ns = std::max(source_.begin_ns, trace.start_ns);
  const int64_t end_ns = std::min(source_.end_ns, trace.end_ns);
  const bool whole = begin_ns == trace.start_ns && end_ns == trace.end_ns;
  const std::string older =
      tree_.older_bytes == 0 ? "" : fmt::format(", {} of it older", size_text(tree_.older_bytes));
  return fmt::format("{} {} in the {}{}{}{}", bytes, kBlocks[static_cast<size_t>(blocks)],
                     whole ? "whole run of " : "",
                     span_text(static_cast<double>(std::max<int64_t>(end_ns - begin_ns, 0))),
                     whole                          ? ""
                     : selection.highlights.measure ? " measured"
                                                    : " in view",
                     older);
}

void FlamePanel::draw_toolbar(const Model& model, Selection& selection) {
  const FlameNode& root = tree_.nodes.front();
  ImGui::AlignTextToFramePadding();
  if (comparing_) {
    const bool in_time = !selection.comparison.reference()->other &&
                         selection.comparison.reference()->lane == selection.cursor.lane();
    text(fitted(fmt::format("{} {}", signed_size_text(root.net),
                            selection.comparison.text(model, selection.cursor)),
                ImGui::GetContentRegionAvail().x));
    flow(px(90));
    swatch(kMore);
    text(in_time ? "allocated" : "more");
    flow(px(70));
    swatch(kLess);
    text(in_time ? "freed" : "less");
  } else {
    text(whole_text(selection));
  }
  draw_views();
  if (blocks == FlameBlocks::kLive) {
    flow(px(150));
    if (ImGui::Button(selection.comparison.reference() ? "Stop comparing" : "Compare from here")) {
      selection.toggle_compare(model);
    }
    explain(
        "Remember this instant (C). Then move the cursor: the graph shows what was allocated and "
        "freed since.");
  }
  if (zoom_key_ != 0 && view != FlameView::kRows) {
    flow(px(90));
    if (ImGui::Button("Zoom out")) zoom_key_ = 0;
    explain("Show everything (right-click or Backspace goes up one level).");
  }
  if (matches_.any()) {
    const std::string found =
        matches_.bytes == 0 ? fmt::format("no function contains '{}'", searched_)
                            : fmt::format("{} ({}) match '{}'", size_text(matches_.bytes),
                                          percent_text(matches_.bytes, root.bytes), searched_);
    flow(width_of(found));
    text_in_colour(theme().accent, fitted(found, ImGui::GetContentRegionAvail().x));
  }
}

void FlamePanel::explain_node(const Model& model, const Selection& selection, const FlameNode& node,
                              const char* hint) {
  if (!ImGui::BeginTooltip()) return;
  const bool frame = node.kind == FlameKind::kFrame;
  text(wrapped(frame ? text_of(model, selection, node).names().frame_text(node.frame)
                     : std::string(name_of(model, selection, node)),
               px(560)));
  const FlameNode& root = tree_.nodes.front();
  if (comparing_) {
    text_dim(fmt::format("{} net, {} allocated and freed", signed_size_text(node.net),
                         size_text(node.bytes)));
  } else {
    text_dim(fmt::format("{}, {} of all, {}", size_text(node.bytes),
                         percent_text(node.bytes, root.bytes), counted(node.count, "block")));
  }
  text_dim(hint);
  ImGui::EndTooltip();
}

Rgb FlamePanel::colour_of(const Model& model, const Selection& selection,
                          const FlameNode& node) const {
  if (comparing_) return change_colour(node);
  if (node.kind == FlameKind::kPending) return shade(theme().pending, theme().dark ? -0.45 : 0.5);
  if (node.kind == FlameKind::kModule) return shade(stack_colour(node.frame + 1), 0.25);
  if (node.kind != FlameKind::kFrame) return theme().raised;
  // Own code stands out from libraries. Slightly different shades tell neighbours apart.
  const bool own = text_of(model, selection, node).is_own_code(node.frame);
  const Rgb library = theme().dark ? Rgb{62, 72, 88} : Rgb{206, 213, 223};
  const double variety = static_cast<double>(node.frame * 2654435761U >> 28) - 8;
  return shade(own ? Rgb{92, 164, 210} : library, variety / (own ? 70 : 100));
}

void FlamePanel::draw_node(const Model& model, const Selection& selection, uint32_t index, float x0,
                           float x1, float y, float height) {
  const FlameNode& node = tree_.nodes[index];
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Rgb colour = colour_of(model, selection, node);
  const bool found = !matches_.any() || matches_.here[index];
  const ImVec2 a(x0, y);
  const ImVec2 b(std::max(x1 - 1, x0 + 1), y + height - 1);
  draw.AddRectFilled(a, b, paint(colour, found ? 255 : 80), px(2));
  if (found && matches_.any()) draw.AddRect(a, b, paint(theme().cursor), px(2));
  std::string label(name_of(model, selection, node));
  if (x1 - x0 > px(120)) {
    label += "   " + (comparing_ ? signed_size_text(node.net) : size_text(node.bytes));
  }
  const Rgb ink = !found ? theme().dim : is_light(colour) ? Rgb{12, 14, 18} : Rgb{255, 255, 255};
  draw_text_in(draw, a, b, paint(ink), label);
  if (!ImGui::IsWindowHovered() || !ImGui::IsMouseHoveringRect(a, {x1, y + height})) return;
  draw.AddRect(a, b, paint(theme().cursor, 200), px(2));
  explain_node(model, selection, node, "click: zoom in   right-click: zoom out");
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) zoom_key_ = node.key;
}

void FlamePanel::draw_boxes(const Model& model, const Selection& selection, const Place& place) {
  const uint32_t zoomed = tree_.find(zoom_key_);
  const FlameNode root = tree_.nodes[zoomed];
  std::vector<bool> above(tree_.nodes.size());
  for (uint32_t i = zoomed; i != 0; i = tree_.nodes[i].parent) above[tree_.nodes[i].parent] = true;
  const double scale = root.bytes == 0 ? 0 : double{place.width} / static_cast<double>(root.bytes);
  const float height = std::abs(place.row_px);
  const float top = ImGui::GetWindowPos().y - height;
  const float bottom = ImGui::GetWindowPos().y + ImGui::GetWindowHeight();
  for (uint32_t i = 0; i < tree_.nodes.size(); ++i) {
    const FlameNode& node = tree_.nodes[i];
    const float y = place.y(node.depth);
    if (node.depth >= kMostRows || y < top || y > bottom) continue;
    if (above[i]) {
      draw_node(model, selection, i, place.left, place.left + place.width, y, height);
      continue;
    }
    const bool inside = node.depth >= root.depth && node.begin >= root.begin &&
                        node.begin + node.bytes <= root.begin + root.bytes;
    if (!inside) continue;
    const float x0 =
        place.left + static_cast<float>(static_cast<double>(node.begin - root.begin) * scale);
    const float x1 = x0 + static_cast<float>(static_cast<double>(node.bytes) * scale);
    if (x1 - x0 < 0.7F) continue;
    draw_node(model, selection, i, x0, x1, y, height);
  }
}

void FlamePanel::draw_graph(const Model& model, Selection& selection) {
  // The views scroll independently, since the root of a flame is at the bottom.
  ImGui::BeginChild(view == FlameView::kFlame ? "##flame" : "##icicle");
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const uint32_t rows = std::min(tree_.depth + 1, kMostRows);
  // Few rows get a little taller.
  const float height =
      std::floor(std::clamp(room.y / static_cast<float>(rows), px(kRowPx), px(kRowPx * 1.4F)));
  const float needed = static_cast<float>(rows) * height;
  ImGui::Dummy({room.x, needed});
  Place place{at.x, room.x, at.y, height};
  if (view == FlameView::kFlame) {
    place.root_y = at.y + std::max(needed, room.y) - height;
    place.row_px = -height;
    if (ImGui::IsWindowAppearing()) ImGui::SetScrollY(needed);
  }
  draw_boxes(model, selection, place);
  const bool back = ImGui::IsMouseClicked(ImGuiMouseButton_Right) || pressed(Command::kFlameOut);
  if (ImGui::IsWindowHovered() && back && !ImGui::GetIO().WantTextInput) {
    zoom_key_ = tree_.nodes[tree_.nodes[tree_.find(zoom_key_)].parent].key;
  }
  ImGui::EndChild();
}

void FlamePanel::draw_rows(const Model& model, const Selection& selection) {
  rows_.draw(
      tree_, comparing_, matches_,
      [&](const FlameNode& node) { return std::string(name_of(model, selection, node)); },
      [&](const FlameNode& node) { return colour_of(model, selection, node); },
      [&](const FlameNode& node) {
        explain_node(model, selection, node, "click: expand or collapse");
      });
}

void FlamePanel::draw(const Model& model, Selection& selection) {
  if (selection.cursor.lane() >= model.lanes.size()) {
    text_dim("This trace has no allocator history.");
    return;
  }
  update(model, selection);
  draw_toolbar(model, selection);
  update(model, selection);
  if (waiting_) {
    text_dim("Adding up ...");
  } else if (tree_.nodes.front().bytes == 0) {
    text_dim(comparing_                     ? "The same blocks are live at both instants."
             : blocks == FlameBlocks::kLive ? "Nothing is allocated at this instant."
                                            : "No such blocks in this time.");
  } else if (view == FlameView::kRows) {
    draw_rows(model, selection);
  } else {
    draw_graph(model, selection);
  }
}

}  // namespace tidemark::view
