#include "cli/viewer_page.h"

#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "collector/launch/program_path.h"
#include "export/page/page_export.h"

namespace tidemark::cli {

namespace {

struct Words {
  std::string path;
  std::string link;  // "panel=map&time=peak"
};

// Of the options of tidemark-view, those that a link can say.
Result<Words> parse(const std::vector<std::string>& words) {
  Words parsed;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--browser") continue;
    const bool known = word == "--panel" || word == "--time" || word == "--search" ||
                       word == "--theme" || word == "--rank" || word == "--steps";
    if (known && i + 1 < words.size()) {
      parsed.link += (parsed.link.empty() ? "" : "&") + word.substr(2) + "=" + words[++i];
    } else if (word.starts_with('-')) {
      return Error{word +
                   ": not in the browser; there are --panel, --time, --rank, --steps, "
                   "--search and --theme"};
    } else if (!parsed.path.empty()) {
      return Error{"--browser takes one PATH; drop a second trace on the page to compare"};
    } else {
      parsed.path = word;
    }
  }
  if (parsed.path.empty()) return Error{"view needs the PATH of a trace"};
  return parsed;
}

// False: there is no browser to be had from here.
bool open_browser(const std::string& file) {
  const bool display =
      std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
  const std::string opener = display ? find_program("xdg-open") : std::string();
  if (opener.empty()) return false;
  const char* const argv[] = {opener.c_str(), file.c_str(), nullptr};
  pid_t child = 0;
  return ::posix_spawn(&child, argv[0], nullptr, nullptr, const_cast<char**>(argv), environ) == 0;
}

}  // namespace

int view_in_browser(const std::vector<std::string>& words) {
  const Result<Words> parsed = parse(words);
  if (!parsed) return fail(parsed.error());
  const Result<std::string> page = find_viewer_page();
  if (!page) return fail(page.error());
  Result<LoadedTrace> trace = load_with_progress(parsed->path);
  if (!trace) return fail(trace.error());
  const char* const folder = std::getenv("TMPDIR");
  std::string file = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") +
                     "/tidemark-view-XXXXXX.html";
  // Reserves the name, for this user only.
  const int fd = ::mkstemps(file.data(), 5);
  if (fd < 0) return fail({file + ": " + std::strerror(errno)});
  ::close(fd);
  const auto summary =
      export_page({trace->model, trace->source.readers, nullptr}, {}, {*page, parsed->link}, file);
  if (!summary) {
    ::unlink(file.c_str());
    return fail(summary.error());
  }
  print_line(fmt::format("{} ({}): {}", file, size_text(summary->bytes),
                         open_browser(file) ? "opening it in the browser"
                                            : "open it in a browser, here or on another machine"));
  return kOk;
}

}  // namespace tidemark::cli
