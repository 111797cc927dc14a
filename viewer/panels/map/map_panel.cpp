#include "viewer/panels/map/map_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kRowPx = 22;
constexpr float kLegendPx = 200;    // most for the name of a stack in the legend
constexpr size_t kStacksNamed = 6;  // and modules, in the legend; the tables have all

std::string facts_text(const Model& model, const Moment& moment) {
  const MemoryState& state = moment.state;
  if (model.lanes[moment.lane].of_driver) {
    return fmt::format("{} in {} of the driver", size_text(state.totals.reserved),
                       counted(state.segments.size(), "allocation"));
  }
  std::string text =
      fmt::format("{} free in {} of {}", size_text(state.free_bytes()),
                  counted(state.holes.size(), "hole"), counted(state.segments.size(), "segment"));
  if (state.holes.size() > 1) text += ", the largest " + size_text(state.largest_hole_bytes());
  return text;
}

// A piece of the map, and what it means.
template <typename Fill>
void hatched_entry(const std::string& label, const Fill& fill) {
  flow(width_of(label) + px(40));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size(px(24), ImGui::GetTextLineHeight());
  fill(at + ImVec2(0, px(2)), at + size - ImVec2(0, px(2)));
  ImGui::Dummy(size);
  ImGui::SameLine();
  text_dim(label);
}

}  // namespace

void show_hole(Selection& selection, uint64_t address) {
  selection.choose_hole(address);
  selection.requests.beside = MapPanel::kTitle;
}

void draw_largest_hole_button(Selection& selection, const MemoryState& state) {
  if (state.holes.empty()) return;
  flow(px(60));
  if (ImGui::SmallButton("Show##largest_hole")) show_hole(selection, state.largest_hole()->address);
  explain("Go to the largest hole.");
}

void MapPanel::draw_toolbar(const Model& model, Selection& selection, const Moment& moment) {
  ImGui::AlignTextToFramePadding();
  text_dim("colour by");
  ImGui::SameLine();
  ImGui::SetNextItemWidth(px(110));
  const char* names[kColourings];
  for (int i = 0; i < kColourings; ++i) names[i] = colouring_name(static_cast<ColourBy>(i));
  int colour = static_cast<int>(selection.colouring.by);
  if (ImGui::Combo("##colour", &colour, names, kColourings)) {
    selection.colouring.by = static_cast<ColourBy>(colour);
  }
  explain(
      "Age and size: from dark (old, small) to bright (young, large). Owner: the library that "
      "allocated the memory from the driver. Module: the nn.Module that it belongs to.");
  flow(px(150));
  text_dim("order");
  ImGui::SameLine();
  ImGui::SetNextItemWidth(px(110));
  int order = static_cast<int>(order_);
  if (ImGui::Combo("##order", &order, "address\0size\0free bytes\0")) {
    order_ = static_cast<RowOrder>(order);
  }
  flow(px(90));
  ImGui::Checkbox("to scale", &to_scale_);
  explain("Draw segments to scale. Otherwise each fills its row.");
  const std::string facts = facts_text(model, moment);
  flow(width_of(facts));
  text_dim(facts);
  draw_largest_hole_button(selection, moment.state);
  // A slider over events is exact where many events share a time.
  const AllocationHistory& memory = *model.lanes[selection.cursor.lane()].memory;
  if (memory.event_count() > 1) {
    uint32_t event = selection.cursor.event();
    const uint32_t least = memory.first_state();
    const uint32_t most = memory.event_count() - 1;
    const uint32_t count = memory.event_number(most);
    ImGui::AlignTextToFramePadding();
    text(fmt::format("{}   {}", selection.cursor.event_text(model),
                     instant_text(selection.cursor.time(model), model.span_ns())));
    // The slider begins after the longest possible text, so that it does not move while dragged.
    const std::string longest = fmt::format("event {0} of {0}   +00.000000 ms", grouped(count));
    const float label = ImGui::GetCursorPosX() + width_of(longest) + px(12);
    if (ImGui::GetContentRegionMax().x > label + px(160)) ImGui::SameLine(label);
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    if (ImGui::SliderScalar("##scrub", ImGuiDataType_U32, &event, &least, &most, "",
                            ImGuiSliderFlags_NoInput)) {
      selection.set_event(model, selection.cursor.lane(), event);
      selection.reveal_cursor(model);
    }
    explain("Drag to move through the history. The arrow keys move by one event.");
  }
}

void MapPanel::make_legend(const Model& model, ColourBy by, const Moment& moment) {
  legend_of_ = by;
  legend_final_ = model.report_ready;
  const bool many = by == ColourBy::kStack || by == ColourBy::kModule;
  legend_ = colour_rows(model, by, moment, many ? kStacksNamed : SIZE_MAX);
  if (by == ColourBy::kAge || by == ColourBy::kSize) return;
  if (const uint64_t pending = moment.state.totals.pending(); pending != 0) {
    legend_.push_back({theme().pending, std::string(kPendingText), pending});
  }
}

void MapPanel::draw_legend(ColourBy by) {
  if (by == ColourBy::kAge || by == ColourBy::kSize) {
    const bool age = by == ColourBy::kAge;
    colour_scale(age ? "old" : "512 B", age ? "young" : "16.0 GiB");
    return;
  }
  bool first = true;
  for (const ColourRow& s : legend_) {
    const std::string label =
        fmt::format("{} {}", fitted_line(s.name, px(kLegendPx)), size_text(s.bytes));
    const auto swatches = static_cast<float>(1 + s.others.size());
    if (!first) flow(width_of(label) + px(24) * swatches);
    first = false;
    swatch(s.colour);
    for (const Rgb& other : s.others) swatch(other);
    text_dim(label);
  }
}

// Only where some of it is in private pools, which no other request can use.
void MapPanel::draw_free_legend(const MemoryState& state) {
  const uint64_t of_pools = rows_.facts().private_free;
  if (of_pools == 0) return;
  const uint64_t free = state.free_bytes();
  const auto entry = [](const std::string& label, bool of_private_pool) {
    hatched_entry(label,
                  [&](ImVec2 a, ImVec2 b) { hatch_free(a, b, of_private_pool, theme().dim, 200); });
  };
  entry(size_text(free - std::min(of_pools, free)) + " free in the default pool", false);
  entry(size_text(of_pools) + " free in private pools, for them only", true);
}

void MapPanel::draw_asleep_legend() {
  uint64_t bytes = 0;
  for (const AddressRange& part : rows_.facts().asleep) bytes += part.bytes();
  if (bytes == 0) return;
  const std::string label = fmt::format("{} {}", size_text(bytes), owner_meaning(kNotResident));
  hatched_entry(label, [](ImVec2 a, ImVec2 b) {
    ImGui::GetWindowDrawList()->AddRectFilled(a, b, paint(theme().dim));
    hatch_asleep(a, b);
  });
}

double MapPanel::width_share(const Moment& moment, uint64_t bytes) const {
  if (!to_scale_) return 1;
  const uint64_t largest = moment.layout.largest_segment_bytes();
  const uint64_t whole = request_ ? std::max(largest, request_->oom->requested_bytes) : largest;
  return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(whole, 1));
}

void MapPanel::draw_request(const Model& model, Selection& selection, const Moment& moment,
                            bool scrolls) {
  ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
  text_wrapped(
      why_it_failed(model, model.lanes[moment.lane], *request_, rows_.facts().largest_hole));
  ImGui::PopStyleColor();
  const float room =
      ImGui::GetContentRegionAvail().x - (scrolls ? ImGui::GetStyle().ScrollbarSize : 0);
  const float label = rows_.label_width(room);
  const double share = width_share(moment, request_->oom->requested_bytes);
  const float width = std::max(static_cast<float>(share) * std::max(room - label, 10.0F), 6.0F);
  if (draw_failed_request(*request_, label, width, px(kRowPx))) {
    show_hole(selection, request_->usable.largest_at);
  }
}

void MapPanel::update(const Model& model, Selection& selection, const Moment& moment) {
  if (model_ != &model || version_ != selection.version() || made_order_ != order_) {
    model_ = &model;
    version_ = selection.version();
    made_order_ = order_;
    segments_ = moment.layout.rows(order_);
    rows_.adopt(MapFacts::of(model, selection.cursor, moment));
    make_legend(model, selection.colouring.by, moment);
    request_ = failed_request(model, selection.cursor, moment);
  }
  const bool stale = legend_of_ != selection.colouring.by || legend_final_ != model.report_ready;
  if (stale) make_legend(model, selection.colouring.by, moment);
}

void MapPanel::follow_chosen(const Model& model, const Selection& selection, const Moment& moment,
                             float row_height) {
  std::optional<uint64_t> address = selection.highlights.hole;
  const AllocationColumns& blocks = model.lanes[moment.lane].memory->allocations;
  if (const auto chosen = selection.highlights.allocation;
      chosen && *chosen < blocks.size() && blocks[*chosen].alive_at(moment.event)) {
    address = blocks[*chosen].address;
  }
  scroll_.follow(address, row_height, 0, [&](uint64_t at) -> std::optional<size_t> {
    const auto row = std::find(segments_.begin(), segments_.end(), moment.layout.segment_of(at));
    if (row == segments_.end()) return std::nullopt;
    return static_cast<size_t>(row - segments_.begin());
  });
}

void MapPanel::draw(const Model& model, Selection& selection) {
  if (selection.cursor.lane() >= model.lanes.size()) {
    text_dim("This trace has no allocator history.");
    return;
  }
  draw_toolbar(model, selection, selection.cursor.moment(model));
  const Moment& moment = selection.cursor.moment(model);
  update(model, selection, moment);
  if (moment.state.segments.empty()) {
    text_dim(moment.known ? "Nothing is reserved at this instant." : "looking up the blocks ...");
    return;
  }
  if (ImGui::GetContentRegionAvail().y > px(120)) {
    draw_legend(selection.colouring.by);
    draw_free_legend(moment.state);
    draw_asleep_legend();
  }
  const auto count = static_cast<float>(segments_.size());
  if (request_) {
    // Two lines for it and its bar.
    const float left = ImGui::GetContentRegionAvail().y - 2 * px(kRowPx);
    draw_request(model, selection, moment, left < count * px(kRowPx));
  }
  ImGui::BeginChild("##rows");
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
  // Rows are taller where there are few segments.
  const float room = ImGui::GetContentRegionAvail().y / count;
  const float height = std::floor(std::clamp(room, px(kRowPx), px(kRowPx * 1.6F)));
  follow_chosen(model, selection, moment, height);
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(segments_.size()), height);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const uint32_t segment = segments_[static_cast<size_t>(i)];
      rows_.draw(model, selection, moment, segment, height,
                 width_share(moment, moment.state.segments[segment].size_bytes));
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

}  // namespace tidemark::view
