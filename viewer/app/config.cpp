#include "viewer/app/config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace tidemark::view {

namespace {

namespace fs = std::filesystem;

constexpr size_t kRecent = 12;

fs::path config_home() {
  if (const char* xdg = std::getenv("XDG_CONFIG_HOME"); xdg != nullptr && *xdg != '\0') return xdg;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".config";
  }
  return {};
}

}  // namespace

Config Config::load() {
  const fs::path home = config_home();
  return load_from(home.empty() ? fs::path() : home / "tidemark");
}

Config Config::load_from(const fs::path& folder) {
  Config config;
  config.folder = folder;
  if (folder.empty()) return config;
  std::ifstream file(folder / "view.conf");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("recent=") && config.recent.size() < kRecent) {
      config.recent.push_back(line.substr(7));
    } else if (line == "theme=light") {
      config.dark = false;
    }
  }
  return config;
}

void Config::save() const {
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path path = folder / "view.conf";
  const fs::path fresh = folder / "view.conf.new";
  {
    std::ofstream file(fresh);
    file << "theme=" << (dark ? "dark" : "light") << '\n';
    for (const std::string& r : recent) file << "recent=" << r << '\n';
    if (!file.flush()) return;
  }
  fs::rename(fresh, path, error);
}

void Config::note_recent(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const std::string text = error ? path : absolute.lexically_normal().string();
  if (text.find('\n') != std::string::npos) return;
  recent.erase(std::remove(recent.begin(), recent.end(), text), recent.end());
  recent.insert(recent.begin(), text);
  if (recent.size() > kRecent) recent.resize(kRecent);
}

std::string Config::layout_file() const {
  return folder.empty() ? std::string() : (folder / "view.ini").string();
}

}  // namespace tidemark::view
