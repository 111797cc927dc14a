// The whole program but its window: menu, banners, docked panels, status line.
//
// draw() is called once per frame between ImGui::NewFrame() and ImGui::Render(), by the window, by
// the program that draws pictures, and by the tests. Belongs to one thread; loading happens on the
// loader's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/app/config.h"
#include "viewer/app/dialogs.h"
#include "viewer/app/panels.h"
#include "viewer/model/trace/follower.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {

class Shell {
 public:
  // `wake` asks for a new frame, from any thread.
  explicit Shell(Config config, std::function<void()> wake = {});

  void open(const std::string& path);
  // A second trace beside the first, to compare with.
  void open_other(const std::string& path);
  // Files that were dropped on the window: the first is opened, a second one beside it. With shift,
  // one file comes beside the trace that is open.
  void drop(const std::vector<std::string>& paths, bool shift);
  // Reads the trace once more; the view, the cursor and the comparison stay.
  void reload();
  bool reloading() const { return reloading_; }
  // Reads the trace again whenever its files grow.
  void follow(bool on);
  bool following() const { return follow_; }
  void set_model(std::shared_ptr<const Model> model);
  void show_error(const std::string& message);
  const std::string& error() const { return error_; }

  void draw();

  // Draws this panel alone, over the whole window; false when there is none of that name. A colon
  // and a word choose how: "map:age", "flame:rows:bottom-up", "tables:kernels", "ranks:curves".
  bool show_only(const std::string& panel);

  bool loading() const { return loader_.busy(); }
  bool loading_other() const { return other_loader_.busy(); }
  // Whether threads are still reading or thinking.
  bool working() const {
    return loader_.working() || other_loader_.working() || follow_loader_.working();
  }
  bool exporting() const { return dialogs_.exporter.busy(); }
  // Whether there are curves to look at: those of the trace, or a first sketch of them.
  bool has_curves() const { return model_ != nullptr || loader_.preview() != nullptr; }
  const Model* model() const { return model_.get(); }
  std::shared_ptr<const Model> shared_model() const { return model_; }
  Selection& selection() { return selection_; }
  Panels& panels() { return panels_; }
  Dialogs& dialogs() { return dialogs_; }
  // There is something left to compute: draw again.
  bool busy() const { return panels_.busy(); }
  const Config& config() const { return config_; }
  void set_dark(bool dark);

  // What the window must do after a frame.
  bool quit_wanted = false;
  bool picture_wanted = false;
  std::string notice;  // one line in the status bar

 private:
  void take_loaded();
  void take_other();
  void take_grown();
  void look_for_growth();
  void handle_keys();
  void draw_menu();
  void draw_banners();
  void draw_losses();
  // Of the trace, for the status line.
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
  Loader follow_loader_;  // the trace once more, while the last reading of it is shown
  Follower follower_;
  Follower::Clock::time_point follow_began_;
  bool follow_ = false;
  bool reloading_ = false;
  std::shared_ptr<const Model> model_;
  Selection selection_;
  std::string error_;
  const Panels::Entry* only_ = nullptr;
  bool layout_wanted_ = false;
  int front_ = -1;  // panel to bring to the front
  Panels panels_;
  Dialogs dialogs_;
};

}  // namespace tidemark::view
