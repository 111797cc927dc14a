#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/command.h"

namespace tidemark::cli {

namespace {

int run(const std::vector<std::string>& arguments) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string viewer = (self / "tidemark-view").string();
  if (!std::filesystem::exists(viewer, error)) {
    return fail(
        {viewer + " not found: this tidemark was built without the viewer (see docs/viewer.md)"});
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
      "them.\n"
      "Example:\n  tidemark view run.tmk");
  command->callback([command, &code] {
    const std::vector<std::string> words = command->remaining();
    code = words.empty() ? fail({"view needs the PATH of a trace"}) : run(words);
  });
}

}  // namespace tidemark::cli
