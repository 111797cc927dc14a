#include "cli/captures.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "cli/command.h"
#include "cli/summary.h"
#include "collector/attach/bridge_for_process.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace fs = std::filesystem;

namespace {

volatile std::sig_atomic_t g_stop = 0;

void ask_to_stop(int) {
  g_stop = 1;
}

// When root records another user's process, the process itself writes into the directory.
bool give_to(const std::string& directory, const CudaProcess& process) {
  if (::geteuid() != 0 || process.user == 0) return true;
  return ::chown(directory.c_str(), process.user, gid_t(-1)) == 0;
}

}  // namespace

StopRequest::StopRequest() {
  g_stop = 0;
  struct sigaction action {};
  action.sa_handler = ask_to_stop;  // without SA_RESTART, so that a signal ends the sleep
  ::sigaction(SIGINT, &action, &before_int_);
  ::sigaction(SIGTERM, &action, &before_term_);
}

StopRequest::~StopRequest() {
  ::sigaction(SIGINT, &before_int_, nullptr);
  ::sigaction(SIGTERM, &before_term_, nullptr);
}

bool StopRequest::asked() const {
  return g_stop != 0;
}

bool StopRequest::sleep(std::chrono::milliseconds time) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wait{seconds.count(), (time - seconds).count() * 1'000'000};
  if (!asked() && wait.tv_sec >= 0) ::nanosleep(&wait, nullptr);
  return asked();
}

EntryOptions entry_options(const std::string& library) {
  std::error_code error;
  if (library.empty()) return {};
  return {fs::absolute(library, error).lexically_normal().string()};
}

Result<std::vector<CudaProcess>> enter_all(std::vector<CudaProcess> processes,
                                           const EntryOptions& options) {
  std::vector<CudaProcess> entered;
  const bool alone = processes.size() == 1;
  for (CudaProcess& process : processes) {
    const Status status = enter(process, options);
    if (status) {
      entered.push_back(std::move(process));
    } else if (alone) {
      return status.error();
    } else {
      warn(status.error().message);
    }
  }
  if (entered.empty()) return Error{"could not attach to any of the processes"};
  return entered;
}

void prepare_bridges(const std::vector<CudaProcess>& processes, bool quiet) {
  for (const CudaProcess& process : processes) {
    prepare_bridge_for(process.pid, process.user, [&](const std::string& version) {
      if (!quiet) announce_bridge(version);
    });
  }
}

Result<TraceDirectory> make_trace_directory(const std::string& directory,
                                            const std::vector<CudaProcess>& processes) {
  std::error_code error;
  const std::string path = fs::absolute(directory, error).lexically_normal().string();
  fs::create_directories(fs::path(path).parent_path(), error);
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return Error{path + ": " + std::strerror(errno)};
  if (!fs::is_directory(path, error)) return Error{path + ": is not a directory"};
  if (made && !give_to(path, processes.front())) return Error{path + ": " + std::strerror(errno)};
  return TraceDirectory{path, made};
}

Result<std::string> make_scratch_directory(const std::string& target,
                                           const std::vector<CudaProcess>& processes) {
  std::string path = target + ".partial.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return Error{target + ": " + std::strerror(errno)};
  }
  if (!give_to(path, processes.front())) return Error{path + ": " + std::strerror(errno)};
  return path;
}

std::vector<std::string> stop_all(std::vector<CudaProcess>& processes) {
  std::vector<std::string> traces;
  for (CudaProcess& process : processes) {
    // The process first writes its last events, so the reply takes as long as the disk does.
    const Result<ControlReply> reply =
        process.client->ask(control::kStop, {}, std::chrono::minutes(2));
    if (!reply) {
      warn(fmt::format("{}: {}", process.label(), reply.error().message));
      if (!process.trace.empty()) traces.push_back(process.trace);  // recovered when read
      continue;
    }
    traces.push_back(reply->text("trace"));
    if (const uint64_t dropped = reply->number("dropped").value_or(0); dropped != 0) {
      warn(fmt::format("{}: {} events were dropped", process.label(), dropped));
    }
  }
  return traces;
}

void summarise(const std::vector<std::string>& traces) {
  std::map<std::string, std::vector<std::string>> places;
  for (const std::string& trace : traces) {
    places[fs::path(trace).parent_path().string()].push_back(trace);
  }
  for (const auto& [directory, of_directory] : places) {
    name_traces(of_directory);
    print_summary(directory, of_directory);
  }
}

}  // namespace tidemark::cli
