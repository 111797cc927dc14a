#include "viewer/panels/stack/band_tooltip.h"

#include <fmt/format.h>
#include <imgui.h>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kFramesShown = 5;  // a click shows all
constexpr float kWidthPx = 420;
constexpr float kHeightPx = 260;  // about the most

// Left of the mouse in the right half of the plot.
void place_over(ImVec2 min, ImVec2 max) {
  if (max.x - min.x < 2 * px(kWidthPx)) return;
  const ImVec2 mouse = ImGui::GetMousePos();
  const bool left = mouse.x > (min.x + max.x) / 2;
  const ImGuiViewport& screen = *ImGui::GetMainViewport();
  const bool above = mouse.y + px(kHeightPx) > screen.WorkPos.y + screen.WorkSize.y;
  ImGui::SetNextWindowPos(mouse + ImVec2(left ? -px(12) : px(16), above ? -px(12) : px(16)),
                          ImGuiCond_Always, ImVec2(left ? 1 : 0, above ? 1 : 0));
}

void explain_block(const StackPicture& picture, const StackBand& band, const std::string& bytes) {
  const Model& model = *picture.index->model;
  const Lane& lane = picture.lane();
  const FrameText& words = model.text_of(lane);
  const Allocation a = lane.memory->allocations[band.block];
  swatch(picture.colour_of(band));
  text(a.requested_bytes == 0 || a.requested_bytes == a.block_bytes
           ? bytes
           : fmt::format("{}, requested {}", bytes, size_text(a.requested_bytes)));
  text(fitted_line(words.headline(a.stack, a.seeded), px(kWidthPx)));
  const auto at = [&](int64_t ns) { return instant_text(since_start(model, ns), model.span_ns()); };
  std::string life = a.seeded ? "older than the recording"
                              : "from " + at(a.birth_ns()) + model.comma_step(lane, a.birth);
  life += a.death == kNever ? ", to the end"
          : a.seeded        ? ", until " + at(a.death_ns())
                     : ", for " + span_text(static_cast<double>(a.death_ns() - a.birth_ns()));
  const std::string kind = lane.of_driver
                               ? owner_title(model.process_of(lane).names.string(a.metadata))
                               : category_text(model, lane, a.category);
  text_dim(fmt::format("{}   {}", kind, life));
  text_dim(fmt::format("{:#x}", a.address));
  size_t shown = 0;
  for (const uint32_t frame : words.names().frames_of(a.stack)) {
    const std::string& line = words.frame(frame);
    if (shown == 0 && is_allocator_frame(line)) continue;
    if (shown++ == kFramesShown) {
      text_dim("  ...");
      break;
    }
    text_dim("  " + fitted_line(line, px(kWidthPx)));
  }
}

}  // namespace

void explain_band(const StackPicture& picture, const StackView::Hit& hit, ImVec2 min, ImVec2 max) {
  place_over(min, max);
  if (!ImGui::BeginTooltip()) return;
  const StackBand& band = picture.columns.bands[hit.band];
  const std::string bytes = size_text(hit.bytes);
  const std::string share = fmt::format(
      "{} of {} {} here", percent_text(hit.bytes, hit.all_bytes), size_text(hit.all_bytes),
      picture.index->curve() == Curve::kReserved ? "reserved" : "allocated");
  switch (band.kind) {
    case BandKind::kBlock:
      explain_block(picture, band, bytes);
      break;
    case BandKind::kRest:
    case BandKind::kFree: {
      swatch(picture.colour_of(band));
      text(picture.index->title_of(band.group));
      if (picture.index->groups.are_segments()) {
        text(band.kind == BandKind::kFree ? bytes + " of it free" : bytes + " of it in use");
        if (band.kind == BandKind::kFree && picture.index->is_private(band.group)) {
          text_dim("only for what uses this private pool, such as its CUDA graphs");
        }
      } else {
        text(bytes + " in blocks that are less than a pixel high");
        text_dim("click to see the one under the mouse");
      }
      break;
    }
    case BandKind::kOthers:
      text(fmt::format("{} more: {}", picture.columns.other_groups, bytes));
      text_dim("each less than a pixel high");
      break;
    case BandKind::kPending:
      text("pending free: " + bytes);
      text_dim("freed by the program, but another stream may still be using it");
      break;
  }
  text_dim(share);
  text_dim("click: select   ctrl-click: compare from here");
  text_dim("shift-drag: what was allocated and kept");
  text_dim("wheel: zoom   ctrl-wheel: zoom the height");
  ImGui::EndTooltip();
}

}  // namespace tidemark::view
