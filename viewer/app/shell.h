// The whole program except its window: menu, banners, docked panels, status line.
//
// draw() is called once per frame between ImGui::NewFrame() and ImGui::Render(), by the window, for
// pictures, and by the tests. Belongs to one thread; the loaders have threads of their own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/app/config.h"
#include "viewer/app/dialogs.h"
#include "viewer/app/start_view.h"
#include "viewer/model/trace/follower.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {

class Shell {
 public:
  // `wake` asks for a new frame, from any thread.
  explicit Shell(Config config, std::function<void()> wake = {});

  void open(const std::string& path);
  // A second trace, to compare with the first.
  void open_other(const std::string& path);
  // A trace, or two: BEFORE and AFTER. Changes are what is shown minus what it is compared with, so
  // AFTER is shown, and signs are those of `tidemark diff BEFORE AFTER`.
  void open_in_order(const std::vector<std::string>& paths);
  // Files that were dropped on the window. With shift, one file is compared with the open trace.
  void drop(const std::vector<std::string>& paths, bool shift);
  // Reads the trace again; the view, the cursor and the comparison stay.
  void reload();
  bool reloading() const { return reloading_; }
  // Reads the trace again whenever its files grow.
  void follow(bool on);
  bool following() const { return follow_; }
  void set_model(std::shared_ptr<const Model> model);
  // Compares with this trace, and shows the comparison.
  void set_other(const std::shared_ptr<const Model>& other);
  void show_error(const std::string& message);
  const std::string& error() const { return error_; }

  void draw();

  // Draws only this panel, over the whole window; see Panels::choose().
  bool show_only(const std::string& panel);
  // What to show as soon as a trace is read.
  void start_with(StartView start) { start_ = std::move(start); }

  bool loading() const { return loader_.busy(); }
  // Reads the first trace, or the second.
  const Loader& loader() const { return loader_; }
  const Loader& other_loader() const { return other_loader_; }
  bool loading_other() const { return other_loader_.busy(); }
  // Whether threads are still loading or analysing.
  bool working() const {
    return loader_.working() || other_loader_.working() || follow_loader_.working();
  }
  bool exporting() const { return dialogs_.exporter.busy(); }
  // Whether there are curves to see: those of the trace, or the preview.
  bool has_curves() const { return model_ != nullptr || loader_.preview() != nullptr; }
  const Model* model() const { return model_.get(); }
  std::shared_ptr<const Model> shared_model() const { return model_; }
  Selection& selection() { return selection_; }
  Panels& panels() { return panels_; }
  Dialogs& dialogs() { return dialogs_; }
  // There is more to compute: draw again soon.
  bool unfinished() const { return panels_.unfinished(); }
  const Config& config() const { return config_; }
  void set_dark(bool dark);

  // Requests to the window, for after the frame.
  bool quit_wanted = false;
  bool picture_wanted = false;
  std::string notice;  // one line in the status bar

 private:
  void take_loaded();
  void apply_start();
  // Goes to the most severe finding, if nobody has gone elsewhere since the trace was opened.
  void open_on_finding();
  void take_other();
  void take_grown();
  void look_for_growth();
  void load_wanted_rank();
  void handle_keys();
  void draw_menu();
  void draw_banners();
  void draw_losses();
  // Facts about the trace, for the status line.
  std::string facts() const;
  void draw_status();
  void draw_panels();
  void draw_only();
  void draw_welcome();
  void draw_loading();
  void build_layout(unsigned int dockspace);

  Config config_;
  Loader loader_;
  Loader other_loader_;
  Loader follow_loader_;  // reads the trace again, while the last reading is shown
  Follower follower_;
  Follower::Clock::time_point follow_began_;
  bool follow_ = false;
  bool reloading_ = false;
  std::optional<RankRequest> wanted_rank_;  // being loaded
  std::shared_ptr<const Model> model_;
  Selection selection_;
  std::string error_;
  const Panels::Entry* only_ = nullptr;
  bool layout_wanted_ = false;
  std::optional<StartView> start_;
  std::optional<StartView> steps_asked_for_;  // until the report is there
  bool opened_on_finding_ = false;
  bool panel_asked_for_ = false;    // on the command line: it stays in front
  uint64_t version_opened_ = 0;     // of the selection, when the trace was opened
  int front_ = -1;                  // panel to bring to the front
  const char* settling_ = nullptr;  // the panel that was last brought to the front
  int frames_to_settle_ = 0;
  Panels panels_;
  Dialogs dialogs_;
};

}  // namespace tidemark::view
