#include "collector/serve/live_processes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "collector/attach/cuda_processes.h"
#include "collector/attach/inject/process_status.h"
#include "collector/launch/process_environment.h"
#include "proto/control.h"

namespace tidemark {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostThreads = 64;
// For one request. The process itself gives the driver and NVML two seconds.
constexpr auto kMostTime = milliseconds(3000);
// For a process that did not answer the last time; enough for one that does.
constexpr auto kSilentTime = milliseconds(300);

milliseconds until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::clamp(left, milliseconds(0), kMostTime);
}

std::string own_host() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Nothing if tidemark is not loaded in it.
std::optional<LiveProcess> ask_one(pid_t pid, Clock::time_point deadline) {
  const auto status = inject::read_status(pid);
  if (!status) return std::nullopt;
  const ProcessEnvironment environment(pid);
  bool stuck = false;
  auto client = ControlClient::connect(pid, status->own_pid != 0 ? status->own_pid : pid,
                                       status->uids[1], environment, until(deadline), &stuck);
  if (!client && !stuck) return std::nullopt;
  LiveProcess process;
  process.pid = pid;
  process.rank = environment.rank();
  process.job = environment.job();
  process.host = own_host();
  if (!client) return process;
  const Result<ControlReply> about = client->ask(control::kStatus, {}, until(deadline));
  if (about) {
    process.recording = about->text("state") == control::kRecording;
    process.host = about->text("host");
    if (const auto rank = about->number("rank")) process.rank = static_cast<int64_t>(*rank);
    if (!about->text("job").empty()) process.job = about->text("job");
    Result<ControlReply> numbers = client->ask(control::kLive, {{"torch", "1"}}, until(deadline));
    process.answered = numbers.ok();
    if (numbers) process.numbers = std::move(*numbers);
  }
  // It may have ended meanwhile.
  if (!process.answered && !inject::read_status(pid)) return std::nullopt;
  return process;
}

}  // namespace

std::vector<LiveProcess> LiveProcesses::ask(milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  const std::vector<pid_t> pids = list_cuda_processes();
  std::vector<std::optional<LiveProcess>> answers(pids.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < pids.size(); i = next++) {
      const bool silent = silent_.contains(pids[i]);
      const Clock::time_point soon = Clock::now() + kSilentTime;
      answers[i] = ask_one(pids[i], silent ? std::min(deadline, soon) : deadline);
    }
  };
  std::vector<std::thread> threads;
  while (threads.size() < std::min(pids.size(), kMostThreads)) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::vector<LiveProcess> found;
  silent_.clear();
  for (std::optional<LiveProcess>& answer : answers) {
    if (!answer) continue;
    if (!answer->answered) silent_.insert(answer->pid);
    found.push_back(std::move(*answer));
  }
  return found;
}

}  // namespace tidemark
