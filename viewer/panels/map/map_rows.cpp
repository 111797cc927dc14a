#include "viewer/panels/map/map_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/widgets/block_colour.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kLabelPx = 170;
constexpr float kRoomForAddressPx = 640;  // a narrower panel has none at the start of a row
constexpr float kRoomForStreamPx = 1300;  // beside the private pool of a segment
constexpr float kLabelMarginPx = 16;      // of the label of a hole

std::string kind_of(const Model& model, const Lane& lane, const Allocation& a) {
  if (!lane.of_driver) return category_text(model, lane, a.category);
  const std::string_view owner = model.process_of(lane).names.string(a.metadata);
  return owner_title(owner.empty() ? "unknown" : owner);
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

uint32_t pool_of(const Lane& lane, const SegmentRange& range) {
  return lane.memory->segment_changes[range.change].pool;
}

}  // namespace

MapFacts MapFacts::of(const Model& model, const Cursor& cursor, const Moment& moment) {
  MapFacts facts;
  const Lane& lane = model.lanes[moment.lane];
  facts.largest_hole = moment.state.largest_hole_bytes();
  for (const Hole& hole : moment.state.holes) {
    if (hole.size_bytes == facts.largest_hole && facts.largest_holes++ == 0) {
      facts.largest_hole_at = hole.address;
    }
    if (pool_of(lane, moment.state.segments[hole.segment]) != 0) {
      facts.private_free += hole.size_bytes;
    }
  }
  facts.asleep = lane.ledger->residence().asleep_at(cursor.time_ns(model));
  if (!lane.private_pools) return facts;
  for (const SegmentRange& s : moment.state.segments) {
    if (pool_of(lane, s) == 0) continue;
    std::string name = stream_text(s.stream, pool_of(lane, s));
    if (name.size() > facts.widest_pool.size()) facts.widest_pool = std::move(name);
  }
  return facts;
}

void hatch_free(ImVec2 a, ImVec2 b, bool of_private_pool, Rgb colour, int alpha) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(a, b, paint(theme().hole, 55));
  draw_hatch(draw, a, b, paint(colour, alpha), px(6));
  if (of_private_pool) draw_hatch(draw, a, b, paint(colour, alpha), px(6), true);
}

void hatch_asleep(ImVec2 a, ImVec2 b) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(a, b, paint(theme().panel, 165));
  draw_hatch(draw, a, b, paint(theme().text, 120), px(5), true);
}

void MapRows::adopt(MapFacts facts) {
  facts_ = std::move(facts);
  cells_.clear();
}

float MapRows::label_width(float room) const {
  return row_label(room, facts_.widest_pool).whole;
}

// Kept between frames: a segment may have very many blocks.
const std::vector<MapCell>& MapRows::cells_of(const Moment& moment, uint32_t segment, float width) {
  KeptCells& kept = cells_[segment];
  if (kept.width != width) kept = {width, moment.layout.cells(segment, width)};
  return kept.cells;
}

void MapRows::explain_cell(const Model& model, const Cursor& cursor, const Moment& moment,
                           const MapCell& cell, const Row& row) const {
  if (!ImGui::BeginTooltip()) return;
  const Lane& lane = model.lanes[moment.lane];
  if (cell.kind == CellKind::kHole) {
    text(fmt::format("hole of {}", size_text(cell.size_bytes)));
    if (row.pool != 0) {
      text(fmt::format("only for what uses private pool {}, such as its CUDA graphs", row.pool));
    }
    text_dim(cell.size_bytes == facts_.largest_hole
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
  explain_asleep(bytes_in(facts_.asleep, {cell.address, cell.address + cell.size_bytes}),
                 cell.size_bytes);
  text_dim(fmt::format("{:#x}, in segment {:#x} of {}, {}", cell.address, row.range->address,
                       size_text(row.range->size_bytes), stream_text(row.range->stream, row.pool)));
  ImGui::EndTooltip();
}

bool MapRows::draw_asleep(const MapCell& cell, ImVec2 a, ImVec2 b) const {
  const uint64_t end = cell.address + cell.size_bytes;
  const auto x = [&](uint64_t address) {
    const double share =
        static_cast<double>(address - cell.address) / static_cast<double>(cell.size_bytes);
    return a.x + static_cast<float>(share) * (b.x - a.x);
  };
  bool any = false;
  for (auto part =
           std::partition_point(facts_.asleep.begin(), facts_.asleep.end(),
                                [&](const AddressRange& p) { return p.end <= cell.address; });
       part != facts_.asleep.end() && part->begin < end; ++part) {
    hatch_asleep({x(std::max(part->begin, cell.address)), a.y}, {x(std::min(part->end, end)), b.y});
    any = true;
  }
  return any;
}

void MapRows::draw_hole(const Highlights& highlights, const Row& row, const MapCell& cell, ImVec2 a,
                        ImVec2 b) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const bool largest = cell.address == facts_.largest_hole_at;
  hatch_free(a, b, row.pool != 0, largest ? theme().warning : theme().hole, largest ? 200 : 170);
  draw_asleep(cell, a, b);
  const bool chosen = highlights.hole && *highlights.hole >= cell.address &&
                      *highlights.hole - cell.address < cell.size_bytes;
  if (chosen) draw.AddRect(a, b, paint(theme().cursor), 0, 0, px(2));
  if (largest) draw.AddRect(a, b, paint(theme().warning), 0, 0, px(1.5F));
  if (largest) return;  // its label may not fit in it, and is drawn over the row
  const std::string free = size_text(cell.size_bytes) + " free";
  const std::string label =
      row.pool == 0 ? free : fmt::format("{}, for pool {} only", free, row.pool);
  for (const std::string& text : {label, free}) {
    if (width_of(text) + px(kLabelMarginPx) > b.x - a.x) continue;
    write_label(text, (a.x + b.x) / 2, a.y, b.y, theme().dim);
    return;
  }
}

void MapRows::label_largest_hole(const Row& row) const {
  const SegmentRange& segment = *row.range;
  const uint64_t at = facts_.largest_hole_at;
  const bool here = facts_.largest_holes != 0 && at >= segment.address &&
                    at - segment.address < segment.size_bytes;
  if (!here) return;
  const auto x = [&](uint64_t address) {
    return row.left + static_cast<float>(static_cast<double>(address - segment.address) /
                                         static_cast<double>(segment.size_bytes)) *
                          row.width;
  };
  const float begin = x(at);
  const float end = std::max(x(at + facts_.largest_hole), begin + px(2));
  const std::string size = size_text(facts_.largest_hole);
  std::string all = "largest hole " + size;
  if (facts_.largest_holes != 1) all += fmt::format(", one of {}", facts_.largest_holes);
  if (row.pool != 0) all += fmt::format(", for private pool {} only", row.pool);
  const auto write = [&](const std::string& label, float middle) {
    write_label(label, middle, row.top, row.bottom, theme().text);
  };
  // From the longest to the shortest.
  const std::string texts[] = {all, "largest hole " + size, size};
  const auto space = [](const std::string& label) { return width_of(label) + px(kLabelMarginPx); };
  for (const std::string& label : texts) {
    if (space(label) <= end - begin) return write(label, (begin + end) / 2);
  }
  // Where it is folded with its neighbours or is a few pixels wide, its frame shows the place.
  ImGui::GetWindowDrawList()->AddRect({begin, row.top}, {end, row.bottom}, paint(theme().warning),
                                      0, 0, px(1.5F));
  const float right = row.left + row.width;
  const bool before = begin - row.left > right - end;  // the side with more of the row
  for (const std::string& label : texts) {
    if (space(label) > (before ? begin - row.left : right - end)) continue;
    return write(label, before ? begin - space(label) / 2 : end + space(label) / 2);
  }
  const float half = space(size) / 2;
  write(size, std::max(std::min((begin + end) / 2, right - half), row.left + half));
}

void MapRows::draw_cell(const Model& model, Selection& selection, const Moment& moment,
                        const Row& row, const MapCell& cell) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Lane& lane = model.lanes[moment.lane];
  const ImVec2 a(row.left + cell.begin_px, row.top);
  const float gap = cell.end_px - cell.begin_px > 4 ? 1.0F : 0.0F;
  const ImVec2 b(row.left + std::max(cell.end_px - gap, cell.begin_px + 1), row.bottom);
  if (cell.kind == CellKind::kHole) {
    draw_hole(selection.highlights, row, cell, a, b);
    return;
  }
  const Allocation& block = lane.memory->allocations[cell.allocation];
  const bool pending =
      cell.kind == CellKind::kBlock && moment.state.is_pending(*lane.memory, cell.allocation);
  const Rgb colour = pending ? theme().pending
                             : block_colour(model, selection.colouring.by, selection.cursor, block);
  const std::string wanted = folded(selection.highlights.search);
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

void MapRows::draw_label(const Model& model, const Cursor& cursor, const Moment& moment,
                         const Row& row, ImVec2 at, float height) const {
  const SegmentRange& range = *row.range;
  const float room = ImGui::GetContentRegionAvail().x;
  const RowLabel label = row_label(room, facts_.widest_pool);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float text_y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  const auto write = [&](float x, Rgb ink, const std::string& words) {
    draw.AddText({x, text_y}, paint(ink), words.c_str());
  };
  if (label.has_address) {
    write(at.x, theme().dim,
          fitted_ends(fmt::format("{:#x}", range.address), label.address - px(8)));
  }
  const std::string size = size_text(range.size_bytes);
  write(at.x + label.address, theme().text, size);
  const Lane& lane = model.lanes[moment.lane];
  const std::string share = row.asleep != 0 && row.asleep == range.size_bytes ? "asleep"
                            : lane.of_driver
                                ? cursor.age_text(model, lane.memory->segment_changes[range.change])
                                : percent_text(row.used, range.size_bytes) + " used";
  const float facts_end = at.x + label.whole - label.pool - px(10);
  if (facts_end - at.x - label.address > width_of(size) + width_of(share) + px(8)) {
    write(facts_end - width_of(share), theme().dim, share);
  }
  if (row.pool == 0 || label.pool == 0) return;
  const std::string pool = room > px(kRoomForStreamPx) ? stream_text(range.stream, row.pool)
                                                       : fmt::format("pool {}", row.pool);
  write(facts_end + px(10), theme().dim, fitted(pool, label.pool - px(10)));
}

void MapRows::explain_segment(const Moment& moment, uint32_t segment, const Row& row) const {
  if (!ImGui::BeginTooltip()) return;
  const SegmentRange& range = *row.range;
  text(fmt::format("segment {:#x}", range.address));
  text_dim(fmt::format("{}, {} used, {} in {}", size_text(range.size_bytes), size_text(row.used),
                       counted(moment.layout.block_count(segment), "block"),
                       range.expandable ? "an expandable segment" : "a segment"));
  explain_asleep(row.asleep, range.size_bytes);
  text_dim(stream_text(range.stream, row.pool));
  ImGui::EndTooltip();
}

void MapRows::draw(const Model& model, Selection& selection, const Moment& moment, uint32_t segment,
                   float height, double share) {
  const SegmentRange& range = moment.state.segments[segment];
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x;
  const float label = label_width(room);
  Row row;
  row.range = &range;
  row.pool = pool_of(model.lanes[moment.lane], range);
  row.used = std::min(moment.layout.used_bytes(segment), range.size_bytes);
  row.asleep = bytes_in(facts_.asleep, {range.address, range.address + range.size_bytes});
  row.left = at.x + label;
  row.width = std::max(static_cast<float>(share) * std::max(room - label, 10.0F), 6.0F);
  row.top = at.y + px(2);
  row.bottom = at.y + height - px(2);
  draw_label(model, selection.cursor, moment, row, at, height);
  ImGui::PushID(static_cast<int>(segment));
  ImGui::InvisibleButton("##segment", {label + row.width, height});
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered();
  const float mouse = ImGui::GetMousePos().x - row.left;
  for (const MapCell& cell : cells_of(moment, segment, row.width)) {
    draw_cell(model, selection, moment, row, cell);
    if (!hovered || mouse < cell.begin_px || mouse >= std::max(cell.end_px, cell.begin_px + 1)) {
      continue;
    }
    explain_cell(model, selection.cursor, moment, cell, row);
    if (!ImGui::IsMouseClicked(ImGuiMouseButton_Left)) continue;
    if (cell.kind == CellKind::kHole) {
      selection.choose_hole(cell.address);
    } else {
      selection.choose_allocation(cell.allocation);
    }
  }
  label_largest_hole(row);
  if (hovered && mouse < 0) explain_segment(moment, segment, row);
}

}  // namespace tidemark::view
