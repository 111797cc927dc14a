// Exports the trace for other tools: all of it, or one rank and a range of time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "export/export_input.h"
#include "viewer/model/background.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

enum class ExportFormat : uint8_t { kPerfetto, kSqlite, kCsv, kSnapshot, kPage };

class ExportPanel {
 public:
  static constexpr const char* kTitle = "Export";

  ExportPanel();

  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }

  // Opens the dialog, for the measured range if there is one, else for what is in view.
  void show(const Model& model, const Selection& selection);
  bool visible() const { return open_; }
  void close() { open_ = false; }
  bool busy() const { return work_.busy(); }

  // Draws while visible. Returns one line once the file is written.
  std::string draw(const std::shared_ptr<const Model>& model, const Selection& selection);

  // Also changes the ending of the name.
  void set_format(ExportFormat format);
  ExportFormat format() const { return format_; }
  // Where the dialog would write.
  std::string target() const;
  const std::string& error() const { return error_; }
  // Whether the dialog asks if the file may be overwritten.
  bool asking() const { return !asked_about_.empty(); }

  // The path of tidemark-view.html; empty: pages are not offered.
  std::string page;
  // Called with the path of what was written.
  std::function<void(const std::string& path)> on_written;

  // What to write, as the dialog shows it.
  bool only_time = false;
  bool only_rank = false;
  char folder[1024] = "";  // in a browser, a file goes to where that puts downloads
  char name[256] = "";

 private:
  struct Outcome {
    bool written = false;
    std::string message;
  };

  static Outcome write(const std::shared_ptr<const Model>& model, ExportFormat format,
                       const ExportOptions& options, const std::string& page,
                       const std::string& path);
  // Asks first where the file exists; never over a trace that is open.
  void save(const std::shared_ptr<const Model>& model, const Selection& selection);
  void start(const std::shared_ptr<const Model>& model, const Selection& selection);
  void draw_choices(const Model& model, const Selection& selection);
  void draw_place(const Model& model);
  void draw_folder(const Model& model, float label);
  void draw_buttons(const std::shared_ptr<const Model>& model, const Selection& selection);

  bool open_ = false;
  bool working_ = false;
  ExportFormat format_ = ExportFormat::kPerfetto;
  std::string error_;
  std::string asked_about_;  // a file that exists; empty: nothing is asked
  Background<Outcome> work_;
};

}  // namespace tidemark::view
