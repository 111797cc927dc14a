#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
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
  auto arguments = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("view", "open the viewer on a trace");
  command->add_option("PATH", *arguments, "a trace, then any options of tidemark-view")->required();
  command->allow_extras();
  command->prefix_command();
  command->footer(
      "tidemark-view --help lists the options.\n"
      "Example:\n  tidemark view run.tmk");
  command->callback([arguments, command, &code] {
    std::vector<std::string> words = *arguments;
    for (const std::string& word : command->remaining()) words.push_back(word);
    code = run(words);
  });
}

}  // namespace tidemark::cli
