// Exports the trace for ui.perfetto.dev: all of it, or one rank and a range of time.
#pragma once

#include <memory>
#include <string>

#include "viewer/model/background.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

class ExportPanel {
 public:
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }

  // Opens the dialog, for the measured range if there is one, else for what is in view.
  void show(const Model& model, const Selection& selection);
  bool visible() const { return open_; }
  void close() { open_ = false; }
  bool busy() const { return work_.busy(); }

  // Draws while visible. Returns one line once the file is written, or could not be.
  std::string draw(const std::shared_ptr<const Model>& model, const Selection& selection);

  // What to write, as the dialog shows it.
  bool only_time = false;
  bool only_rank = false;
  char path[1024] = "";

 private:
  void start(const std::shared_ptr<const Model>& model, const Selection& selection);

  bool open_ = false;
  bool working_ = false;
  Background<std::string> work_;
};

}  // namespace tidemark::view
