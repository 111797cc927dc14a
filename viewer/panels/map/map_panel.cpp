#include "viewer/panels/map/map_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/block_colour.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kRowPx = 22;
constexpr float kLabelPx = 170;
constexpr float kRoomForAddressPx = 640;  // a narrower panel has none at the start of a row
constexpr float kRoomForStreamPx = 1300;  // beside the private pool of a segment
constexpr float kLabelMarginPx = 16;      // of the label of a hole
constexpr float kLegendPx = 200;          // most for the name of a stack in the legend
constexpr size_t kStacksNamed = 6;        // and modules, in the legend; the tables have all

std::string kind_of(const Model& model, const Lane& lane, const Allocation& a) {
  if (!lane.of_driver) return category_text(model, lane, a.category);
  const std::string_view owner = model.process_of(lane).names.string(a.metadata);
  return owner_title(owner.empty() ? "unknown" : owner);
}

void hatch_asleep(ImVec2 a, ImVec2 b) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(a, b, paint(theme().panel, 165));
  draw_hatch(draw, a, b, paint(theme().text, 120), px(5), true);
}

void explain_asleep(uint64_t asleep, uint64_t whole) {
  if (asleep == 0) return;
  text_in_colour(theme().warning, asleep < whole ? fmt::format("{} of it {}", size_text(asleep),
                                                               owner_meaning(kNotResident))
                                                 : std::string(owner_meaning(kNotResident)));
}

// On a background, so that it can be read over blocks and lines.
void write_label(const std::string& label, float middle, float top, float bottom, Rgb ink) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = std::round((top + bottom - ImGui::GetTextLineHeight()) / 2);
  const float x = std::round(middle - width_of(label) / 2);
  draw.AddRectFilled({x - px(5), y}, {x + width_of(label) + px(5), y + ImGui::GetTextLineHeight()},
                     paint(theme().panel, 235), px(3));
  draw.AddText({x, y}, paint(ink), label.c_str());
}

// What is left of the cells of a row.
struct RowLabel {
  bool has_address = false;
  float address = 0;  // its width
  float pool = 0;
  float whole = 0;
};
// `pool`: the longest name of a private pool among the rows; empty: there is none.
RowLabel row_label(float room, const std::string& pool) {
  RowLabel label;
  label.has_address = room > px(kRoomForAddressPx);
  // The same for all rows, whatever the widths of their digits.
  label.address = label.has_address ? width_of("0x000000000000") + px(16) : 0;
  if (!pool.empty() && label.has_address) {
    label.pool = width_of(room > px(kRoomForStreamPx) ? pool : "pool 00") + px(12);
  }
  label.whole = std::min(px(kLabelPx), room * 0.35F) + label.address + label.pool;
  return label;
}

}  // namespace

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
  const MemoryState& state = moment.state;
  const std::string facts =
      model.lanes[moment.lane].of_driver
          ? fmt::format("{} in {} of the driver", size_text(state.totals.reserved),
                        counted(state.segments.size(), "allocation"))
          : fmt::format(
                "{} free in {} of {}{}", size_text(state.free_bytes()),
                counted(state.holes.size(), "hole"), counted(state.segments.size(), "segment"),
                state.holes.size() < 2 ? ""
                                       : ", the largest " + size_text(state.largest_hole_bytes()));
  flow(width_of(facts));
  text_dim(facts);
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
    if (!first) flow(width_of(label) + px(24));
    first = false;
    swatch(s.colour);
    text_dim(label);
  }
}

void MapPanel::draw_asleep_legend() {
  uint64_t bytes = 0;
  for (const AddressRange& part : asleep_) bytes += part.bytes();
  if (bytes == 0) return;
  const std::string label = fmt::format("{} {}", size_text(bytes), owner_meaning(kNotResident));
  flow(width_of(label) + px(40));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size(px(24), ImGui::GetTextLineHeight());
  ImGui::GetWindowDrawList()->AddRectFilled(at + ImVec2(0, px(2)), at + size - ImVec2(0, px(2)),
                                            paint(theme().dim));
  hatch_asleep(at + ImVec2(0, px(2)), at + size - ImVec2(0, px(2)));
  ImGui::Dummy(size);
  ImGui::SameLine();
  text_dim(label);
}

void MapPanel::explain_cell(const Model& model, const Cursor& cursor, const Moment& moment,
                            const MapCell& cell, const SegmentRange& segment) {
  if (!ImGui::BeginTooltip()) return;
  const Lane& lane = model.lanes[moment.lane];
  if (cell.kind == CellKind::kHole) {
    text(fmt::format("hole of {}", size_text(cell.size_bytes)));
    text_dim(cell.size_bytes == largest_hole_
                 ? "the largest one: a larger request needs new memory from the card"
                 : "free, for requests that fit into it");
    text_dim("click: show what pins it");
  } else if (cell.kind == CellKind::kFolded) {
    text(fmt::format("{} in {}, {} free", counted(cell.blocks, "block"), size_text(cell.size_bytes),
                     size_text(cell.size_bytes - cell.used_bytes)));
    text_dim("too narrow to draw separately");
  } else {
    const Allocation& a = lane.memory->allocations[cell.allocation];
    const std::string bytes = size_text(a.block_bytes);
    text(a.requested_bytes == 0
             ? bytes
             : fmt::format("{}, requested {}", bytes, size_text(a.requested_bytes)));
    text(model.text_of(lane).headline(a.stack, a.seeded));
    if (moment.state.is_pending(*lane.memory, cell.allocation)) {
      text("pending free: freed by the program, but another stream may still be using it");
    }
    text_dim(fmt::format("{}, {}", kind_of(model, lane, a), cursor.age_text(model, a)));
  }
  explain_asleep(bytes_in(asleep_, {cell.address, cell.address + cell.size_bytes}),
                 cell.size_bytes);
  text_dim(
      fmt::format("{:#x}, in segment {:#x} of {}, {}", cell.address, segment.address,
                  size_text(segment.size_bytes),
                  stream_text(segment.stream, lane.memory->segment_changes[segment.change].pool)));
  ImGui::EndTooltip();
}

bool MapPanel::draw_asleep(const MapCell& cell, ImVec2 a, ImVec2 b) {
  const uint64_t end = cell.address + cell.size_bytes;
  const auto x = [&](uint64_t address) {
    const double share =
        static_cast<double>(address - cell.address) / static_cast<double>(cell.size_bytes);
    return a.x + static_cast<float>(share) * (b.x - a.x);
  };
  bool any = false;
  for (auto part =
           std::partition_point(asleep_.begin(), asleep_.end(),
                                [&](const AddressRange& p) { return p.end <= cell.address; });
       part != asleep_.end() && part->begin < end; ++part) {
    hatch_asleep({x(std::max(part->begin, cell.address)), a.y}, {x(std::min(part->end, end)), b.y});
    any = true;
  }
  return any;
}

void MapPanel::draw_hole(const Highlights& highlights, const MapCell& cell, ImVec2 a, ImVec2 b) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const bool largest = cell.address == largest_hole_at_;
  draw.AddRectFilled(a, b, paint(theme().hole, 55));
  draw_hatch(draw, a, b, paint(largest ? theme().warning : theme().hole, largest ? 200 : 170),
             px(6));
  draw_asleep(cell, a, b);
  const bool chosen = highlights.hole && *highlights.hole >= cell.address &&
                      *highlights.hole - cell.address < cell.size_bytes;
  if (chosen) draw.AddRect(a, b, paint(theme().cursor), 0, 0, px(2));
  if (largest) draw.AddRect(a, b, paint(theme().warning), 0, 0, px(1.5F));
  if (largest) return;  // its label may not fit in it, and is drawn over the row
  const std::string label = size_text(cell.size_bytes) + " free";
  if (width_of(label) + px(16) > b.x - a.x) return;
  write_label(label, (a.x + b.x) / 2, a.y, b.y, theme().dim);
}

std::string MapPanel::largest_hole_text(uint32_t pool, float room) const {
  const std::string size = size_text(largest_hole_);
  std::string text = "largest hole " + size;
  if (largest_holes_ != 1) text += fmt::format(", one of {}", largest_holes_);
  if (pool != 0) text += fmt::format(", in private pool {}", pool);
  const std::string shorter[] = {"largest hole " + size, size};
  for (const std::string& other : shorter) {
    if (width_of(text) + px(kLabelMarginPx) <= room) break;
    if (width_of(other) + px(kLabelMarginPx) <= room) return other;
  }
  return text;
}

void MapPanel::label_largest_hole(const SegmentRange& segment, uint32_t pool, float left,
                                  float width, float top, float bottom) {
  const bool here = largest_holes_ != 0 && largest_hole_at_ >= segment.address &&
                    largest_hole_at_ - segment.address < segment.size_bytes;
  if (!here) return;
  const auto x = [&](uint64_t address) {
    return left + static_cast<float>(static_cast<double>(address - segment.address) /
                                     static_cast<double>(segment.size_bytes)) *
                      width;
  };
  const float begin = x(largest_hole_at_);
  const float end = std::max(x(largest_hole_at_ + largest_hole_), begin + px(2));
  const std::string label = largest_hole_text(pool, end - begin);
  const float space = width_of(label) + px(kLabelMarginPx);
  float middle = (begin + end) / 2;
  if (space > end - begin) {  // beside it, on the side with more of the row
    // Where it is folded with its neighbours or is a few pixels wide, its frame shows the place.
    ImGui::GetWindowDrawList()->AddRect({begin, top}, {end, bottom}, paint(theme().warning), 0, 0,
                                        px(1.5F));
    const bool before = begin - left > left + width - end;
    middle = before ? begin - space / 2 : end + space / 2;
  }
  write_label(label, middle, top, bottom, theme().text);
}

void MapPanel::draw_cell(const Model& model, Selection& selection, const Moment& moment,
                         const MapCell& cell, float left, float top, float bottom) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Lane& lane = model.lanes[moment.lane];
  const ImVec2 a(left + cell.begin_px, top);
  const float gap = cell.end_px - cell.begin_px > 4 ? 1.0F : 0.0F;
  const ImVec2 b(left + std::max(cell.end_px - gap, cell.begin_px + 1), bottom);
  if (cell.kind == CellKind::kHole) {
    draw_hole(selection.highlights, cell, a, b);
    return;
  }
  const Allocation& block = lane.memory->allocations[cell.allocation];
  const bool pending =
      cell.kind == CellKind::kBlock && moment.state.is_pending(*lane.memory, cell.allocation);
  const Rgb colour = pending ? theme().pending
                             : block_colour(model, selection.colouring.by, selection.cursor, block);
  const std::string wanted = lower_case(selection.highlights.search);
  const bool found = model.text_of(lane).matches(block.stack, wanted);
  const double full = cell.size_bytes == 0 ? 1
                                           : static_cast<double>(cell.used_bytes) /
                                                 static_cast<double>(cell.size_bytes);
  // The fuller a folded cell is, the stronger its colour.
  const int alpha = static_cast<int>((found ? 255 : 60) * (0.35 + 0.65 * full));
  draw.AddRectFilled(a, b, paint(colour, pending ? alpha / 4 : alpha));
  if (pending) draw_hatch(draw, a, b, paint(colour, alpha), px(6));
  const bool asleep = draw_asleep(cell, a, b);
  if (found && cell.kind == CellKind::kBlock && b.x - a.x > px(50)) {
    const std::string label =
        fitted(size_text(block.block_bytes) + (pending ? " pending free  " : "  ") +
                   std::string(model.text_of(lane).headline(block.stack, block.seeded)),
               b.x - a.x - px(8));
    if (asleep) {  // the lines would run through the text
      draw.AddRectFilled({a.x + px(1), a.y + px(1)}, {a.x + width_of(label) + px(8), b.y - px(1)},
                         paint(theme().panel, 215), px(3));
    }
    const Rgb ink = asleep || pending  ? theme().text
                    : is_light(colour) ? Rgb{12, 14, 18}
                                       : Rgb{255, 255, 255};
    draw_text_in(draw, a, b, paint(ink), label);
  }
  if (selection.highlights.allocation && cell.kind == CellKind::kBlock &&
      *selection.highlights.allocation == cell.allocation) {
    draw.AddRect(a, b, paint(theme().cursor), 0, 0, px(2));
  }
}

// Kept between frames: a segment may have very many blocks.
const std::vector<MapCell>& MapPanel::cells_of(const Moment& moment, uint32_t segment,
                                               float width) {
  KeptCells& kept = cells_[segment];
  if (kept.width != width) kept = {width, moment.layout.cells(segment, width)};
  return kept.cells;
}

void MapPanel::draw_row(const Model& model, Selection& selection, const Moment& moment,
                        uint32_t segment, float height) {
  const SegmentRange& range = moment.state.segments[segment];
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const std::string address = fmt::format("{:#x}", range.address);
  const auto [has_address, address_width, pool_width, label] =
      row_label(ImGui::GetContentRegionAvail().x, widest_pool_);
  float width = std::max(ImGui::GetContentRegionAvail().x - label, 10.0F);
  if (to_scale_) {
    const double share =
        static_cast<double>(range.size_bytes) / static_cast<double>(scale_bytes(moment));
    width = std::max(static_cast<float>(share) * width, 6.0F);
  }
  const uint64_t used = std::min(moment.layout.used_bytes(segment), range.size_bytes);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float text_y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  const std::string size = size_text(range.size_bytes);
  if (has_address) {
    draw.AddText({at.x, text_y}, paint(theme().dim),
                 fitted_ends(address, address_width - px(8)).c_str());
  }
  draw.AddText({at.x + address_width, text_y}, paint(theme().text), size.c_str());
  const Lane& lane = model.lanes[moment.lane];
  const uint64_t asleep = bytes_in(asleep_, {range.address, range.address + range.size_bytes});
  const std::string share =
      asleep != 0 && asleep == range.size_bytes ? "asleep"
      : lane.of_driver
          ? selection.cursor.age_text(model, lane.memory->segment_changes[range.change])
          : percent_text(used, range.size_bytes) + " used";
  const float share_width = width_of(share);
  const float facts_end = at.x + label - pool_width - px(10);
  if (facts_end - at.x - address_width > width_of(size) + share_width + px(8)) {
    draw.AddText({facts_end - share_width, text_y}, paint(theme().dim), share.c_str());
  }
  const uint32_t pool = lane.memory->segment_changes[range.change].pool;
  if (pool != 0 && pool_width != 0) {
    const bool wide = ImGui::GetContentRegionAvail().x > px(kRoomForStreamPx);
    const std::string name = wide ? stream_text(range.stream, pool) : fmt::format("pool {}", pool);
    draw.AddText({facts_end + px(10), text_y}, paint(theme().dim),
                 fitted(name, pool_width - px(10)).c_str());
  }
  const float left = at.x + label;
  const float top = at.y + px(2);
  const float bottom = at.y + height - px(2);
  ImGui::PushID(static_cast<int>(segment));
  ImGui::InvisibleButton("##segment", {label + width, height});
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered();
  const float mouse = ImGui::GetMousePos().x - left;
  for (const MapCell& cell : cells_of(moment, segment, width)) {
    draw_cell(model, selection, moment, cell, left, top, bottom);
    if (!hovered || mouse < cell.begin_px || mouse >= std::max(cell.end_px, cell.begin_px + 1)) {
      continue;
    }
    explain_cell(model, selection.cursor, moment, cell, range);
    if (!ImGui::IsMouseClicked(ImGuiMouseButton_Left)) continue;
    if (cell.kind == CellKind::kHole) {
      selection.choose_hole(cell.address);
    } else {
      selection.choose_allocation(cell.allocation);
    }
  }
  label_largest_hole(range, pool, left, width, top, bottom);
  if (hovered && mouse < 0 && ImGui::BeginTooltip()) {
    text("segment " + address);
    text_dim(fmt::format("{}, {} used, {} in {}", size, size_text(used),
                         counted(moment.layout.block_count(segment), "block"),
                         range.expandable ? "an expandable segment" : "a segment"));
    explain_asleep(asleep, range.size_bytes);
    text_dim(stream_text(range.stream, lane.memory->segment_changes[range.change].pool));
    ImGui::EndTooltip();
  }
}

uint64_t MapPanel::scale_bytes(const Moment& moment) const {
  const uint64_t largest = moment.layout.largest_segment_bytes();
  return request_ ? std::max(largest, request_->oom->requested_bytes) : largest;
}

void MapPanel::draw_request(const Model& model, const Moment& moment, bool scrolls) {
  ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
  text_wrapped(why_it_failed(model, model.lanes[moment.lane], *request_, largest_hole_));
  ImGui::PopStyleColor();
  const float room =
      ImGui::GetContentRegionAvail().x - (scrolls ? ImGui::GetStyle().ScrollbarSize : 0);
  const float label = row_label(room, widest_pool_).whole;
  float width = std::max(room - label, 10.0F);
  if (to_scale_) {
    const double share = static_cast<double>(request_->oom->requested_bytes) /
                         static_cast<double>(scale_bytes(moment));
    width = std::max(static_cast<float>(share) * width, 6.0F);
  }
  draw_failed_request(*request_, label, width, px(kRowPx));
}

void MapPanel::name_pools(const Lane& lane, const MemoryState& state) {
  widest_pool_.clear();
  if (!lane.private_pools) return;
  for (const SegmentRange& s : state.segments) {
    const uint32_t pool = lane.memory->segment_changes[s.change].pool;
    if (pool == 0) continue;
    std::string name = stream_text(s.stream, pool);
    if (name.size() > widest_pool_.size()) widest_pool_ = std::move(name);
  }
}

void MapPanel::update(const Model& model, Selection& selection, const Moment& moment) {
  if (rows_model_ != &model || rows_version_ != selection.version() || rows_order_ != order_) {
    rows_model_ = &model;
    rows_version_ = selection.version();
    cells_.clear();
    rows_order_ = order_;
    rows_ = moment.layout.rows(order_);
    largest_hole_ = moment.state.largest_hole_bytes();
    largest_holes_ = 0;
    for (const Hole& hole : moment.state.holes) {
      if (hole.size_bytes == largest_hole_ && largest_holes_++ == 0) {
        largest_hole_at_ = hole.address;
      }
    }
    make_legend(model, selection.colouring.by, moment);
    const Lane& lane = model.lanes[moment.lane];
    name_pools(lane, moment.state);
    asleep_ = lane.ledger->residence().asleep_at(selection.cursor.time_ns(model));
    request_ = failed_request(model, selection.cursor, moment);
  }
  const bool stale = legend_of_ != selection.colouring.by || legend_final_ != model.report_ready;
  if (stale) make_legend(model, selection.colouring.by, moment);
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
    draw_asleep_legend();
  }
  const auto count = static_cast<float>(rows_.size());
  if (request_) {
    // Two lines for it and its bar.
    const float left = ImGui::GetContentRegionAvail().y - 2 * px(kRowPx);
    draw_request(model, moment, left < count * px(kRowPx));
  }
  ImGui::BeginChild("##rows");
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
  // Rows are taller where there are few segments.
  const float room = ImGui::GetContentRegionAvail().y / count;
  const float height = std::floor(std::clamp(room, px(kRowPx), px(kRowPx * 1.6F)));
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(rows_.size()), height);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      draw_row(model, selection, moment, rows_[static_cast<size_t>(i)], height);
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

}  // namespace tidemark::view
