#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/command.h"
#include "cli/summary.h"
#include "cli/unit_options.h"
#include "collector/launch/launcher.h"
#include "collector/launch/python_torch.h"
#include "collector/recover/recovery.h"
#include "proto/base/units.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string directory;
  std::string stacks;
  std::vector<std::string> keep;
  std::string seal_above;
  std::string overhead;
  bool no_kernels = false;
  bool no_modules = false;
  bool quiet = false;
  bool arm = false;
  std::vector<std::string> command;
};

bool wants_bridge() {
  const auto off = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && std::string_view(value) == "0";
  };
  const char* const bridge = std::getenv("TIDEMARK_BRIDGE");
  const bool prebuilt = bridge != nullptr && std::string_view(bridge) == "prebuilt";
  return !off("TIDEMARK_TORCH") && !off("TIDEMARK_BRIDGE") && !prebuilt;
}

// Exit codes of shells and of env(1) for a program that could not be started.
constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;

int fail_to_start(const std::string& program, int error) {
  if (error == ENOENT) {
    fail({fmt::format("cannot run '{}': no such program", program)});
    return kNotFound;
  }
  fail({fmt::format("cannot run '{}': {}", program, std::strerror(error))});
  return kCannotExecute;
}

int run(Options options) {
  if (options.command.empty())
    return fail({"run needs a command: tidemark run -- python train.py"});
  Result<std::string> injector = find_injector();
  if (!injector) return fail(injector.error());
  LaunchOptions launched;
  launched.command = std::move(options.command);
  launched.injector = *injector;
  if (options.arm) {
    launched.environment.emplace_back("TIDEMARK_ARM", "1");
  } else {
    launched.directory = options.directory.empty() ? default_directory() : options.directory;
  }
  if (!options.stacks.empty()) launched.environment.emplace_back("TIDEMARK_STACKS", options.stacks);
  if (!options.keep.empty()) {
    const std::string keep = fmt::format("{}", fmt::join(options.keep, ","));
    if (const Status usable = check_keep(keep); !usable) return fail(usable.error());
    launched.environment.emplace_back("TIDEMARK_KEEP", keep);
  }
  if (!options.seal_above.empty()) {
    if (!parse_bytes(options.seal_above)) {
      return fail({fmt::format("--seal-above '{}' is not a size like 60GiB", options.seal_above)});
    }
    launched.environment.emplace_back("TIDEMARK_SEAL_ABOVE", options.seal_above);
  }
  if (!options.overhead.empty()) {
    if (const auto bad = overhead_error(options.overhead)) return fail(*bad);
    launched.environment.emplace_back("TIDEMARK_OVERHEAD", options.overhead);
  }
  if (options.no_kernels) launched.environment.emplace_back("TIDEMARK_KERNELS", "0");
  if (options.no_modules) launched.environment.emplace_back("TIDEMARK_MODULES", "0");
  if (wants_bridge()) {
    prepare_bridge(launched.command, [&](const std::string& version) {
      if (!options.quiet) announce_bridge(version);
    });
  }
  const Result<LaunchResult> result = launch(launched);
  if (!result) return fail(result.error());
  // Only if it is empty. A process that still runs creates it again when it uses CUDA.
  if (result->made_directory) ::rmdir(launched.directory.c_str());
  if (result->start_error != 0) {
    return fail_to_start(launched.command.front(), result->start_error);
  }
  if (!options.arm) {
    static_cast<void>(recover_directory(launched.directory, RecoveryBy::kReader));
    const std::vector<std::string> traces = traces_of_run(launched.directory, result->run);
    name_traces(traces);
    if (!options.quiet) print_summary(launched.directory, traces);
  }
  if (result->signal != 0) {
    // End by the same signal, so that a shell or a scheduler sees what the program did.
    ::signal(result->signal, SIG_DFL);
    ::raise(result->signal);
    return 128 + result->signal;
  }
  return result->exit_code;
}

}  // namespace

void add_run(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "run a program and record its GPU memory");
  command->add_option("-o,--output", options->directory,
                      "directory for the traces (default: tidemark-TIME-PID)");
  command
      ->add_option("--stacks", options->stacks,
                   "which call stacks to record: none, python, native or all")
      ->check(CLI::IsMember({"none", "python", "native", "all"}));
  command
      ->add_option("--keep", options->keep,
                   "keep only the last stretch: a duration (10m), a size (512MiB), or both")
      ->type_name("LIMIT");
  CLI::Option* const keep = command->get_option("--keep");
  keep->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--seal-above", options->seal_above,
                   "with --keep: seal when what PyTorch reserves on a device exceeds this size")
      ->needs(keep);
  add_overhead(*command, options->overhead);
  command->add_flag("--no-kernels", options->no_kernels, "do not record kernels");
  command->add_flag("--no-modules", options->no_modules,
                    "do not record which nn.Module of PyTorch each block belongs to");
  command
      ->add_flag("--arm", options->arm,
                 "record nothing until you run tidemark attach; no overhead until then")
      ->excludes("--output");
  command->add_flag("-q,--quiet", options->quiet, "do not print a summary at the end");
  command->add_option("COMMAND", options->command, "the program and its arguments, after --");
  command->footer(
      "Output, signals and exit status of the program pass through unchanged.\n"
      "Examples:\n"
      "  tidemark run -- python train.py\n"
      "  tidemark run -o out -- torchrun --nproc-per-node 8 train.py\n"
      "  tidemark run --overhead off -- python train.py record every kernel\n"
      "  tidemark run --keep 10m -- python train.py  forget what is older, except at an\n"
      "                                              out-of-memory error\n"
      "  tidemark run --arm -- python train.py      later: tidemark attach PID --for 60s");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
