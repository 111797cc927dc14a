#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/process_choice.h"
#include "cli/terminal.h"
#include "export/report/json_writer.h"
#include "export/safe_text.h"

namespace tidemark::cli {

namespace {

std::string state_of(const CudaProcess& process) {
  if (process.silent()) return "no answer";
  switch (process.reach) {
    case Reach::kLoaded:
      return process.state;
    case Reach::kByPtrace:
      return "attachable";
    case Reach::kImpossible:
      break;
  }
  return "not attachable";
}

std::vector<LiveDevice> devices_of(CudaProcess& process) {
  if (process.reach != Reach::kLoaded) return {};
  Result<std::vector<LiveDevice>> devices = ask_live(process, false);
  return devices ? std::move(*devices) : std::vector<LiveDevice>();
}

void print_row(CudaProcess& process, size_t width) {
  std::string cards;
  uint64_t used = 0;
  for (const LiveDevice& device : devices_of(process)) {
    cards += fmt::format("{}{}", cards.empty() ? "" : ",", device.device);
    used += device.process_bytes;
  }
  const std::string row =
      fmt::format("{:>8} {:>5} {:<10} {:<14} {:>4} {:>10}  ", process.pid,
                  process.rank >= 0 ? std::to_string(process.rank) : "-",
                  shortened(safe_text(process.user_name), 10), state_of(process),
                  cards.empty() ? "-" : cards, used != 0 ? size_text(used) : "-");
  print_line(fmt::format(
      "{}{}", row,
      shortened(safe_text(process.command), width > row.size() ? width - row.size() : 20)));
  if (!process.obstacle.empty()) print_line(fmt::format("{:>8} {}", "", process.obstacle));
}

void put(JsonWriter& json, CudaProcess& process) {
  json.begin_object();
  json.field("pid", process.pid);
  json.field("rank", process.rank);
  json.field("user", process.user_name);
  json.field("job", process.job);
  json.field("state", state_of(process));
  json.field("obstacle", process.obstacle);
  json.field("trace", process.trace);
  json.field("command", process.command);
  json.key("devices");
  json.begin_array();
  for (const LiveDevice& device : devices_of(process)) {
    json.begin_object();
    json.field("device", device.device);
    json.field("name", device.name);
    json.field("total_bytes", device.total_bytes);
    json.field("used_bytes", device.used_bytes);
    json.field("process_bytes", device.process_bytes);
    json.field("allocated_bytes", device.allocated_bytes);
    json.field("reserved_bytes", device.reserved_bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

int run(bool as_json) {
  std::vector<CudaProcess> processes = find_cuda_processes();
  if (as_json) {
    JsonWriter json;
    json.begin_object();
    json.field("schema", "tidemark.ps/1");
    json.key("processes");
    json.begin_array();
    for (CudaProcess& process : processes) put(json, process);
    json.end_array();
    json.end_object();
    fmt::print("{}", std::move(json).take());
    return kOk;
  }
  if (processes.empty()) {
    print_line("no process that uses CUDA was found");
    return kOk;
  }
  print_line(fmt::format("{:>8} {:>5} {:<10} {:<14} {:>4} {:>10}  {}", "PID", "RANK", "USER",
                         "STATE", "CARD", "USED", "COMMAND"));
  for (CudaProcess& process : processes) print_row(process, stdout_width());
  return kOk;
}

}  // namespace

void add_ps(CLI::App& app, int& code) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("ps", "list processes that use CUDA, and whether they can be recorded");
  command->add_flag("--json", *as_json, "print JSON, schema tidemark.ps/1");
  command->footer(
      "States: armed (started with tidemark, not recording), recording, attachable (tidemark can\n"
      "be injected), not attachable (with the reason), no answer (tidemark is loaded, but the\n"
      "process is stopped).\n"
      "Example:\n  tidemark ps");
  command->callback([as_json, &code] { code = run(*as_json); });
}

}  // namespace tidemark::cli
