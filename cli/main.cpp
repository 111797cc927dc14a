// tidemark: the command line. One small file per subcommand.
#include <cstdio>
#include <string>

#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace tidemark::cli;
  CLI::App app(
      "tidemark shows where a GPU job's memory went: at the peak, at the out-of-memory error,\n"
      "and at every instant before it.",
      "tidemark");
  app.footer(
      "Every command takes a trace (.tmk), a directory of traces, or a PyTorch memory snapshot\n"
      "(.pickle, .pickle.gz).\n\n"
      "  tidemark run -- python train.py      record a program's GPU memory\n"
      "  tidemark report snapshot.pickle      what filled the card, and whose line it was\n"
      "  tidemark COMMAND --help              options and an example of each command");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tidemark " TIDEMARK_VERSION);
  int code = kOk;
  add_run(app, code);
  add_ps(app, code);
  add_attach(app, code);
  add_detach(app, code);
  add_snapshot(app, code);
  add_import(app, code);
  add_info(app, code);
  add_report(app, code);
  add_whatif(app, code);
  add_merge(app, code);
  add_diff(app, code);
  add_check(app, code);
  add_recover(app, code);
  add_export(app, code);
  add_view(app, code);
  add_doctor(app, code);
  add_version(app, code);
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return kUsage;
  }
  const std::string first = argv[1];
  const auto named = [&](const CLI::App* command) { return command->get_name() == first; };
  if (!first.starts_with('-') && app.get_subcommands(named).empty()) {
    return fail({"there is no command '" + first + "'; tidemark --help lists them"});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "tidemark: %s (tidemark --help lists what there is)\n", error.what());
    return kUsage;
  }
  if (std::fflush(stdout) != 0) {
    std::perror("tidemark: standard output");
    return kUsage;
  }
  return code;
}
