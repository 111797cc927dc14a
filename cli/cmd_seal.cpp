#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <set>

#include "cli/command.h"
#include "cli/process_choice.h"
#include "cli/terminal.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace {

int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// With microseconds: the same processes may be sealed again within a second.
std::string name_of(int64_t time_ns) {
  const auto seconds = static_cast<time_t>(time_ns / 1'000'000'000);
  struct tm utc {};
  ::gmtime_r(&seconds, &utc);
  char text[32] = "";
  ::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &utc);
  return fmt::format("seal-{}-{:06}", text, time_ns / 1000 % 1'000'000);
}

int run(const ProcessChoice& choice, std::string name) {
  Result<std::vector<CudaProcess>> chosen = choose(choice);
  if (!chosen) return fail(chosen.error());
  const int64_t now_ns = nanoseconds_now();
  // One process makes a name by itself.
  if (name.empty() && (chosen->size() > 1 || choice.pids.empty())) name = name_of(now_ns);
  const std::string asked_ns = std::to_string(now_ns);
  size_t sealed = 0;
  Error last{"nothing to seal: no process that uses GPU memory is being recorded"};
  std::set<std::string> told;  // jobs whose ranks on other nodes seal, too
  for (CudaProcess& process : *chosen) {
    const bool records = process.reach == Reach::kLoaded && process.state != control::kArmed;
    if (!records) {
      if (!choice.pids.empty()) return fail({process.label() + " is not being recorded"});
      continue;
    }
    const bool together = choice.pids.empty() && told.insert(process.job).second;
    ControlRequest words = {{"together", together ? "1" : "0"},
                            {"only_if_used", choice.pids.empty() ? "1" : "0"},
                            {"asked_ns", asked_ns}};
    if (!name.empty()) words["name"] = name;
    const Result<ControlReply> reply = process.client->ask(control::kSeal, words);
    if (reply) {
      if (reply->text("trace").empty()) continue;  // it used no GPU memory, as a launcher
      ++sealed;
      print_line(reply->text("trace"));
    } else {
      last = {process.label() + ": " + reply.error().message};
      if (chosen->size() > 1) warn(last.message);
    }
  }
  return sealed == 0 ? fail(last) : kOk;
}

}  // namespace

void add_seal(CLI::App& app, int& code) {
  auto choice = std::make_shared<ProcessChoice>();
  auto name = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("seal", "keep the current window of a recording made with run --keep");
  add_choice(*command, *choice);
  command->add_option("--name", *name, "name of the folder (default: seal-TIME)");
  command->footer(
      "Copies the window to a folder next to the trace, and prints the path; the recording goes\n"
      "on. With --job or --all, ranks on other nodes with the same output directory do the same\n"
      "within about a second.\n"
      "Examples:\n"
      "  tidemark seal 4711\n"
      "  tidemark seal --job 8f2c --name before-restart");
  command->callback([choice, name, &code] { code = run(*choice, *name); });
}

}  // namespace tidemark::cli
