// What the program stores between runs: recent files, theme, and the layout (ImGui's ini).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tidemark::view {

struct Config {
  std::filesystem::path folder;  // empty: nothing is stored
  std::vector<std::string> recent;
  bool dark = true;

  // From $XDG_CONFIG_HOME/tidemark or ~/.config/tidemark. An unreadable file counts as empty.
  static Config load();
  static Config load_from(const std::filesystem::path& folder);
  // Best effort: the program must work with a read-only home directory.
  void save() const;

  void note_recent(const std::string& path);
  std::string layout_file() const;
};

}  // namespace tidemark::view
