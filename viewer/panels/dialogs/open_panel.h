// A simple file dialog: folders, traces and snapshots of one folder, newest first.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "viewer/widgets/typed_ahead.h"

namespace tidemark::view {

class OpenPanel {
 public:
  void show();
  bool visible() const { return open_; }
  void close() { open_ = false; }
  // Draws while visible. Returns the chosen path, once.
  std::optional<std::string> draw();

  TypedAhead ahead;  // of the path

 private:
  struct Entry {
    std::string name;
    bool folder = false;
    uint64_t bytes = 0;
    std::filesystem::file_time_type changed;
  };

  void read_folder();
  std::optional<std::string> draw_entries();

  bool open_ = false;
  std::filesystem::path folder_;
  std::vector<Entry> entries_;
  std::string error_;
  char typed_[1024] = "";
};

}  // namespace tidemark::view
