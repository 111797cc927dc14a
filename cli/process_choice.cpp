#include "cli/process_choice.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "cli/command.h"
#include "proto/control.h"

namespace tidemark::cli {

void add_choice(CLI::App& command, ProcessChoice& choice) {
  CLI::Option* const pids =
      command.add_option("PID", choice.pids, "process ids; tidemark ps lists them");
  CLI::Option* const job =
      command.add_option("--job", choice.job, "every rank of a job on this machine");
  CLI::Option* const all =
      command.add_flag("--all", choice.all, "every process that can be reached");
  pids->excludes(job)->excludes(all);
  job->excludes(all);
}

Result<std::vector<CudaProcess>> choose(const ProcessChoice& choice) {
  std::vector<CudaProcess> chosen;
  for (const int pid : choice.pids) {
    Result<CudaProcess> process = look_at(pid);
    if (!process) return process.error();
    chosen.push_back(std::move(*process));
  }
  if (!choice.pids.empty()) return chosen;
  if (choice.job.empty() && !choice.all) {
    return Error{"no process given: use PID, --job ID or --all; tidemark ps lists processes"};
  }
  // One who sets the directory means the processes that have their sockets there.
  const char* const within = std::getenv("TIDEMARK_CONTROL_DIR");
  const bool bounded = choice.all && within != nullptr && *within != '\0';
  for (CudaProcess& process : find_cuda_processes()) {
    if (!choice.job.empty() && process.job != choice.job) continue;
    if (bounded && process.control_directory != within) continue;
    if (process.reach == Reach::kImpossible) {
      warn(process.obstacle);
    } else {
      chosen.push_back(std::move(process));
    }
  }
  if (chosen.empty()) {
    return Error{choice.job.empty()
                     ? "no process that uses CUDA can be reached on this machine"
                     : fmt::format("no process of job {} can be reached on this machine; "
                                   "tidemark ps lists processes",
                                   choice.job)};
  }
  return chosen;
}

Result<std::vector<LiveDevice>> ask_live(CudaProcess& process, bool may_load) {
  constexpr uint64_t kMostDevices = 64;
  const Result<ControlReply> reply = process.client->ask(
      control::kLive, {{"torch", may_load ? "1" : "0"}}, std::chrono::seconds(5));
  if (!reply) return reply.error();
  std::vector<LiveDevice> devices;
  const uint64_t count = std::min(reply->number("devices").value_or(0), kMostDevices);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = fmt::format("d{}", i);
    const auto number = [&](const char* what) { return reply->number(key + what).value_or(0); };
    devices.push_back({reply->number(key).value_or(i), reply->text(key + "_name"), number("_total"),
                       number("_used"), number("_process"), number("_allocated"),
                       number("_reserved")});
  }
  return devices;
}

}  // namespace tidemark::cli
