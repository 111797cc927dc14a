#include "viewer/panels/findings/findings_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/ticks.h"
#include "viewer/panels/details/moment_panel.h"
#include "viewer/panels/flame/flame_panel.h"
#include "viewer/panels/map/map_panel.h"
#include "viewer/panels/timeline/timeline_panel.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// A program that catches the error and tries again can have thousands.
constexpr size_t kMostOoms = 20;

// A box with a coloured edge around what is drawn until the object is destroyed.
class Card {
 public:
  Card(const char* id, Rgb edge) : edge_(edge) {
    ImGui::PushStyleColor(ImGuiCol_ChildBg, paint(theme().raised, 150));
    ImGui::BeginChild(id, {0, 0},
                      ImGuiChildFlags_AutoResizeY | ImGuiChildFlags_AlwaysUseWindowPadding);
  }
  ~Card() {
    const ImVec2 at = ImGui::GetWindowPos();
    const float height = ImGui::GetWindowHeight();
    ImGui::GetWindowDrawList()->AddRectFilled(at, {at.x + px(4), at.y + height}, paint(edge_),
                                              px(2));
    ImGui::EndChild();
    ImGui::PopStyleColor();
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

 private:
  Rgb edge_;
};

// A click on the card itself, not on something in it.
bool card_clicked() {
  return ImGui::IsWindowHovered() && !ImGui::IsAnyItemHovered() &&
         ImGui::IsMouseClicked(ImGuiMouseButton_Left);
}

const char* panel_of(ShownBy by) {
  switch (by) {
    case ShownBy::kTimeline:
      return TimelinePanel::kTitle;
    case ShownBy::kMap:
      return MapPanel::kTitle;
    case ShownBy::kFlame:
      return FlamePanel::kTitle;
    case ShownBy::kMoment:
      return MomentPanel::kTitle;
  }
  return nullptr;
}

Rgb severity_colour(const std::string& severity) {
  if (severity == "error") return theme().bad;
  if (severity == "warning") return theme().warning;
  return theme().accent;
}

// The previous item's whole stack, while the mouse is over it.
void explain_lines(const std::vector<std::string>& lines) {
  if (!ImGui::IsItemHovered() || !ImGui::BeginTooltip()) return;
  for (const std::string& line : lines) text(line);
  ImGui::EndTooltip();
}

}  // namespace

void show_proof(const Model& model, Selection& selection, const FindingPlace& place) {
  go_to(model, selection, place);
  selection.requests = {false, panel_of(place.by), FindingsPanel::kTitle, std::nullopt};
}

void FindingsPanel::draw_advice(const Model& model, const Finding& f, size_t index) {
  for (const Advice& a : f.advice) {
    ImGui::Bullet();
    text_wrapped(a.detail.empty() ? in_words(a.action) : in_words(a.action) + ": " + a.detail);
    const std::string saved = size_text(a.saves_bytes);
    // Most advice says so in its detail.
    if (a.saves_bytes != 0 && a.detail.find(saved) == std::string::npos) {
      const float indent = ImGui::GetTreeNodeToLabelSpacing();  // aligned with the bullet's text
      ImGui::Indent(indent);
      text_in_colour(theme().good, "saves " + saved);
      ImGui::Unindent(indent);
    }
  }
  if (f.advice.empty() && f.severity == kError) {
    const uint32_t lane = places_[index] ? places_[index]->lane : UINT32_MAX;
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
    const Finding* other = finding_with_advice(model, lane);
    text_wrapped(other == nullptr ? why_no_advice(model, lane)
                                  : fmt::format("See {} for what to change.", in_words(other->id)));
    ImGui::PopStyleColor();
  }
}

// Without a line of its own, a finding shows that of the stack that holds most.
void FindingsPanel::draw_largest(const Model& model, size_t index) {
  const DeviceReport* device = model.report_of(model.lanes[places_[index]->lane]);
  if (device == nullptr || device->stacks.empty() || device->stacks.front().frames.empty()) return;
  const StackShare& most = device->stacks.front();
  ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().accent));
  text_wrapped(fmt::format("one call stack holds most at the peak, {}: {}", size_text(most.bytes),
                           headline_of(most.frames)));
  ImGui::PopStyleColor();
  explain_lines(most.frames);
}

void FindingsPanel::draw_finding(const Model& model, Selection& selection,
                                 const SameFindings& same) {
  const size_t index = same.front();
  const Finding& f = model.report.findings[index];
  const Card card(fmt::format("##finding{}", index).c_str(), severity_colour(f.severity));
  text_in_colour(severity_colour(f.severity), in_words(f.id));
  ImGui::SameLine();
  // A process without a rank is called as its row is, which may be by its file.
  const bool by_row = f.rank < 0 && same.size() == 1 && places_[index] && model.lanes.size() > 1;
  const std::string where =
      by_row ? model.lanes[places_[index]->lane].name : place_text(model.report, same);
  text_dim(fitted(where, ImGui::GetContentRegionAvail().x));
  {
    const WithFont bold(fonts().bold);
    text_wrapped(f.summary);
  }
  if (!f.frames.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().accent));
    text_wrapped(headline_of(f.frames));
    ImGui::PopStyleColor();
    explain_lines(f.frames);
  } else if (places_[index] && places_[index]->owner.empty()) {
    draw_largest(model, index);
  }
  draw_advice(model, f, index);
  if (const auto& place = places_[index]; place) {
    const bool proof = proofs_[index]->draw(model, f, *place, patient);
    const bool go = ImGui::Button("Show") || card_clicked() || proof;
    explain("Go to where this can be seen.");
    ImGui::SameLine();
    text_dim(place->what);
    if (go) show_proof(model, selection, *place);
  }
  if (!f.evidence.empty() && ImGui::TreeNode("Evidence")) {
    for (const auto& [name, value] : f.evidence) {
      fact(in_words(name).c_str(), name.ends_with("bytes") ? size_text(value) : grouped(value),
           px(200));
    }
    for (const std::string& frame : f.frames) text_dim(frame);
    ImGui::TreePop();
  }
}

void FindingsPanel::draw_oom(const Model& model, Selection& selection, const SameOoms& same) {
  const size_t index = same.front();
  const OomPoint& oom = model.ooms[index];
  const Card card(fmt::format("##oom{}", index).c_str(), theme().bad);
  const Lane& lane = model.lanes[oom.lane];
  text_in_colour(theme().bad,
                 oom.layer == Layer::kDriver ? "out of memory (driver)" : "out of memory");
  ImGui::SameLine();
  std::string where = fmt::format("{}  {}", lane.name,
                                  instant_text(since_start(model, oom.time_ns), model.span_ns()));
  if (same.size() > 1) where += fmt::format(", and {} more like it", same.size() - 1);
  text_dim(fitted(where, ImGui::GetContentRegionAvail().x));
  {
    const WithFont bold(fonts().bold);
    text_wrapped(fmt::format("requested {}", size_text(oom.requested_bytes)));
  }
  if (lane.memory->event_count() > 0) {
    const CurveValues now = lane.curves.values_after(oom.event);
    const auto [allocated, reserved] = size_texts(now[0], now[2]);
    std::string state = lane.of_driver
                            ? fmt::format("held by this process: {}", size_text(now[0]))
                            : fmt::format("allocated {}, reserved {}", allocated, reserved);
    if (oom.layer == Layer::kFramework) {
      state += ", free on the card " + size_text(oom.device_free_bytes);
    }
    text_wrapped(state);
  }
  text_in_colour(theme().accent,
                 fitted(model.text_of(lane).headline(oom.stack), ImGui::GetContentRegionAvail().x));
  if (oom.stack != 0) explain_lines(model.text_of(lane).names().stack_text(oom.stack));
  const Finding* about = finding_with_advice(model, oom.lane);
  text_wrapped(about == nullptr ? why_no_advice(model, oom.lane, oom.requested_bytes)
                                : fmt::format("Advice: see {} above.", in_words(about->id)));
  if (ImGui::Button("Show") || card_clicked()) {
    selection.go_to_oom_at(model, index);
    selection.requests.panel = MapPanel::kTitle;
  }
  explain("Go to this error.");
}

void FindingsPanel::draw_losses(const Model& model) {
  if (scroll_frames_ > 0) {
    --scroll_frames_;
    ImGui::SetScrollHereY(0);
  }
  const Card card("##losses", theme().warning);
  text_in_colour(theme().warning, "this trace is incomplete");
  for (const std::string& loss : model.losses) {
    ImGui::Bullet();
    text_wrapped(loss);
  }
}

void FindingsPanel::update(const Model& model) {
  if (model_ == &model && places_.size() == model.report.findings.size()) return;
  model_ = &model;
  places_.clear();
  proofs_.clear();
  for (const Finding& f : model.report.findings) {
    places_.push_back(place_of(model, f));
    proofs_.push_back(std::make_unique<ProofView>(indexes_, wake_));
  }
  findings_ = fold_findings(model.report.findings);
  // The one that the trace opened on comes first.
  if (const auto opened = finding_to_open(model); opened) {
    std::stable_partition(findings_.begin(), findings_.end(), [&](const SameFindings& same) {
      return std::find(same.begin(), same.end(), *opened) != same.end();
    });
  }
  ooms_ = fold_ooms(model);
}

void FindingsPanel::forget_trace() {
  model_ = nullptr;
  places_.clear();
  proofs_.clear();
}

static void draw_calm(const Model& model, const Selection& selection) {
  const std::string said = no_findings_text(model.report);
  const bool calm = said.starts_with("No problems found");
  const Card card("##calm", calm ? theme().good : theme().dim);
  const std::shared_ptr<const Model>& other = selection.comparison.other();
  const std::string which = other ? " in " + name_beside(model, *other) : "";
  text_wrapped(calm ? fmt::format("No allocation failed and no problems were found{}.", which)
                    : said);
}

// Errors that are older than the kept window; nothing else is known of them. Whether there are any.
static bool draw_earlier_errors(const Report& report) {
  bool any = false;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (d.run.earlier_errors == 0) continue;
      any = true;
      const Card card(fmt::format("##earlier{}:{}", rank.pid, d.device).c_str(), theme().bad);
      const std::string process = process_text(report, rank.rank, rank.pid, rank.file);
      text_wrapped(fmt::format("{}{}cuda:{}: {}", process, process.empty() ? "" : ", ", d.device,
                               earlier_errors_text(d)));
    }
  }
  return any;
}

void FindingsPanel::draw(const Model& model, Selection& selection) {
  if (!model.report_ready) {
    text_dim("Analysing ...");
    return;
  }
  update(model);
  for (const SameFindings& same : findings_) draw_finding(model, selection, same);
  const size_t shown = std::min(ooms_.size(), kMostOoms);
  for (size_t i = 0; i < shown; ++i) draw_oom(model, selection, ooms_[i]);
  if (shown < ooms_.size()) {
    text_dim(fmt::format("and {}; press N or B to go through all of them",
                         counted(model.ooms.size() - ooms_[shown].front(), "more error")));
  }
  const bool failed_earlier = draw_earlier_errors(model.report);
  if (!model.losses.empty()) draw_losses(model);
  if (model.report.findings.empty() && model.ooms.empty() && !failed_earlier) {
    draw_calm(model, selection);
  }
}

}  // namespace tidemark::view
