// What the program remembers between runs: recent files, theme, and the layout (ImGui's ini).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tidemark::view {

struct Config {
  std::filesystem::path folder;  // empty: nothing is remembered
  std::vector<std::string> recent;
  bool dark = true;

  // $XDG_CONFIG_HOME/tidemark or ~/.config/tidemark; an unreadable file is an empty one.
  static Config load();
  static Config load_from(const std::filesystem::path& folder);
  // Best effort: a read-only home must not stop anybody from looking at a trace.
  void save() const;

  void note_recent(const std::string& path);
  std::string layout_file() const;
};

}  // namespace tidemark::view
