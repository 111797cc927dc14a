#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "proto/launcher_variables.h"
#include "summary/job_summaries.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  unsigned threads = 0;
};

std::optional<size_t> number(const char* name) {
  const char* const text = name != nullptr ? std::getenv(name) : nullptr;
  if (text == nullptr) return {};
  const char* const end = text + std::strlen(text);
  size_t value = 0;
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || end == text) return {};
  return value;
}

// The place among the tasks of srun, mpirun or another launcher.
TaskShare share_of_task() {
  for (const LauncherVariables& launcher : kLaunchers) {
    const std::optional<size_t> rank = number(launcher.rank);
    const bool complete = launcher.required == nullptr || std::getenv(launcher.required) != nullptr;
    if (!rank || !complete) continue;
    std::optional<size_t> size = number(launcher.size);
    if (!size) size = number("SLURM_NTASKS");
    if (size && *rank < *size) return {*rank, *size};
  }
  return {};
}

// Tasks of one node that are bound to no processors share them.
unsigned threads_of_task() {
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  if (const auto own = number("SLURM_CPUS_PER_TASK"); own && *own != 0) {
    return static_cast<unsigned>(std::min(processors, *own));
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"}) {
    const std::optional<size_t> tasks = number(name);
    if (tasks && *tasks != 0) {
      return static_cast<unsigned>(std::max<size_t>(1, processors / *tasks));
    }
  }
  return static_cast<unsigned>(processors);
}

int run(const Options& options) {
  const TaskShare share = share_of_task();
  SummaryOptions wanted;
  wanted.threads = options.threads != 0 ? options.threads : threads_of_task();
  const Result<Preparation> done = [&] {
    ProgressBar bar("preparing");
    wanted.progress = [&](double part) { bar.set(part); };
    return prepare_job(options.path, share, wanted);
  }();
  if (!done) return fail(done.error());
  for (const std::string& text : done->skipped) warn(text);
  for (const std::string& text : done->failed) warn(text);
  const std::string task =
      share.count > 1 ? fmt::format("task {} of {}: ", share.index, share.count) : "";
  std::string line =
      fmt::format("{}{}: {} prepared", task, options.path, counted(done->made, "trace"));
  if (done->fresh != 0) line += fmt::format(", {} already were", counted(done->fresh, "trace"));
  print_line(line);
  if (done->failed.empty()) return kOk;
  return done->made + done->fresh + done->others == 0 ? kUsage : kNo;
}

}  // namespace

void add_prepare(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "prepare", "summarize every rank of a large job, so that report, diff and view open fast");
  command->add_option("DIR", options->path, "directory with the traces of a job")->required();
  command
      ->add_option("-j,--jobs", options->threads,
                   "number of threads (default: one per processor of the task)")
      ->check(CLI::Range(1, 256));
  command->footer(
      "Summaries are kept in DIR/.tidemark. Under srun, mpirun or torchrun the hosts of the job\n"
      "are split among the tasks. Running it again makes only what is missing or outdated; if one\n"
      "trace changed, all of its host. Traces that cannot be read are named and do not stop the\n"
      "others; the exit status is then 1.\n"
      "Examples:\n"
      "  tidemark prepare out/\n"
      "  srun -n 64 tidemark prepare out/");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
