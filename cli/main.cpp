// tidemark: the command line. One small file per subcommand.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/complete.h"

namespace {

// The first option that the command does not know, "" if there is none. CLI11's own message names
// the program after -- instead when the option was followed by a word.
std::string unknown_option(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const std::string& word : command->remaining()) {
      if (word == "--") break;
      if (word.starts_with('-')) return word;
    }
  }
  return {};
}

// What is wrong with the arguments and what to do, in one line.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const std::string name = commands.empty() ? "" : commands.front()->get_name() + " ";
  const std::string help = "tidemark " + name + "--help";
  const std::string option = unknown_option(app);
  if (option.empty()) return std::string(error.what()) + " (see " + help + ")";
  const bool program_follows = name == "run " && !commands.front()->get_option("COMMAND")->empty();
  return "unknown option '" + option + "'; " + help + " lists the options" +
         (program_follows ? ", and options of the program go after --" : "");
}

// An option whose value is empty, "" if there is none. A variable of a script may be unset: the
// option must not be ignored then.
std::string empty_option(int argc, char** argv) {
  for (int i = 2; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string_view option = argv[i - 1];
    // No setting at all is an allocator configuration, too.
    if (option.ends_with("-conf")) continue;
    if (argv[i][0] == '\0' && option.starts_with('-')) return std::string(option);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tidemark::cli;
  CLI::App app(
      "tidemark shows where a GPU job's memory went: at the peak, at the out-of-memory error,\n"
      "and at every instant before it.",
      "tidemark");
  app.footer(
      "Reading commands take a trace (.tmk), a directory of traces, or a PyTorch memory\n"
      "snapshot (.pickle, .pickle.gz).\n\n"
      "  tidemark run -- python train.py      record a program's GPU memory\n"
      "  tidemark report snapshot.pickle      what filled the card, and which code allocated it\n"
      "  tidemark COMMAND --help              the options of a command, and an example");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tidemark " TIDEMARK_VERSION);
  int code = kOk;
  using Add = void(CLI::App&, int&);
  const auto add = [&](const char* group, std::initializer_list<Add*> commands) {
    for (Add* add_command : commands) {
      add_command(app, code);
      app.get_subcommands({}).back()->group(group);
    }
  };
  add("Record", {add_run, add_ps, add_attach, add_detach, add_seal, add_snapshot, add_import});
  add("Look", {add_report, add_view, add_whatif, add_plan, add_info});
  add("Compare", {add_diff, add_check});
  add("Share", {add_export, add_merge});
  add("Operate", {add_serve, add_doctor, add_bridge, add_prepare, add_recover, add_version});
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return kUsage;
  }
  const std::string first = argv[1];
  if (first == "complete") {
    print_completions(app, std::vector<std::string_view>(argv + 2, argv + argc));
    return kOk;
  }
  const auto named = [&](const CLI::App* command) { return command->get_name() == first; };
  if (!first.starts_with('-') && app.get_subcommands(named).empty()) {
    return fail({"unknown command '" + first + "'; tidemark --help lists the commands"});
  }
  if (const std::string option = empty_option(argc, argv); !option.empty()) {
    return fail({option + " was given an empty value"});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    code = app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return fail({usage_error(app, error)});
  }
  // A large output reaches the file before the last flush, and may fail there.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail({std::string("standard output: ") + std::strerror(errno)});
  }
  return code;
}
