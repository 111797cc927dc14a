#include "viewer/app/shell.h"

#include <imgui.h>

#include <algorithm>
#include <utility>

#include "proto/base/work.h"
#include "viewer/panels/dialogs/help_panel.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

Shell::Shell(Config config, std::function<void()> wake)
    : config_(std::move(config)), loader_(wake), other_loader_(wake), follow_loader_(wake) {
  panels_.set_wake(wake);
  selection_.set_wake(wake);
  dialogs_.exporter.set_wake(wake);
}

void Shell::open(const std::string& path) {
  error_.clear();
  notice.clear();
  loader_.start(path);
}

void Shell::open_other(const std::string& path) {
  error_.clear();
  other_loader_.start(path);
}

void Shell::open_in_order(const std::vector<std::string>& paths) {
  if (paths.empty()) return;
  open(paths[std::min<size_t>(paths.size() - 1, 1)]);
  if (paths.size() > 1) open_other(paths[0]);
}

void Shell::drop(const std::vector<std::string>& paths, bool shift) {
  if (paths.size() == 1 && shift && model_ != nullptr) {
    open_other(paths[0]);
  } else {
    open_in_order(paths);
  }
}

void Shell::reload() {
  if (model_ == nullptr) return;
  error_.clear();
  reloading_ = true;
  follow_began_ = Follower::Clock::now();
  follow_loader_.start(model_->trace.path);
}

void Shell::follow(bool on) {
  follow_ = on;
  follower_.stop();
}

void Shell::take_other() {
  if (model_ == nullptr || loader_.busy()) return;  // the first trace comes first
  auto outcome = other_loader_.take();
  if (!outcome) return;
  if (!*outcome) {
    error_ = outcome->error().message;
    return;
  }
  if (std::exchange(panel_asked_for_, false)) {
    selection_.set_other(*model_, **outcome);
  } else {
    set_other(**outcome);
  }
}

void Shell::set_other(const std::shared_ptr<const Model>& other) {
  selection_.set_other(*model_, other);
  selection_.requests.panel = ComparePanel::kTitle;
}

void Shell::look_for_growth() {
  if (!follow_ || model_ == nullptr || follow_loader_.working()) return;
  if (follower_.path() != model_->trace.path) follower_.watch(model_->trace.path);
  const auto now = Follower::Clock::now();
  if (!follower_.changed(now)) return;
  follow_began_ = now;
  follow_loader_.start(model_->trace.path);
}

void Shell::load_wanted_rank() {
  if (!selection_.requests.rank) return;
  wanted_rank_ = std::exchange(selection_.requests.rank, std::nullopt);
  if (model_ == nullptr || model_->job == nullptr) return;
  error_.clear();
  notice = "loading rank " +
           std::to_string(model_->job->job.ranks[wanted_rank_->rank].summary.facts.info.rank);
  reloading_ = true;
  follow_began_ = Follower::Clock::now();
  follow_loader_.start(RankChoice{model_->job, wanted_rank_->rank});
}

void Shell::take_grown() {
  auto outcome = follow_loader_.take();
  if (!outcome) return;
  const auto now = Follower::Clock::now();
  follower_.was_read(now, now - follow_began_);
  const bool asked_for = std::exchange(reloading_, false);
  const std::optional<RankRequest> rank = std::exchange(wanted_rank_, std::nullopt);
  if (rank) notice.clear();
  if (!*outcome) {
    // A growing file may be readable again in a second; until then, show what was read before.
    if (asked_for) error_ = outcome->error().message;
    return;
  }
  if (model_ == nullptr || follow_loader_.path() != model_->trace.path) return;
  const std::shared_ptr<const Model> before = std::exchange(model_, **outcome);
  panels_.forget_trace();
  if (before->trace.start_ns == model_->trace.start_ns || !asked_for) {
    selection_.carry_over(*before, *model_);
    // The chosen rank comes first.
    const uint32_t lane = rank ? model_->lane_of(0, rank->device) : UINT32_MAX;
    if (lane != UINT32_MAX) selection_.set_time(*model_, lane, rank->time);
    return;
  }
  // Another run under the same name: the selection of the old one does not apply.
  const std::shared_ptr<const Model> other = selection_.comparison.other();
  selection_.reset(*model_);
  if (other != nullptr) selection_.set_other(*model_, other);
}

void Shell::set_model(std::shared_ptr<const Model> model) {
  panels_.forget_trace();
  model_ = std::move(model);
  selection_.reset(*model_);
  opened_on_finding_ = false;
  panel_asked_for_ = false;
  version_opened_ = selection_.version();
  open_on_finding();
}

void Shell::open_on_finding() {
  if (model_ == nullptr || !model_->report_ready || opened_on_finding_) return;
  opened_on_finding_ = true;
  if (selection_.version() != version_opened_ || !selection_.is_view_untouched()) return;
  // Two traces open peak against peak, as `tidemark diff` compares them.
  if (other_loader_.busy() || selection_.comparison.other() != nullptr) return;
  const std::optional<size_t> finding = finding_to_open(*model_);
  if (!finding && model_->ooms.empty()) return;
  if (finding) {  // otherwise the cursor is at an error already
    if (auto place = place_of(*model_, model_->report.findings[*finding]); place) {
      if (const auto oom = last_oom(*model_, place->lane); oom && !place->oom) {
        // The cause may lie earlier; the error is what the user looks for.
        place->oom = oom;
        place->compare.reset();
      }
      show_proof(*model_, selection_, *place);
      selection_.show_at_first(*model_);
    }
  }
  if (panel_asked_for_) {
    selection_.requests = {};
    return;
  }
  // Where only one of the two has space, the finding comes first.
  selection_.requests.beside = std::exchange(selection_.requests.panel, FindingsPanel::kTitle);
}

void Shell::show_error(const std::string& message) {
  error_ = message;
}

void Shell::set_dark(bool dark) {
  config_.dark = dark;
  apply_theme(dark, theme().scale);
}

bool Shell::show_only(const std::string& panel) {
  only_ = panels_.choose(panel, selection_);
  return only_ != nullptr;
}

void Shell::apply_start() {
  const std::optional<StartView> start = std::exchange(start_, std::nullopt);
  if (!start) return;
  if (const Status s = go_to_start(*start, *model_, selection_); !s) error_ = s.error().message;
  if (!start->steps.empty()) steps_asked_for_ = start;
  if (!start->time.empty() || !start->rank.empty())
    opened_on_finding_ = true;  // what was asked for stays
  const Panels::Entry* panel =
      start->panel.empty() ? nullptr : panels_.choose(start->panel, selection_);
  if (panel == nullptr) return;
  if (start->alone) only_ = panel;
  front_ = static_cast<int>(panel - Panels::entries().data());
  selection_.requests = {};
  panel_asked_for_ = true;
}

void Shell::take_loaded() {
  for (Loader* loader : {&loader_, &other_loader_, &follow_loader_}) {
    if (loader->attach_insight() && model_ != nullptr) {
      const bool untouched = selection_.version() == version_opened_;
      selection_.blocks_changed(*model_);
      if (untouched) version_opened_ = selection_.version();
    }
    if (const Status status = loader->attach_report(); !status) error_ = status.error().message;
  }
  if (steps_asked_for_ && model_->report_ready) {
    const StartView start = *std::exchange(steps_asked_for_, std::nullopt);
    const Status s = choose_steps(start, *model_, selection_, panels_.stack.options);
    if (!s) error_ = s.error().message;
  }
  open_on_finding();
  auto outcome = loader_.take();
  if (!outcome) return;
  if (!*outcome) {
    error_ = outcome->error().message;
    return;
  }
  set_model(**outcome);
  apply_start();
  if (kInBrowser) return;  // its files are gone with the page
  config_.note_recent(loader_.path());
  config_.save();
}

void Shell::handle_keys() {
  // The search field is in two panels.
  const bool in_stack = panels_.stack.visible();
  TypedAhead& search = in_stack ? panels_.stack.search.ahead : panels_.timeline.search.ahead;
  // All: each passes on what it holds.
  const bool searching = panels_.timeline.search.ahead.takes_keys();
  const bool searching_stack = panels_.stack.search.ahead.takes_keys();
  if (dialogs_.open.ahead.takes_keys() || searching || searching_stack) return;
  if (ImGui::GetIO().WantTextInput) return;
  if (model_ != nullptr && pressed(Command::kSearch)) {
    search.ask(ImGuiKey_Slash);
    selection_.requests.panel = in_stack ? StackPanel::kTitle : TimelinePanel::kTitle;
    search.takes_keys();
    return;
  }
  if (dialogs_.visible() && pressed(Command::kClear)) {
    dialogs_.close();
    return;
  }
  if (pressed(Command::kOpen)) dialogs_.ask_for_file(false);
  if (pressed(Command::kQuit)) quit_wanted = true;
  if (pressed(Command::kHelp)) dialogs_.help = !dialogs_.help;
  if (pressed(Command::kPicture)) picture_wanted = true;
  if (pressed(Command::kTheme)) set_dark(!theme().dark);
  if (const int panel = panel_pressed(static_cast<int>(Panels::entries().size())); panel >= 0)
    front_ = panel;
  if (model_ == nullptr) return;
  if (pressed(Command::kOpenOther)) dialogs_.ask_for_file(true);
  if (pressed(Command::kExport)) dialogs_.exporter.show(*model_, selection_);
  if (pressed(Command::kReload) && !kInBrowser) reload();
  panels_.timeline.handle_keys(*model_, selection_, panels_.stack.hover_time());
}

void Shell::draw() {
  panels_.begin_frame();
  if (const uint64_t before = selection_.version();
      selection_.poll() && before == version_opened_) {
    version_opened_ = selection_.version();  // nobody has gone anywhere
  }
  take_loaded();
  take_other();
  take_grown();
  load_wanted_rank();
  look_for_growth();
  handle_keys();
  if (only_ != nullptr && model_ != nullptr) {
    draw_losses();
    draw_only();
    return;
  }
  draw_menu();
  draw_banners();
  draw_status();
  if (loader_.busy()) {
    draw_loading();
  } else if (model_ == nullptr) {
    draw_welcome();
  } else {
    draw_panels();
  }
  if (std::exchange(panels_.compare.open_wanted, false)) dialogs_.ask_for_file(true);
  if (const auto chosen = dialogs_.open.draw()) {
    dialogs_.open_second ? open_other(*chosen) : open(*chosen);
  }
  if (std::string outcome = dialogs_.exporter.draw(model_, selection_); !outcome.empty()) {
    notice = std::move(outcome);
  }
  if (dialogs_.help) draw_help(dialogs_.help);
}

}  // namespace tidemark::view
