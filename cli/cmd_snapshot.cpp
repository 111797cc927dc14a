#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "cli/captures.h"
#include "cli/command.h"
#include "proto/base/output_file.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace {

namespace fs = std::filesystem;

struct Options {
  int pid = 0;
  std::string output;
  std::string library;
};

// The process writes into a new directory; the one file in it becomes the output.
Result<std::string> take(CudaProcess& process, const std::string& output) {
  std::error_code error;
  const fs::path target = fs::absolute(output, error).lexically_normal();
  std::vector<CudaProcess> alone;
  alone.push_back(std::move(process));
  prepare_bridges(alone, false);
  const Result<std::string> directory = make_scratch_directory(target.string(), alone);
  if (!directory) return directory.error();
  const Result<ControlReply> reply =
      alone.front().client->ask(control::kSnapshot, {{"out", *directory}}, std::chrono::minutes(2));
  if (reply) fs::rename(reply->text("trace"), target, error);
  const std::string why = error ? error.message() : "";
  fs::remove_all(*directory, error);
  if (!reply) return Error{fmt::format("{}: {}", alone.front().label(), reply.error().message)};
  if (!why.empty()) return Error{fmt::format("{}: {}", target.string(), why)};
  return target.string();
}

int run(Options options) {
  if (options.output.empty())
    options.output = fmt::format("tidemark-{}-{}.tmk", options.pid, std::time(nullptr));
  // Before the process is touched: refuses what cannot become a file, and leaves nothing behind.
  if (const Result<OutputFile> usable = OutputFile::create(options.output); !usable)
    return fail(usable.error());
  Result<CudaProcess> process = look_at(options.pid);
  if (!process) return fail(process.error());
  if (Status entered = enter(*process, entry_options(options.library)); !entered)
    return fail(entered.error());
  const Result<std::string> trace = take(*process, options.output);
  if (!trace) return fail(trace.error());
  name_traces(*trace);
  fmt::print("{}\n", *trace);
  return kOk;
}

}  // namespace

void add_snapshot(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("snapshot", "record what a running process holds now, without a history");
  command->add_option("PID", options->pid, "process id; tidemark ps lists them")->required();
  command->add_option("-o,--output", options->output,
                      "trace to write (default: tidemark-PID-TIME.tmk)");
  command->add_option("--library", options->library,
                      "path of libtidemark.so inside the process's container");
  command->footer("Example:\n  tidemark snapshot 4711 -o now.tmk");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
