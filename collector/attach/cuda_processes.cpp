#include "collector/attach/cuda_processes.h"

#include <dirent.h>
#include <fmt/format.h>
#include <pwd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "collector/attach/inject/inject.h"
#include "collector/attach/inject/library_copy.h"
#include "collector/attach/inject/proc_text.h"
#include "collector/attach/inject/python_remote.h"
#include "collector/attach/inject/remote_memory.h"
#include "collector/attach/inject/target.h"
#include "collector/launch/launcher.h"
#include "proto/control.h"

namespace tidemark {

namespace {

using inject::ProcessStatus;
using inject::Target;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kQuick = milliseconds(2000);  // for a request that is answered at once

std::string name_of(uid_t user) {
  const passwd* const entry = ::getpwuid(user);
  return entry != nullptr ? entry->pw_name : std::to_string(user);
}

std::string command_of(pid_t pid, const ProcessStatus& status) {
  std::string text = inject::proc_text("/proc/" + std::to_string(pid) + "/cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  // Arguments are untrusted text: removes what a terminal would interpret.
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text.empty() ? status.name : text;
}

bool take_status(CudaProcess& process) {
  const Result<ControlReply> status = process.client->ask(control::kStatus, {}, kQuick);
  if (!status) return false;
  process.reach = Reach::kLoaded;
  process.state = status->text("state");
  process.trace = status->text("trace");
  if (const auto rank = status->number("rank")) process.rank = static_cast<int64_t>(*rank);
  if (!status->text("job").empty()) process.job = status->text("job");
  return true;
}

bool connect(CudaProcess& process, const ProcessStatus& status,
             const ProcessEnvironment& environment) {
  const pid_t own_pid = status.own_pid != 0 ? status.own_pid : process.pid;
  bool stuck = false;
  process.client = ControlClient::connect(process.pid, own_pid, process.user, environment,
                                          ControlClient::kConnectTime, &stuck);
  process.listens = process.client || stuck;
  return process.client && take_status(process);
}

// To open its memory needs the same permission as ptrace, and changes nothing.
void judge(CudaProcess& process, const Result<Target>& target) {
  if (!target) {
    process.obstacle = target.error().message;
  } else if (!inject::has_cuda_driver(target->files)) {
    process.obstacle = fmt::format("{} does not use CUDA: libcuda is not loaded",
                                   inject::process_label(process.pid, target->status));
  } else if (!inject::RemoteMemory(process.pid).good()) {
    process.obstacle = inject::explain_refusal(process.pid, errno).message;
  } else {
    process.reach = Reach::kByPtrace;
  }
}

CudaProcess describe(pid_t pid, const ProcessStatus& status,
                     const ProcessEnvironment& environment) {
  CudaProcess process;
  process.pid = pid;
  process.user = status.uids[1];
  process.user_name = name_of(process.user);
  process.command = command_of(pid, status);
  process.rank = environment.rank();
  process.job = environment.job();
  process.control_directory = environment.get("TIDEMARK_CONTROL_DIR");
  return process;
}

Status wait_until_it_answers(CudaProcess& process, steady_clock::time_point deadline) {
  const auto status = inject::read_status(process.pid);
  if (!status) return Error{fmt::format("process {} has ended", process.pid)};
  const ProcessEnvironment environment(process.pid);
  while (!connect(process, *status, environment)) {
    if (steady_clock::now() >= deadline) {
      return Error{fmt::format("process {}: tidemark is loaded but does not answer", process.pid)};
    }
    const timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return {};
}

}  // namespace

std::string CudaProcess::label() const {
  return rank >= 0 ? fmt::format("process {} (rank {})", pid, rank)
                   : fmt::format("process {}", pid);
}

Result<CudaProcess> look_at(pid_t pid) {
  const auto status = inject::read_status(pid);
  if (!status) return Error{fmt::format("there is no process {}", pid)};
  const ProcessEnvironment environment(pid);
  CudaProcess process = describe(pid, *status, environment);
  if (connect(process, *status, environment)) return process;
  judge(process, inject::examine_target(pid));
  return process;
}

std::vector<pid_t> list_cuda_processes() {
  remove_left_names();
  std::vector<pid_t> found;
  DIR* const directory = ::opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* entry = ::readdir(directory)) {
    const pid_t pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid <= 0 || pid == ::getpid()) continue;
    const auto files = inject::read_maps(pid);
    if (files && inject::has_cuda_driver(*files)) found.push_back(pid);
  }
  ::closedir(directory);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<CudaProcess> find_cuda_processes() {
  std::vector<CudaProcess> found;
  for (const pid_t pid : list_cuda_processes()) {
    if (Result<CudaProcess> process = look_at(pid)) found.push_back(std::move(*process));
  }
  return found;
}

Status enter(CudaProcess& process, const EntryOptions& options) {
  if (process.reach == Reach::kLoaded) return {};
  if (process.reach == Reach::kImpossible) return Error{process.obstacle};
  std::string library = options.library;
  if (library.empty()) {
    const Result<std::string> found = find_injector();
    if (!found) return found.error();
    library = *found;
  }
  // A container may not have it. If it cannot be copied, the error message says what to do.
  if (options.library.empty() && !inject::check_visible(process.pid, library)) {
    if (auto copied = inject::copy_library(process.pid, process.user, library)) library = *copied;
  }
  const auto deadline = steady_clock::now() + options.time;
  // Python 3.14 and later can load it on request, at a safe point of the interpreter.
  if (auto request = inject::ask_python(process.pid, library, "tidemark_arm")) {
    const auto patience = std::min(deadline, steady_clock::now() + std::chrono::seconds(3));
    if (wait_until_it_answers(process, patience)) {
      request->remove_script();
      return {};
    }
    request->cancel();
  }
  const Result<int> armed =
      inject::inject_library(process.pid, {library, "tidemark_arm", deadline});
  if (!armed) return armed.error();
  return wait_until_it_answers(process, std::max(deadline, steady_clock::now() + kQuick));
}

}  // namespace tidemark
