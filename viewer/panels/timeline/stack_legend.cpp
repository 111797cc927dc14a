#include "viewer/panels/timeline/stack_legend.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <tuple>

#include "analysis/wording.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kColoursNamed = 40;  // the tables have all
constexpr float kPairPx = 72;         // the width of a column of bytes

}  // namespace

void StackLegend::forget() {
  picture_.reset();
  hidden_.clear();
  colours_at_.reset();
  work_.wish([] { return nullptr; }, true);
}

void StackLegend::isolate(uint32_t group, uint32_t count) {
  std::vector<bool> only(count, true);
  only[group] = false;
  if (only == hidden_) {
    hidden_.clear();
  } else {
    hidden_ = std::move(only);
  }
}

void StackLegend::toggle(uint32_t group, uint32_t count) {
  hidden_.resize(count);
  hidden_[group] = !hidden_[group];
  if (std::find(hidden_.begin(), hidden_.end(), true) == hidden_.end()) hidden_.clear();
}

std::shared_ptr<const StackLegend::Bytes> StackLegend::bytes_at(const StackPicture& picture,
                                                                uint32_t event,
                                                                std::optional<uint32_t> other) {
  auto bytes = std::make_shared<Bytes>();
  bytes->index = picture.index;
  const StackIndex& index = *picture.index;
  GroupTotals::Reader reader(*index.totals);
  reader.move_to(event);
  const bool segments = index.groups.are_segments();
  if (other) {
    GroupTotals::Reader there(*index.totals);
    there.move_to(*other);
    for (uint32_t g = 0; g < index.groups.count; ++g) {
      bytes->other.push_back(segments ? there.reserved(g) : there.bytes(g));
    }
  }
  const std::vector<uint64_t>& highest = picture.columns.group_highest;
  const auto most = [&](uint32_t g) {
    return other ? std::max(bytes->held[g], bytes->other[g]) : bytes->held[g];
  };
  for (uint32_t g = 0; g < index.groups.count; ++g) {
    if (segments) {
      bytes->held.push_back(reader.reserved(g));
      bytes->free.push_back(reader.reserved(g) - std::min(reader.bytes(g), reader.reserved(g)));
    } else {
      bytes->held.push_back(reader.bytes(g));
    }
    if (most(g) != 0 || (!other && highest[g] != 0)) bytes->order.push_back(g);
  }
  std::stable_sort(bytes->order.begin(), bytes->order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(most(b), highest[b]) < std::tuple(most(a), highest[a]);
  });
  return bytes;
}

void StackLegend::draw_row(const Bytes& shown, uint32_t group) {
  const StackIndex& index = *shown.index;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x;
  const float square = ImGui::GetTextLineHeight();
  ImGui::PushID(static_cast<int>(group));
  ImGui::InvisibleButton("##group", {std::max(room, 1.0F), square + px(3)});
  ImGui::PopID();
  const bool off = is_hidden(group);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  if (ImGui::IsItemHovered()) {
    draw.AddRectFilled(at, at + ImVec2(room, square + px(3)), paint(theme().raised), px(3));
  }
  const float inset = px(3);
  draw.AddRectFilled(at + ImVec2(0, inset), at + ImVec2(square - inset, square),
                     paint(index.colours[group], off ? 70 : 255), px(2));
  const std::string title = index.title_of(group);
  const float name_width = width_of(title) + square + px(12);
  const bool pair = !shown.other.empty();
  auto [bytes, other] =
      size_texts(shown.held[group], pair ? shown.other[group] : shown.held[group]);
  // Where the difference is a few bytes, there is no space for all digits.
  if (pair && std::max(width_of(bytes), width_of(other)) > px(kPairPx - 6)) {
    bytes = size_text(shown.held[group]);
    other = size_text(shown.other[group]);
  }
  if (!pair && !shown.free.empty() && shown.held[group] != 0) {
    const std::string free = size_text(shown.free[group]) + " free";
    const std::string both = free + " of " + bytes;
    bytes = name_width + width_of(both) < room ? both : free;
  }
  const float end = room - (pair ? px(kPairPx) : 0);
  const float right = end - width_of(bytes) - px(4);
  const std::string name = fitted_line(title, (pair ? end - px(kPairPx) : right) - square - px(8));
  const int strength = off ? 120 : 255;
  const bool nothing = shown.held[group] == 0 && (!pair || shown.other[group] == 0);
  draw.AddText(at + ImVec2(square + px(2), px(1)),
               paint(off || nothing ? theme().dim : theme().text, strength), name.c_str());
  if (pair) {
    draw.AddText(at + ImVec2(room - width_of(other) - px(4), px(1)), paint(theme().dim, strength),
                 other.c_str());
  }
  draw.AddText(at + ImVec2(right, px(1)), paint(theme().dim, strength), bytes.c_str());
  explain((title + "\nclick: show only this   ctrl-click: hide or show").c_str());
  if (!ImGui::IsItemClicked()) return;
  if (ImGui::GetIO().KeyCtrl) {
    toggle(group, index.groups.count);
  } else {
    isolate(group, index.groups.count);
  }
}

void StackLegend::draw_pair_names(const LegendPair& pair) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x;
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = fitted(pair.names[i], px(kPairPx - 8));
    const float end = room - (i == 0 ? px(kPairPx) : 0) - px(4);
    ImGui::GetWindowDrawList()->AddText(at + ImVec2(end - width_of(name), 0), paint(theme().text),
                                        name.c_str());
  }
  ImGui::Dummy({room, ImGui::GetTextLineHeight() + px(2)});
}

// Where some of the free bytes are in private pools.
void StackLegend::draw_free_by_pool(const Bytes& shown) {
  uint64_t common = 0;
  uint64_t of_pools = 0;
  for (uint32_t g = 0; g < shown.free.size(); ++g) {
    (shown.index->is_private(g) ? of_pools : common) += shown.free[g];
  }
  if (of_pools == 0) return;
  text_dim(fmt::format("free in the default pool {}", size_text(common)));
  text_dim(fmt::format("free in private pools {}", size_text(of_pools)));
  explain(
      "Only what uses a private pool, such as its CUDA graphs, can be placed there. Hatched both "
      "ways.");
}

void StackLegend::draw_groups(const Bytes& shown) {
  draw_free_by_pool(shown);
  std::vector<uint32_t> rows = shown.order;
  for (uint32_t g = 0; g < hidden_.size(); ++g) {
    if (hidden_[g] && std::find(rows.begin(), rows.end(), g) == rows.end()) rows.push_back(g);
  }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(rows.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      draw_row(shown, rows[static_cast<size_t>(i)]);
    }
  }
  if (!hidden_.empty() && ImGui::SmallButton("show all")) hidden_.clear();
}

void StackLegend::draw_colours(const Model& model, Cursor& cursor, const StackPicture& picture) {
  hidden_.clear();  // there is no row to show a hidden group again
  const ColourBy by = picture.wish.colour_by;
  if (by == ColourBy::kAge) colour_scale("long-lived", "short");
  if (by == ColourBy::kSize) colour_scale("512 B", "16.0 GiB");
  if (const auto moment = cursor.share_moment(model); moment != colours_at_ || by != colours_by_) {
    colours_ = colour_rows(model, by, *moment, kColoursNamed);
    colours_at_ = moment;
    colours_by_ = by;
  }
  for (const ColourRow& row : colours_) {
    const std::string bytes = size_text(row.bytes);
    swatch(row.colour);
    for (const Rgb& other : row.others) swatch(other);
    text(fitted_ends(row.name, ImGui::GetContentRegionAvail().x - width_of(bytes) - px(12)));
    explain((row.name + (row.others.empty() ? "" : "\neach of its call stacks has its own colour"))
                .c_str());
    ImGui::SameLine();
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
    text_right(bytes);
    ImGui::PopStyleColor();
  }
  if (picture.has_uncoloured()) {
    swatch(kUncoloured);
    text_dim(fitted("less than a pixel high", ImGui::GetContentRegionAvail().x));
    explain("Blocks that are too small to be drawn on their own. Zoom in to see their colours.");
  }
}

void StackLegend::draw(const Model& model, Cursor& cursor,
                       const std::shared_ptr<const StackPicture>& picture, bool at_once,
                       const std::optional<LegendPair>& pair) {
  work_.poll();
  const Lane& lane = model.lanes[cursor.lane()];
  if (picture == nullptr || picture->wish.model != &model || picture->index->lane != &lane) return;
  const uint32_t event = pair ? pair->events[0] : cursor.event();
  const auto other = pair ? std::optional(pair->events[1]) : std::nullopt;
  if (picture_ == nullptr || picture_->index != picture->index) hidden_.clear();
  if (picture_ != picture || event_ != event || other_event_ != other) {
    picture_ = picture;
    event_ = event;
    other_event_ = other;
    work_.wish([picture, event, other] { return bytes_at(*picture, event, other); }, at_once);
  }
  const std::shared_ptr<const Bytes> shown = work_.value();
  if (shown == nullptr || shown->index != picture->index) return;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, px(1)));
  if (picture->has_own_colours()) {
    draw_colours(model, cursor, *picture);
  } else {
    if (pair) draw_pair_names(*pair);
    draw_groups(*shown);
  }
  ImGui::PopStyleVar();
  if (pair) return;
  const uint64_t pending = lane.memory->totals_after(event).pending();
  if (pending != 0 && !picture->index->groups.are_segments()) {
    text_dim(fmt::format("pending free {}", size_text(pending)));
    explain(
        "Freed by the program, but another stream may still be using it. Hatched above the "
        "allocated bands.");
  }
}

}  // namespace tidemark::view
