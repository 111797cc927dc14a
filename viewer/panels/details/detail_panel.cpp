#include "viewer/panels/details/detail_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// Before torch 2.12, only segments say which private pool they are of.
uint32_t pool_of(const Lane& lane, const Moment& moment, const Allocation& a) {
  if (a.pool != 0 || !a.alive_at(moment.event)) return a.pool;
  for (const SegmentRange& s : moment.state.segments) {
    const bool inside = a.address >= s.address && a.address - s.address < s.size_bytes;
    if (inside) return lane.memory->segment_changes[s.change].pool;
  }
  return 0;
}

}  // namespace

void DetailPanel::draw_facts(const Model& model, const Lane& lane, const Moment& moment,
                             const Allocation& a) {
  const float column = px(110);
  const auto since = [&](int64_t ns) {
    return instant_text(since_start(model, ns), model.span_ns());
  };
  {
    const WithFont title(fonts().title);
    text(size_text(a.block_bytes));
  }
  fact("requested",
       a.requested_bytes == 0
           ? "not recorded"
           : fmt::format("{} ({} lost to rounding)", size_text(a.requested_bytes),
                         size_text(a.block_bytes - std::min(a.block_bytes, a.requested_bytes))),
       column);
  if (lane.of_driver) {
    const std::string_view owner = model.process_of(lane).names.string(a.metadata);
    fact("owner", owner_title(owner.empty() ? "unknown" : owner), column);
  } else {
    fact("category", category_text(model, lane, a.category), column);
  }
  fact("allocated",
       a.seeded ? "before the recording began"
                : since(a.birth_ns()) + model.comma_step(lane, a.birth),
       column);
  if (a.release == kNever) {
    fact("freed", "not before the recording ended", column);
  } else {
    const int64_t freed_ns = lane.memory->time_ns[a.release];
    fact("freed", since(freed_ns) + model.comma_step(lane, a.release), column);
    const std::string life = span_text(static_cast<double>(freed_ns - a.birth_ns()));
    fact("lifetime", a.seeded ? "longer than " + life : life, column);
    if (a.death == kNever) {
      fact("pending", "until the recording ended: another stream may still use it", column);
    } else if (a.death != a.release + 1) {
      fact("pending",
           span_text(static_cast<double>(a.death_ns() - freed_ns)) +
               " between the free and its completion",
           column);
    }
  }
  fact("address", fmt::format("{:#x}", a.address), column);
  fact("stream", stream_text(a.stream, pool_of(lane, moment, a)), column);
  const Dictionary& names = model.process_of(lane).names;
  const Labels& labels = model.process_of(lane).labels;
  if (const uint32_t name = labels.of(a.address, a.birth_ns(), a.death_ns()); name != 0) {
    fact("named", names.string(name), column);
  }
  if (a.compile_context != 0) fact("compiled in", names.string(a.compile_context), column);
  if (a.metadata != 0 && !lane.of_driver) fact("metadata", names.string(a.metadata), column);
}

void DetailPanel::draw_neighbours(const Model& model, Selection& selection, const Lane& lane) {
  const Moment& moment = selection.cursor.moment(model);
  const Allocation& a = lane.memory->allocations[*selection.highlights.allocation];
  if (!a.alive_at(moment.event)) {
    text_dim("Not live at the cursor, so it has no neighbours there.");
    if (ImGui::Button("Go to its allocation")) {
      selection.set_event(model, selection.cursor.lane(), a.birth);
      selection.reveal_cursor(model);
    }
    return;
  }
  const MapLayout::Neighbours n = moment.layout.neighbours(*selection.highlights.allocation);
  const auto side = [&](const char* where, const char* border, uint32_t block, uint64_t hole) {
    if (hole != 0) text_dim(fmt::format("{}: a hole of {}", where, size_text(hole)));
    if (block == kNever) {
      if (hole == 0) text_dim(fmt::format("{}: {}", where, border));
      return;
    }
    const Allocation& other = lane.memory->allocations[block];
    const std::string label = fmt::format("{}: {}  {}", where, size_text(other.block_bytes),
                                          model.text_of(lane).headline(other.stack, other.seeded));
    const std::string shown = fitted(label, ImGui::GetContentRegionAvail().x);
    if (ImGui::Selectable(fmt::format("{}##{}", shown, where).c_str())) {
      selection.choose_allocation(block);
    }
    explain("Show this neighbour.");
  };
  side("before", "the segment begins here", n.before, n.hole_before);
  side("after", "the segment ends here", n.after, n.hole_after);
}

void DetailPanel::draw_stack(const Model& model, const Lane& lane, uint32_t stack, bool seeded) {
  const FrameText& names = model.text_of(lane);
  const std::vector<uint32_t> frames = names.names().frames_of(stack);
  if (frames.empty()) {
    text_dim(names.headline(0, seeded));
    return;
  }
  for (const uint32_t f : frames) {
    const std::string line = names.names().frame_text(f);
    ImGui::PushStyleColor(ImGuiCol_Text, paint(names.is_own_code(f) ? theme().text : theme().dim));
    text_wrapped(line);
    ImGui::PopStyleColor();
  }
  if (ImGui::Button("Copy the stack")) {
    std::string all;
    for (const uint32_t f : frames) all += names.names().frame_text(f) + "\n";
    ImGui::SetClipboardText(all.c_str());
  }
}

void DetailPanel::draw_block(const Model& model, Selection& selection) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  const Allocation a = lane.memory->allocations[*selection.highlights.allocation];
  draw_facts(model, lane, selection.cursor.moment(model), a);
  if (!lane.of_driver) {
    ImGui::SeparatorText("Neighbours");
    draw_neighbours(model, selection, lane);
  }
  ImGui::SeparatorText("Allocated by (innermost first)");
  draw_stack(model, lane, a.stack, a.seeded);
}

void DetailPanel::draw_pin(const Model& model, Selection& selection, const char* where,
                           uint32_t block) {
  if (block == kNever) {
    text_dim(fmt::format("{}: none, this is the border of the segment", where));
    return;
  }
  const Lane& lane = model.lanes[selection.cursor.lane()];
  const Allocation a = lane.memory->allocations[block];
  ImGui::PushID(where);
  text(fmt::format("{}: {}, {}", where, size_text(a.block_bytes),
                   selection.cursor.age_text(model, a)));
  ImGui::SameLine();
  if (ImGui::SmallButton("Show")) selection.choose_allocation(block);
  explain("Show this block.");
  ImGui::Indent(px(12));
  draw_stack(model, lane, a.stack, a.seeded);
  ImGui::Unindent(px(12));
  ImGui::PopID();
  ImGui::Spacing();
}

void DetailPanel::draw_hole(const Model& model, Selection& selection) {
  const Moment& moment = selection.cursor.moment(model);
  const MapLayout::HolePlace hole = moment.layout.hole_at(*selection.highlights.hole);
  if (hole.size_bytes == 0) {
    text_wrapped("There is no hole at this address now: move the cursor back, or click another.");
    return;
  }
  {
    const WithFont title(fonts().title);
    text("hole of " + size_text(hole.size_bytes));
  }
  const SegmentRange& segment = moment.state.segments[hole.segment];
  const float column = px(110);
  fact("address", fmt::format("{:#x}", hole.address), column);
  fact("segment",
       fmt::format("{}, {} of it free", size_text(segment.size_bytes),
                   size_text(segment.size_bytes -
                             std::min(moment.layout.used_bytes(hole.segment), segment.size_bytes))),
       column);
  fact("rank by size",
       fmt::format("{} of {}",
                   1 + std::count_if(moment.state.holes.begin(), moment.state.holes.end(),
                                     [&](const Hole& h) { return h.size_bytes > hole.size_bytes; }),
                   counted(moment.state.holes.size(), "hole")),
       column);
  if (hole.before == kNever && hole.after == kNever) {
    text_wrapped(
        "The whole segment is free: no block pins it, and torch.cuda.empty_cache() would return it "
        "to the driver.");
    return;
  }
  ImGui::SeparatorText("Pinned by");
  text_wrapped("While one of these blocks is live, the segment cannot be returned to the driver.");
  draw_pin(model, selection, "before", hole.before);
  draw_pin(model, selection, "after", hole.after);
}

void DetailPanel::draw_measure(const Model& model, const Selection& selection) {
  const TimeRange& range = *selection.highlights.measure;
  const VisibleRange time = since_start(model, range);
  const Lane& lane = model.lanes[selection.cursor.lane()];
  {
    const WithFont title(fonts().title);
    text_wrapped(selection.highlights.measured.empty() ? "measured time"
                                                       : selection.highlights.measured);
  }
  const float column = px(110);
  fact("on", lane.name, column);
  fact("from", instant_text(time.begin, std::max(time.span(), 1e3)), column);
  fact("for", span_text(time.span()), column);
  ImGui::SeparatorText("Memory within it");
  stretch_.draw(model, selection.cursor.lane(), range, column);
}

void DetailPanel::draw(const Model& model, Selection& selection) {
  const bool lane = selection.cursor.lane() < model.lanes.size();
  if (std::exchange(block_, selection.highlights.allocation) != selection.highlights.allocation) {
    ImGui::SetScrollY(0);
  }
  if (selection.highlights.activity) {
    const ActivityRef ref = *selection.highlights.activity;
    activity_.draw(model, selection, ref);
  } else if (lane && selection.highlights.hole) {
    draw_hole(model, selection);
  } else if (lane && selection.highlights.allocation &&
             *selection.highlights.allocation <
                 model.lanes[selection.cursor.lane()].memory->allocations.size()) {
    draw_block(model, selection);
  } else if (lane && selection.highlights.measure) {
    draw_measure(model, selection);
  } else {
    text_wrapped(
        "Click a block or a hole in the memory map, a row of a table, or a kernel, collective or "
        "range below the curves to see its details. Shift-drag over the curves to measure.");
  }
}

}  // namespace tidemark::view
