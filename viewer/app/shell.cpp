#include "viewer/app/shell.h"

#include <imgui.h>

#include <utility>

#include "viewer/panels/dialogs/help_panel.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

// In the order of the keys 1 to 9.
const Shell::Panel Shell::kPanels[kPanelCount] = {
    {"timeline", TimelinePanel::kTitle, &Shell::draw_timeline},
    {"map", MapPanel::kTitle, &Shell::draw_map},
    {"flame", FlamePanel::kTitle, &Shell::draw_flame},
    {"tables", TablesPanel::kTitle, &Shell::draw_tables},
    {"moment", MomentPanel::kTitle, &Shell::draw_moment},
    {"findings", FindingsPanel::kTitle, &Shell::draw_findings},
    {"ranks", RanksPanel::kTitle, &Shell::draw_ranks},
    {"compare", ComparePanel::kTitle, &Shell::draw_compare},
    {"block", DetailPanel::kTitle, &Shell::draw_detail},
};

Shell::Shell(Config config, std::function<void()> wake)
    : config_(std::move(config)), loader_(wake), other_loader_(wake), follow_loader_(wake) {
  tables_.set_wake(wake);
  export_.set_wake(wake);
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

void Shell::drop(const std::vector<std::string>& paths, bool shift) {
  if (paths.size() == 1 && shift && model_ != nullptr) {
    open_other(paths[0]);
  } else if (!paths.empty()) {
    open(paths[0]);
    if (paths.size() > 1) open_other(paths[1]);
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
  if (model_ == nullptr || loader_.busy()) return;  // it stands beside the first, which comes first
  auto outcome = other_loader_.take();
  if (!outcome) return;
  if (!*outcome) {
    error_ = outcome->error().message;
    return;
  }
  selection_.set_other(*model_, **outcome);
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

void Shell::forget_curves() {
  const TimelineOptions options = timeline_.options;
  timeline_ = TimelinePanel();
  timeline_.options = options;
  timeline_.patient = ranks_.patient;
  RanksPanel ranks;
  ranks.options = ranks_.options;
  ranks.curves = ranks_.curves;
  ranks.patient = ranks_.patient;
  ranks_ = ranks;
}

void Shell::take_grown() {
  auto outcome = follow_loader_.take();
  if (!outcome) return;
  const auto now = Follower::Clock::now();
  follower_.was_read(now, now - follow_began_);
  const bool asked_for = std::exchange(reloading_, false);
  if (!*outcome) {
    // A file that grows may be readable again in a second; until then, what was read is shown.
    if (asked_for) error_ = outcome->error().message;
    return;
  }
  if (model_ == nullptr || follow_loader_.path() != model_->trace.path) return;
  const std::shared_ptr<const Model> before = std::exchange(model_, **outcome);
  forget_curves();
  if (before->trace.start_ns == model_->trace.start_ns || !asked_for) {
    selection_.carry_over(*before, *model_);
    return;
  }
  // Another run under the same name: what was chosen in the old one means nothing here.
  const std::shared_ptr<const Model> other = selection_.comparison.other();
  selection_.reset(*model_);
  if (other != nullptr) selection_.set_other(*model_, other);
}

void Shell::set_model(std::shared_ptr<const Model> model) {
  forget_curves();
  model_ = std::move(model);
  selection_.reset(*model_);
}

void Shell::show_error(const std::string& message) {
  error_ = message;
}

void Shell::set_dark(bool dark) {
  config_.dark = dark;
  apply_theme(dark, theme().scale);
}

bool Shell::show_only(const std::string& panel) {
  const size_t colon = panel.find(':');
  only_ = nullptr;
  for (const Panel& p : kPanels) {
    if (panel.substr(0, colon) == p.id) only_ = &p;
  }
  if (only_ == nullptr) return false;
  for (size_t at = colon; at != std::string::npos;) {
    const size_t end = panel.find(':', at + 1);
    if (!show_as(only_->title, panel.substr(at + 1, end - at - 1))) return false;
    at = end;
  }
  return true;
}

bool Shell::show_as(std::string_view title, const std::string& way) {
  if (title == FlamePanel::kTitle) return flame_.show_as(way);
  if (title == TablesPanel::kTitle) return tables_.show_as(way);
  if (title == RanksPanel::kTitle) {
    ranks_.curves = way == "curves";
    return ranks_.curves || way == "heat";
  }
  if (title != MapPanel::kTitle) return false;
  for (int i = 0; i < kColourings; ++i) {
    if (way != colouring_name(static_cast<ColourBy>(i))) continue;
    selection_.colouring.by = static_cast<ColourBy>(i);
    return true;
  }
  return false;
}

std::string Shell::panel_names() {
  std::string names;
  for (const Panel& p : kPanels) names += (names.empty() ? "" : ", ") + std::string(p.id);
  return names;
}

void Shell::take_loaded() {
  for (Loader* loader : {&loader_, &other_loader_, &follow_loader_}) {
    if (loader->attach_insight() && model_ != nullptr) selection_.blocks_changed(*model_);
    if (const Status status = loader->attach_report(); !status) error_ = status.error().message;
  }
  auto outcome = loader_.take();
  if (!outcome) return;
  if (!*outcome) {
    error_ = outcome->error().message;
    return;
  }
  set_model(**outcome);
  config_.note_recent(loader_.path());
  config_.save();
}

void Shell::handle_keys() {
  if (ImGui::GetIO().WantTextInput) return;
  if ((help_ || open_.visible() || export_.visible()) && pressed(Command::kClear)) {
    help_ = false;  // what floats above goes first
    open_.close();
    export_.close();
    return;
  }
  if (pressed(Command::kOpen)) choose_file(false);
  if (pressed(Command::kQuit)) quit_wanted = true;
  if (pressed(Command::kHelp)) help_ = !help_;
  if (pressed(Command::kPicture)) picture_wanted = true;
  if (pressed(Command::kTheme)) set_dark(!theme().dark);
  if (const int panel = panel_pressed(kPanelCount); panel >= 0) front_ = panel;
  if (model_ == nullptr) return;
  if (pressed(Command::kOpenOther)) choose_file(true);
  if (pressed(Command::kExport)) export_.show(*model_, selection_);
  if (pressed(Command::kReload)) reload();
  timeline_.handle_keys(*model_, selection_);
}

void Shell::choose_file(bool other) {
  choosing_other_ = other;
  open_.show();
}

void Shell::draw() {
  take_loaded();
  take_other();
  take_grown();
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
  if (std::exchange(compare_.open_wanted, false)) choose_file(true);
  if (const auto chosen = open_.draw()) choosing_other_ ? open_other(*chosen) : open(*chosen);
  if (std::string told = export_.draw(model_, selection_); !told.empty()) notice = std::move(told);
  if (help_) draw_help(help_);
}

}  // namespace tidemark::view
