#include "collector/attach/inject/process_status.h"

#include <dirent.h>

#include <charconv>
#include <cstdlib>

#include "collector/attach/inject/proc_text.h"

namespace tidemark::inject {

namespace {

std::string_view next_word(std::string_view& rest) {
  const size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return rest = {};
  rest.remove_prefix(begin);
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
  rest.remove_prefix(word.size());
  return word;
}

template <typename Number>
Number number(std::string_view word, int base = 10) {
  Number value{};
  std::from_chars(word.data(), word.data() + word.size(), value, base);
  return value;
}

void take(ProcessStatus& status, std::string_view key, std::string_view rest) {
  if (key == "Name") {
    rest.remove_prefix(rest.starts_with('\t') ? 1 : 0);
    status.name = rest;
  } else if (key == "State") {
    const std::string_view word = next_word(rest);
    status.state = word.empty() ? '?' : word[0];
  } else if (key == "TracerPid") {
    status.tracer = number<pid_t>(next_word(rest));
  } else if (key == "Uid") {
    for (uint32_t& uid : status.uids) uid = number<uint32_t>(next_word(rest));
  } else if (key == "Seccomp") {
    status.seccomp = number<int>(next_word(rest));
  } else if (key == "NSpid") {
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
      status.own_pid = number<pid_t>(word);
    }
  } else if (key == "Kthread") {  // since Linux 6.7
    status.kernel_thread = next_word(rest) == "1";
  } else if (key == "SigPnd" || key == "ShdPnd") {
    const uint64_t signals = number<uint64_t>(next_word(rest), 16);
    status.pending |= signals;
    if (key == "SigPnd") status.own_pending = signals;
  } else if (key == "SigBlk") {
    status.blocked = number<uint64_t>(next_word(rest), 16);
  }
}

std::string thread_directory(pid_t process, pid_t thread) {
  return "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread);
}

std::optional<ProcessStatus> read_from(const std::string& directory) {
  const std::string text = proc_text(directory + "/status");
  if (text.empty()) return std::nullopt;
  return parse_status(text);
}

}  // namespace

ProcessStatus parse_status(std::string_view text) {
  ProcessStatus status;
  bool has_memory = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, colon);
    has_memory |= key == "VmSize";
    take(status, key, line.substr(colon + 1));
  }
  // Only kernel threads, and processes that have ended, have no memory.
  if (!has_memory && status.state != 'Z' && status.state != 'X') status.kernel_thread = true;
  return status;
}

std::optional<ProcessStatus> read_status(pid_t pid) {
  return read_from("/proc/" + std::to_string(pid));
}

bool has_deliverable_signal(pid_t process, pid_t thread) {
  const auto status = read_from(thread_directory(process, thread));
  return status && (status->pending & ~status->blocked) != 0;
}

bool has_own_signal(pid_t process, pid_t thread, int signal) {
  const auto status = read_from(thread_directory(process, thread));
  const uint64_t bit = uint64_t{1} << (signal - 1);
  return status && (status->own_pending & ~status->blocked & bit) != 0;
}

std::vector<pid_t> list_threads(pid_t pid) {
  std::vector<pid_t> threads;
  DIR* const tasks = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (tasks == nullptr) return threads;
  while (const dirent* entry = ::readdir(tasks)) {
    if (const pid_t thread = static_cast<pid_t>(std::atoi(entry->d_name)); thread > 0) {
      threads.push_back(thread);
    }
  }
  ::closedir(tasks);
  return threads;
}

}  // namespace tidemark::inject
