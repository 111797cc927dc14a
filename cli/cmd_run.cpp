#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "analysis/report.h"
#include "cli/command.h"
#include "collector/launcher.h"
#include "collector/python_torch.h"
#include "collector/recovery.h"
#include "export/names.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string directory;
  std::string stacks;
  bool no_kernels = false;
  bool quiet = false;
  std::vector<std::string> command;
};

std::string default_directory() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "tidemark-%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", text, ::getpid());
}

// The rank and device with the highest water.
void print_highest(const Report& report) {
  const RankReport* top_rank = nullptr;
  const DeviceReport* top = nullptr;
  const auto height = [](const DeviceReport& d) {
    return std::max({d.reserved_peak.bytes, d.driver_peak.bytes, d.device_used_peak.bytes});
  };
  size_t ooms = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      ooms += d.oom_count;
      if (top == nullptr || height(d) > height(*top)) {
        top = &d;
        top_rank = &rank;
      }
    }
  }
  if (top == nullptr) {
    fmt::print(stderr, "tidemark: no CUDA memory was seen\n");
    return;
  }
  std::string who = top_rank->rank >= 0 ? fmt::format("rank {}, ", top_rank->rank) : "";
  if (top->has_framework) {
    fmt::print(stderr, "tidemark: {}cuda:{}: allocated peak {}, reserved peak {}\n", who,
               top->device, size_text(top->allocated_peak.bytes),
               size_text(top->reserved_peak.bytes));
  } else {
    fmt::print(stderr, "tidemark: {}cuda:{}: the driver gave out {} at the peak\n", who,
               top->device, size_text(top->driver_peak.bytes));
  }
  if (top->device_used_peak.bytes != 0) {
    fmt::print(stderr, "tidemark: the card was used up to {} of {}\n",
               size_text(top->device_used_peak.bytes), size_text(top->total_bytes));
  }
  if (ooms != 0) fmt::print(stderr, "tidemark: {}\n", counted(ooms, "allocation") + " failed");
}

void print_summary(const std::string& directory) {
  const Result<TraceSource> source = open_trace(directory);
  if (!source) {
    fmt::print(stderr, "tidemark: nothing was recorded: the program used no CUDA\n");
    return;
  }
  for (const std::string& warning : source->warnings) warn(warning);
  const Result<TraceModel> model = load_trace(source->readers);
  if (model) {
    if (const Result<Report> report = make_report(*model, {}); report) {
      fmt::print(stderr, "tidemark: {}, {}\n",
                 report->ranks.size() == 1 ? "1 process"
                                           : fmt::format("{} processes", report->ranks.size()),
                 counted(report->events, "memory event"));
      print_highest(*report);
    }
  }
  fmt::print(stderr, "tidemark: tidemark report {}\n", directory);
}

bool wants_bridge() {
  const auto off = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && std::string_view(value) == "0";
  };
  return !off("TIDEMARK_TORCH") && !off("TIDEMARK_BRIDGE");
}

int run(Options options) {
  if (options.command.empty())
    return fail({"run needs a command: tidemark run -- python train.py"});
  Result<std::string> injector = find_injector();
  if (!injector) return fail(injector.error());
  LaunchOptions launched;
  launched.command = std::move(options.command);
  launched.injector = *injector;
  launched.directory = options.directory.empty() ? default_directory() : options.directory;
  if (!options.stacks.empty()) launched.environment.emplace_back("TIDEMARK_STACKS", options.stacks);
  if (options.no_kernels) launched.environment.emplace_back("TIDEMARK_KERNELS", "0");
  if (wants_bridge()) {
    prepare_bridge(launched.command, [&](const std::string& version) {
      if (options.quiet) return;
      fmt::print(stderr, "tidemark: building the bridge to PyTorch {}, once, a few seconds\n",
                 version);
    });
  }
  const Result<LaunchResult> result = launch(launched);
  if (!result) return fail(result.error());
  static_cast<void>(recover_directory(launched.directory));
  name_traces(launched.directory);
  if (!options.quiet) print_summary(launched.directory);
  if (result->signal != 0) {
    // End as the program ended, so that a shell or a scheduler sees the same.
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
  command->add_option("-o,--output", options->directory, "directory for the traces");
  command->add_option("--stacks", options->stacks, "none, python, native or all")
      ->check(CLI::IsMember({"none", "python", "native", "all"}));
  command->add_flag("--no-kernels", options->no_kernels, "do not record kernels");
  command->add_flag("-q,--quiet", options->quiet, "no summary at the end");
  command->add_option("COMMAND", options->command, "the program and its arguments, after --");
  command->footer(
      "The program's output, signals and exit status are its own.\n"
      "Examples:\n"
      "  tidemark run -- python train.py\n"
      "  tidemark run -o out -- torchrun --nproc-per-node 8 train.py");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
