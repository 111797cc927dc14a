#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/viewer_page.h"
#include "export/page/page_export.h"

namespace tidemark::cli {

namespace {

bool has(const std::vector<std::string>& words, std::initializer_list<std::string_view> any) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(any.begin(), any.end(), word.substr(0, word.find('='))) != any.end();
  });
}

// Whether the viewer would need a display that is not there.
bool lacks_display(const std::vector<std::string>& words) {
  return std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr &&
         !has(words, {"--screenshot", "--help", "-h", "--version"});
}

int run(const std::vector<std::string>& arguments) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string viewer = (self / "tidemark-view").string();
  const bool viewer_exists = std::filesystem::exists(viewer, error);
  if (!viewer_exists && has(arguments, {"--screenshot"})) {
    return fail({"--screenshot needs tidemark-view, which is not in " + self.string()});
  }
  if (has(arguments, {"--browser"}) ||
      ((!viewer_exists || lacks_display(arguments)) && find_viewer_page())) {
    return view_in_browser(arguments);
  }
  if (!viewer_exists) {
    return fail({viewer +
                 " not found: this tidemark was built without the viewer and without its page for "
                 "browsers (see docs/viewer.md)"});
  }
  std::vector<char*> argv{const_cast<char*>(viewer.c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  return fail({viewer + ": " + std::strerror(errno)});
}

}  // namespace

void add_view(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("view", "open the viewer on a trace");
  // Everything after "view" goes to the viewer as it is, in its order.
  command->prefix_command();
  command->footer(
      "tidemark view PATH [OPTIONS] passes its arguments to tidemark-view, whose --help lists "
      "them,\nthe panels, and how each can be drawn.\n"
      "With --browser, and where there is no display or no tidemark-view, it writes the viewer "
      "with "
      "the trace\ninside to a temporary page and opens that in a browser.\n"
      "Examples:\n  tidemark view run.tmk\n  tidemark view run.tmk --browser");
  command->callback([command, &code] {
    const std::vector<std::string> words = command->remaining();
    code = words.empty() ? fail({"view needs the PATH of a trace"}) : run(words);
  });
}

}  // namespace tidemark::cli
