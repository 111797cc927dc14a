#include <fmt/format.h>

#include <memory>

#include "cli/captures.h"
#include "cli/command.h"
#include "cli/process_choice.h"
#include "cli/terminal.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace {

int run(const ProcessChoice& choice, bool quiet) {
  Result<std::vector<CudaProcess>> chosen = choose(choice);
  if (!chosen) return fail(chosen.error());
  std::vector<CudaProcess> recording;
  for (CudaProcess& process : *chosen) {
    const bool records = process.reach == Reach::kLoaded && process.state != control::kArmed;
    if (records) {
      recording.push_back(std::move(process));
    } else if (process.silent()) {
      const std::string why = process.label() + " does not answer" +
                              (process.obstacle.empty() ? std::string() : ": " + process.obstacle);
      if (!choice.pids.empty()) return fail({why});
      warn(why);
    } else if (!choice.pids.empty()) {
      return fail({process.label() + " is not being recorded"});
    }
  }
  if (recording.empty()) return fail({"nothing is being recorded"});
  const std::vector<std::string> traces = stop_all(recording);
  for (const std::string& trace : traces) print_line(fmt::format("{}", trace));
  if (!quiet) summarise(traces);
  return traces.empty() ? kUsage : kOk;
}

}  // namespace

void add_detach(CLI::App& app, int& code) {
  auto choice = std::make_shared<ProcessChoice>();
  auto quiet = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("detach", "stop recording; the process keeps running");
  add_choice(*command, *choice);
  command->add_flag("-q,--quiet", *quiet, "do not print a summary");
  command->footer(
      "Prints the paths of the traces. The process stays armed, so you can attach to it again.\n"
      "Example:\n  tidemark detach 4711");
  command->callback([choice, quiet, &code] { code = run(*choice, *quiet); });
}

}  // namespace tidemark::cli
