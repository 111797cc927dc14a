#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "collector/launch/python_torch.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string torch;
  std::string directory;
};

int build(const Options& options) {
  const Result<std::string> library = find_torch_library_in(options.torch);
  if (!library) return fail(library.error());
  const Result<std::string> bridge = build_bridge_for_all(*library, options.directory);
  if (!bridge) return fail(bridge.error());
  fmt::print("{}\n", *bridge);
  return kOk;
}

}  // namespace

void add_bridge(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bridge", "compile the bridge to PyTorch in advance");
  command->require_subcommand(1);
  CLI::App* action = command->add_subcommand("build", "compile the bridge for one PyTorch");
  action->add_option("--torch", options->torch, "folder of the installed package torch")
      ->required();
  action->add_option("-o,--output", options->directory,
                     "directory for the bridge (default: the user's cache)");
  action->footer(
      "Prints the path of the bridge. Build it once on a node like those of the job, in a\n"
      "directory that all nodes see. TIDEMARK_BRIDGE_DIR names that directory to the job, and\n"
      "with TIDEMARK_BRIDGE=prebuilt no process of the job starts a compiler.\n"
      "Example:\n  tidemark bridge build --torch venv/lib/python3.12/site-packages/torch -o "
      "bridges");
  action->callback([options, &code] { code = build(*options); });
}

}  // namespace tidemark::cli
