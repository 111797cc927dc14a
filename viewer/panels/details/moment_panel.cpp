#include "viewer/panels/details/moment_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <string>

#include "analysis/insight/fragmentation.h"
#include "analysis/names/stack_lines.h"
#include "analysis/report/report.h"
#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/tables/line_rows.h"
#include "viewer/model/tables/owner_text.h"
#include "viewer/model/ticks.h"
#include "viewer/panels/map/map_panel.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kStacks = 8;
constexpr size_t kPinnedStacks = 3;
constexpr float kEntriesPx = 620;

// Of the allocator, the environment and the recorder.
void draw_settings(const ProcessModel& process) {
  if (process.settings.empty() || !ImGui::TreeNode("Settings")) return;
  for (const Setting& s : process.settings) {
    fact(std::string(process.names.string(s.key)).c_str(), process.names.string(s.value), px(230));
  }
  ImGui::TreePop();
}

}  // namespace

void MomentPanel::update(const Model& model, Selection& selection) {
  if (model_ == &model && version_ == selection.version()) return;
  model_ = &model;
  version_ = selection.version();
  const Moment& moment = selection.cursor.moment(model);
  const Lane& lane = model.lanes[moment.lane];
  ledger_ = lane.ledger->at(selection.cursor.time_ns(model),
                            lane.of_driver ? nullptr : &moment.state.totals);
  pinned_stacks_ =
      model.pinned[lane.process].stacks_at(selection.cursor.time_ns(model), kPinnedStacks);
  categories_ = moment.live.categories;
  lines_ = sums_by_line(model.text_of(lane), moment.live.stacks);
}

std::vector<MomentPanel::Entry> MomentPanel::allocator_entries(const Lane& lane,
                                                               const Moment& moment) const {
  const MemoryTotals& t = moment.state.totals;
  const auto less = [](uint64_t a, uint64_t b) { return static_cast<int64_t>(a > b ? a - b : 0); };
  // PyTorch counts a request until its free completes.
  const uint64_t pending = moment.live.pending_requested_bytes;
  const uint64_t asked = t.requested - std::min(t.requested, pending);
  std::vector<Entry> entries;
  if (lane.requests_known) {
    entries = {
        {pending == 0 ? "requested" : "requested, in use",
         "What the program requested for its tensors. PyTorch's \"requested\" counts pending "
         "frees, "
         "too.",
         static_cast<int64_t>(asked), theme().allocated, false},
        {"rounding", "Lost to rounding requests up to block sizes.", less(t.allocated, asked),
         shade(theme().allocated, theme().dark ? -0.45 : 0.5), false}};
  } else {
    entries = {{"in use", "Blocks of tensors. How much was requested was not recorded.",
                static_cast<int64_t>(t.allocated), theme().allocated, false}};
  }
  entries.insert(
      entries.end(),
      {{"pending free", "Freed by the program, but another stream may still be using it.",
        static_cast<int64_t>(t.pending()), theme().pending, true},
       {"cached", "Reserved by the allocator but not in use: holes in its segments.",
        less(t.reserved, t.active), theme().reserved, true}});
  if (ledger_.device_used_bytes == 0 && lane.total_bytes > t.reserved) {
    entries.push_back({"rest of the card",
                       "Not reserved by this process's allocator: free, or used by the context, "
                       "libraries and other processes.",
                       less(lane.total_bytes, t.reserved), theme().hole, true});
  }
  return entries;
}

std::vector<MomentPanel::Entry> MomentPanel::card_entries(const Model& model,
                                                          const Lane& lane) const {
  std::vector<Entry> entries;
  for (const LedgerLine& line : ledger_.lines) {
    const bool hatched = line.owner.ends_with(".cached") || line.owner == "torch.pending" ||
                         line.owner == "unexplained";
    entries.push_back({owner_text(model, lane, line.owner, ledger_.time_ns),
                       owner_meaning(line.owner), line.bytes, owner_colour(line.owner), hatched});
  }
  if (ledger_.not_resident_bytes != 0) {
    entries.push_back({owner_title(kNotResident), owner_meaning(kNotResident),
                       static_cast<int64_t>(ledger_.not_resident_bytes), theme().dim, true, true});
  }
  // What is used at this moment may be more than what the card said at another.
  const bool now = ledger_.reading && ledger_.reading->time_ns == ledger_.time_ns;
  const uint64_t used = ledger_.device_used_bytes;
  if (used != 0 && lane.total_bytes > used) {
    entries.push_back({now ? "free" : "free, estimated",
                       now ? "Not used by any process, according to the card."
                           : "What is recorded here and what the card said at another moment "
                             "leave this.",
                       static_cast<int64_t>(lane.total_bytes - used), theme().hole, true, true});
  }
  return entries;
}

void MomentPanel::draw_entries(const char* id, const std::vector<Entry>& entries) {
  double whole = 0;
  std::vector<BarPart> parts;
  for (const Entry& e : entries) {
    const auto bytes = static_cast<double>(std::max<int64_t>(e.bytes, 0));
    whole += e.not_in_bar ? 0 : bytes;
    parts.push_back({e.not_in_bar ? 0 : bytes, e.colour, e.hatched, e.name});
  }
  ImGui::PushID(id);
  const int hovered =
      draw_bar("##bar", parts, whole, {std::max(ImGui::GetContentRegionAvail().x, px(40)), px(26)});
  if (hovered >= 0) {
    const Entry& e = entries[static_cast<size_t>(hovered)];
    explain(
        (e.name + ": " + size_text(static_cast<uint64_t>(e.bytes)) + "\n" + std::string(e.meaning))
            .c_str());
  }
  // In a wide panel the numbers stay close to their names.
  const float width = std::min(ImGui::GetContentRegionAvail().x, px(kEntriesPx));
  if (ImGui::BeginTable("##entries", 3, ImGuiTableFlags_SizingStretchProp, {width, 0})) {
    ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("bytes", ImGuiTableColumnFlags_WidthFixed, px(84));
    ImGui::TableSetupColumn("share", ImGuiTableColumnFlags_WidthFixed, px(58));
    for (const Entry& e : entries) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      swatch(e.colour);
      text(e.name);
      explain(std::string(e.meaning).c_str());
      ImGui::TableNextColumn();
      text_right(e.bytes < 0 ? signed_size_text(e.bytes)
                             : size_text(static_cast<uint64_t>(e.bytes)));
      ImGui::TableNextColumn();
      ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
      if (e.bytes >= 0 && !e.not_in_bar) {
        text_right(percent_text(static_cast<uint64_t>(e.bytes), static_cast<uint64_t>(whole)));
      }
      ImGui::PopStyleColor();
    }
    ImGui::EndTable();
  }
  ImGui::PopID();
}

void MomentPanel::draw_ledger(const Model& model, const Lane& lane, const Moment& moment) {
  const bool more_than_torch =
      std::any_of(ledger_.lines.begin(), ledger_.lines.end(), [](const LedgerLine& line) {
        return line.owner != "torch.allocated" && line.owner != "torch.pending" &&
               line.owner != "torch.cached";
      });
  const bool shows_card = more_than_torch || ledger_.not_resident_bytes != 0;
  if (shows_card) {
    ImGui::SeparatorText("On the card");
    if (ledger_.device_used_bytes != 0) {
      text_wrapped(fmt::format("{} used{}", size_text(ledger_.device_used_bytes),
                               lane.total_bytes == 0 ? "" : " of " + size_text(lane.total_bytes)));
      const int64_t off = ledger_.reading->time_ns - ledger_.time_ns;
      text_dim(off == 0 ? "the card was read at this moment"
                        : fmt::format("the card was read {} {}",
                                      span_text(static_cast<double>(std::abs(off))),
                                      off < 0 ? "earlier" : "later"));
      explain(
          "What was recorded is exact at this moment. Context, code, other processes and the "
          "unexplained rest are what the card's reading found beyond it.");
    } else {
      text_dim(lane.used.empty()
                   ? "The card was not sampled: these are the recorded allocations."
                   : "No reading of the card is usable here: these are the recorded allocations.");
    }
    if (ledger_.shared_card) {
      text_dim("The memory of other processes is unknown and counted as CUDA context.");
    }
    draw_entries("card", card_entries(model, lane));
  }
  if (lane.of_driver) return;
  if (shows_card) ImGui::SeparatorText("In the allocator");
  draw_entries("allocator", allocator_entries(lane, moment));
}

std::vector<MomentPanel::Entry> MomentPanel::pinned_entries(uint64_t driver_bytes,
                                                            const TorchPinned& torch) {
  const Entry outside{"pinned by others", "Pinned by the driver for anybody else in this process.",
                      static_cast<int64_t>(driver_bytes - std::min(driver_bytes, torch.held_bytes)),
                      theme().dim, false};
  if (!torch.in_use_bytes) {
    return {{"held by PyTorch",
             "Blocks of PyTorch's allocator of pinned memory. This version of PyTorch does not say "
             "which of them are in use.",
             static_cast<int64_t>(torch.held_bytes), theme().reserved, false},
            outside};
  }
  return {
      {"given out by PyTorch", "Blocks of PyTorch's allocator of pinned memory that are in use.",
       static_cast<int64_t>(*torch.in_use_bytes), theme().allocated, false},
      {"cached by PyTorch", "Blocks that PyTorch keeps for later, each a power of two in size.",
       static_cast<int64_t>(torch.held_bytes - *torch.in_use_bytes), theme().reserved, true},
      outside};
}

void MomentPanel::draw_pinned(const Model& model, const Cursor& cursor) {
  const PinnedHistory& history = model.pinned[model.lanes[cursor.lane()].process];
  const int64_t now = cursor.time_ns(model);
  const uint64_t bytes = history.pinned().at(now);
  const std::optional<TorchPinned> torch = history.torch_at(now);
  if (bytes == 0 && (!torch || torch->held_bytes == 0)) return;
  ImGui::SeparatorText("Pinned host memory");
  text_wrapped(fmt::format("{} pinned by the driver for this process", size_text(bytes)));
  explain("Memory of the host, not of the card: page-locked, for copies to and from the card.");
  if (torch) {
    if (torch->time_ns != now) {
      text_dim(fmt::format("PyTorch's allocator was asked {} earlier",
                           span_text(static_cast<double>(now - torch->time_ns))));
    }
    draw_entries("pinned", pinned_entries(bytes, *torch));
  }
  for (const StackShare& share : pinned_stacks_) {
    text_dim(fmt::format("{:>10}", size_text(share.bytes)));
    ImGui::SameLine(px(84));
    text(fitted(headline_of(share.frames), ImGui::GetContentRegionAvail().x));
  }
}

void MomentPanel::draw_categories(const Model& model, const Lane& lane, const Moment& moment) {
  const bool known = std::any_of(categories_.begin(), categories_.end(), [](const CategoryRow& c) {
    return c.category != Category::kUnknown;
  });
  if (!known) return;
  ImGui::SeparatorText("By category");
  std::vector<std::string> names;  // the parts refer to them
  for (const CategoryRow& c : categories_) {
    names.push_back(category_text(model, lane, c.category));
  }
  std::vector<BarPart> parts;
  for (size_t i = 0; i < categories_.size(); ++i) {
    const CategoryRow& c = categories_[i];
    parts.push_back({static_cast<double>(c.bytes), category_colour(c.category), false, names[i]});
  }
  const int hovered = draw_bar("##kinds", parts, static_cast<double>(moment.state.totals.allocated),
                               {std::max(ImGui::GetContentRegionAvail().x, px(40)), px(22)});
  if (hovered >= 0) {
    const CategoryRow& c = categories_[static_cast<size_t>(hovered)];
    ImGui::SetTooltip("%s: %s in %s", names[static_cast<size_t>(hovered)].c_str(),
                      size_text(c.bytes).c_str(), counted(c.count, "block").c_str());
  }
}

void MomentPanel::draw_lines(const Model& model, const Lane& lane, const Moment& moment) {
  ImGui::SeparatorText("Largest lines");
  const size_t shown = std::min(kStacks, lines_.size());
  if (shown == 0) text_dim("Nothing was allocated at this instant.");
  const auto most = shown == 0 ? 1.0 : static_cast<double>(lines_.front().bytes);
  for (size_t i = 0; i < shown; ++i) {
    const StackRow& row = lines_[i];
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const float height = ImGui::GetTextLineHeight() + px(4);
    const auto share = static_cast<float>(static_cast<double>(row.bytes) / most);
    ImGui::GetWindowDrawList()->AddRectFilled(at, {at.x + width * share, at.y + height},
                                              paint(stack_colour(row.stack), 62), px(3));
    const std::string bytes = size_text(row.bytes);
    const float column = px(84);
    ImGui::GetWindowDrawList()->AddText({at.x + column - width_of(bytes) - px(10), at.y + px(2)},
                                        paint(theme().text), bytes.c_str());
    const std::string_view head = line_of(model.text_of(lane), row);
    ImGui::GetWindowDrawList()->AddText({at.x + column, at.y + px(2)}, paint(theme().text),
                                        fitted(head, width - column - px(4)).c_str());
    ImGui::Dummy({width, height});
    if (ImGui::IsItemHovered() && ImGui::BeginTooltip()) {
      text(fmt::format("{}, {} of what is allocated, {}", bytes,
                       percent_text(row.bytes, moment.state.totals.allocated),
                       counted(row.count, "block")));
      for (const std::string& line : model.text_of(lane).names().stack_text(row.stack)) {
        text_dim(line);
      }
      ImGui::EndTooltip();
    }
  }
  if (lines_.size() > shown) {
    text_dim(fmt::format("and {}: see Tables", counted(lines_.size() - shown, "smaller line")));
  }
}

void MomentPanel::draw(const Model& model, Selection& selection) {
  if (selection.cursor.lane() >= model.lanes.size()) {
    text_dim("This trace has no allocator history.");
    return;
  }
  update(model, selection);
  const Moment& moment = selection.cursor.moment(model);
  const Lane& lane = model.lanes[selection.cursor.lane()];
  {
    const WithFont bold(fonts().bold);
    text(fmt::format("{}  {}", lane.name,
                     instant_text(selection.cursor.time(model), model.span_ns())));
  }
  if (const std::string note =
          note_on_time_before(*lane.memory, selection.cursor.time_ns(model), model.trace.start_ns);
      !note.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().warning));
    text_wrapped(note);
    ImGui::PopStyleColor();
  }
  if (const OomPoint* oom = oom_at(model, selection.cursor); oom != nullptr) {
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
    std::string what = "Out of memory: requested " + size_text(oom->requested_bytes);
    UsableHoles usable;
    if (oom->layer == Layer::kFramework) {
      usable = usable_holes(*lane.memory, moment.state, *oom);
      what += fmt::format(", {} free on the card, largest usable hole {}",
                          size_text(oom->device_free_bytes),
                          size_texts(usable.largest_bytes, oom->requested_bytes).first);
    }
    text_wrapped(what);
    ImGui::PopStyleColor();
    if (usable.largest_bytes != 0) {
      if (ImGui::SmallButton("Show the hole")) show_hole(selection, usable.largest_at);
      explain("Go to the largest hole that the request could use.");
    }
  }
  draw_ledger(model, lane, moment);
  const MemoryState& s = moment.state;
  if (!s.holes.empty()) {
    text_wrapped(fmt::format("{} cached and free in {}, the largest {}", size_text(s.free_bytes()),
                             counted(s.holes.size(), "hole"), size_text(s.largest_hole_bytes())));
    explain(
        "A request larger than the largest hole needs new memory from the card, however much is "
        "free in total.");
    draw_largest_hole_button(selection, s);
  }
  draw_pinned(model, selection.cursor);
  draw_categories(model, lane, moment);
  draw_lines(model, lane, moment);
  draw_settings(model.process_of(lane));
}

}  // namespace tidemark::view
