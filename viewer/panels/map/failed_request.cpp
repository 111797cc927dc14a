#include "viewer/panels/map/failed_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/wording.h"
#include "viewer/panels/timeline/lane_scale.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

std::optional<FailedRequest> failed_request(const Model& model, const Cursor& cursor,
                                            const Moment& moment) {
  const OomPoint* oom = oom_at(model, cursor);
  const bool shown = moment.known && moment.lane == cursor.lane() && moment.event == cursor.event();
  if (oom == nullptr || !shown) return std::nullopt;
  FailedRequest request{oom, {}};
  const Lane& lane = model.lanes[moment.lane];
  if (oom->layer == Layer::kFramework && !lane.of_driver) {
    request.usable = usable_holes(*lane.memory, moment.state, *oom);
  }
  return request;
}

std::string why_it_failed(const Model& model, const Lane& lane, const FailedRequest& request,
                          uint64_t largest_hole_bytes) {
  const OomPoint& oom = *request.oom;
  if (oom.layer == Layer::kDriver) {
    return fmt::format("asked the driver for {}, which could not allocate it",
                       size_text(oom.requested_bytes));
  }
  const uint64_t usable = request.usable.largest_bytes;
  const auto [hole, asked] = size_texts(usable, oom.requested_bytes);
  std::string why = fmt::format("asked for {}: ", asked);
  why += usable == 0 ? "no hole is free for it" : "the largest hole it could use is " + hole;
  if (largest_hole_bytes > usable) {
    why += fmt::format(" ({} is free for another stream, pool or size only)",
                       size_text(largest_hole_bytes));
  }
  if (const uint64_t limit = own_limit(model, lane); limit != 0) {
    return why + fmt::format("; the allocator's own limit is {}{}",
                             model.report_of(lane)->limit.at_least ? "at least " : "",
                             size_text(limit));
  }
  return why + fmt::format("; {} free on the card", size_text(oom.device_free_bytes));
}

bool draw_failed_request(const FailedRequest& request, float label, float width, float height) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float text_y = std::round(at.y + (height - ImGui::GetTextLineHeight()) / 2);
  const std::string name = fitted("the request that failed", label - px(10));
  draw.AddText({at.x, text_y}, paint(theme().bad), name.c_str());
  const ImVec2 a(at.x + label, at.y + px(2));
  const ImVec2 b(a.x + width, at.y + height - px(2));
  const auto asked = static_cast<double>(std::max<uint64_t>(request.oom->requested_bytes, 1));
  const double share = std::min(static_cast<double>(request.usable.largest_bytes) / asked, 1.0);
  const float hole = a.x + static_cast<float>(share) * width;
  draw.AddRectFilled({hole, a.y}, b, paint(theme().bad, 70));
  if (hole > a.x) {
    draw.AddRectFilled(a, {hole, b.y}, paint(theme().hole, 55));
    draw_hatch(draw, a, {hole, b.y}, paint(theme().warning, 200), px(6));
  }
  draw.AddRect(a, b, paint(theme().bad), 0, 0, px(1.5F));
  const auto write = [&](float left, float right, const std::string& text) {
    if (width_of(text) + px(16) > right - left) return;
    const float x = std::round((left + right - width_of(text)) / 2);
    draw.AddRectFilled({x - px(5), text_y},
                       {x + width_of(text) + px(5), text_y + ImGui::GetTextLineHeight()},
                       paint(theme().panel, 235), px(3));
    draw.AddText({x, text_y}, paint(theme().text), text.c_str());
  };
  write(a.x, hole, "largest usable hole " + size_text(request.usable.largest_bytes));
  const uint64_t missing = request.oom->requested_bytes -
                           std::min(request.usable.largest_bytes, request.oom->requested_bytes);
  write(hole, b.x, size_text(missing) + (hole > a.x ? " missing" : ""));
  bool clicked = false;
  if (hole > a.x) {
    ImGui::SetCursorScreenPos(a);
    clicked = ImGui::InvisibleButton("##usable_hole", {std::max(hole - a.x, px(4)), b.y - a.y});
    if (ImGui::IsItemHovered()) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    explain("The largest hole that the request could use. Click to go to it.");
    ImGui::SetCursorScreenPos(at);
  }
  ImGui::Dummy({label + width, height});
  return clicked;
}

}  // namespace tidemark::view
