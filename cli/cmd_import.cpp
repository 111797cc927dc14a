#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "collector/output_guard.h"
#include "collector/snapshot/snapshot_file.h"

namespace tidemark::cli {

namespace {
struct Options {
  std::string snapshot;
  std::string output;
};
}  // namespace

void add_import(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("import", "convert a PyTorch memory snapshot into a trace");
  command->add_option("SNAPSHOT", options->snapshot, "a .pickle or .pickle.gz file")->required();
  command->add_option("-o,--output", options->output, "the trace to write")->required();
  command->footer("Example:\n  tidemark import snapshot.pickle -o run.tmk");
  command->callback([options, &code] {
    if (Status allowed = check_output(options->output, {&options->snapshot, 1}); !allowed) {
      code = fail(allowed.error());
      return;
    }
    if (Status status = import_snapshot_file(options->snapshot, options->output); !status) {
      code = fail(status.error());
      return;
    }
    std::printf("%s\n", options->output.c_str());
  });
}

}  // namespace tidemark::cli
