#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>
#include <memory>

#include "cli/command.h"
#include "cli/live_metrics.h"
#include "cli/terminal.h"
#include "collector/serve/http_server.h"
#include "proto/base/descriptor.h"

namespace tidemark::cli {

namespace {

constexpr Metric kProcesses = {"tidemark_processes", Metric::Type::kGauge, "",
                               "Processes on this machine that have tidemark loaded."};
constexpr Metric kSilent = {"tidemark_unanswered_requests", Metric::Type::kCounter, "",
                            "Requests for numbers that a process did not answer in time."};
constexpr Metric kDuration = {"tidemark_serve_duration_seconds", Metric::Type::kGauge, "seconds",
                              "Time to ask all processes."};

ServedPage make_page(LiveProcesses& live, uint64_t& unanswered, std::chrono::milliseconds time) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<LiveProcess> processes = live.ask(time);
  for (const LiveProcess& process : processes) unanswered += process.answered ? 0 : 1;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  MetricPage page;
  add_metrics(page, processes);
  page.add(kProcesses, {}, uint64_t{processes.size()});
  page.add(kSilent, {}, unanswered);
  page.add(kDuration, {}, took.count());
  return {page.open_metrics(), page.plain_text()};
}

// Ctrl-C and SIGTERM end the command; its threads inherit that they are blocked.
int stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

int run(const std::string& address) {
  const Descriptor stop(stop_signals());
  LiveProcesses live;  // pages are made one after another
  uint64_t unanswered = 0;
  const auto server = HttpServer::listen(
      address, [&](std::chrono::milliseconds time) { return make_page(live, unanswered, time); });
  if (!server) return fail(server.error());
  const std::string own = (*server)->address();
  if (!(*server)->loopback()) {
    warn(
        fmt::format("{}: everyone who can reach this port can read the numbers; there is no "
                    "password and no encryption",
                    own));
  }
  print_line(fmt::format("http://{}/metrics", own));
  std::fflush(stdout);
  (*server)->run(stop.get());
  return kOk;
}

}  // namespace

void add_serve(CLI::App& app, int& code) {
  auto address = std::make_shared<std::string>("127.0.0.1:9464");
  CLI::App* command =
      app.add_subcommand("serve", "serve live numbers of this machine's processes to Prometheus");
  command->add_option("--listen", *address, "address and port")->capture_default_str();
  command->footer(
      "Whenever /metrics is read, asks your processes that were started with tidemark run (also\n"
      "with --arm) or attached to; as root, those of all users. The format is OpenMetrics.\n"
      "Everyone who can reach the address can read the numbers; by default only this machine can.\n"
      "Example:\n  tidemark serve --listen 127.0.0.1:9464");
  command->callback([address, &code] { code = run(*address); });
}

}  // namespace tidemark::cli
