#include "collector/launch/python_torch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "bridge/bridge_build.h"
#include "collector/launch/process_environment.h"
#include "collector/launch/program_path.h"

extern char** environ;

namespace tidemark {

namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMs = 10'000;
constexpr char kWhereIsTorch[] =
    "import importlib.util as u; s = u.find_spec('torch'); "
    "print(list(s.submodule_search_locations)[0] if s else '')";

bool is_python(const std::string& word) {
  return fs::path(word).filename().string().starts_with("python");
}

// "#!/path/python3" or "#!/usr/bin/env python3".
std::string interpreter_of_script(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::array<char, 256> head{};
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  line.assign(head.data(), static_cast<size_t>(file.gcount()));
  if (!line.starts_with("#!")) return "";
  line.resize(std::min(line.size(), line.find('\n')));
  std::vector<std::string> words;
  for (size_t at = 2; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& word : words) {
    if (is_python(word)) return find_program(word);
  }
  return "";
}

// What the program wrote to stdout; "" if it failed or took too long.
std::string output_of(const std::vector<std::string>& command) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, fds[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const bool started = ::posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ) == 0;
  ::posix_spawn_file_actions_destroy(&files);
  ::close(fds[1]);
  std::string text;
  while (started) {
    pollfd ready{fds[0], POLLIN, 0};
    std::array<char, 4096> buffer{};
    if (::poll(&ready, 1, kPatienceMs) <= 0) {
      ::kill(child, SIGKILL);
      text.clear();
      break;
    }
    const ssize_t size = ::read(fds[0], buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  ::close(fds[0]);
  int status = 1;
  if (started) ::waitpid(child, &status, 0);
  return status == 0 ? text : "";
}

}  // namespace

std::string find_interpreter(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (is_python(word)) return find_program(word);
    // Skips the options of a launcher.
    if (word.starts_with("-")) continue;
    const std::string path = find_program(word);
    if (path.empty() || ::access(path.c_str(), X_OK) != 0 || fs::is_directory(path)) continue;
    if (std::string found = interpreter_of_script(path); !found.empty()) return found;
  }
  return "";
}

std::string find_torch_library(const std::string& interpreter) {
  std::string folder = output_of({interpreter, "-c", kWhereIsTorch});
  while (!folder.empty() && folder.back() == '\n') folder.pop_back();
  folder.erase(0, folder.rfind('\n') + 1);
  if (folder.empty()) return "";
  const std::string library = folder + "/lib/libc10_cuda.so";
  return ::access(library.c_str(), R_OK) == 0 ? library : "";
}

void prepare_bridge(const std::vector<std::string>& command,
                    const std::function<void(const std::string&)>& announce) {
  const std::string interpreter = find_interpreter(command);
  if (interpreter.empty()) return;
  const std::string library = find_torch_library(interpreter);
  if (library.empty()) return;
  const auto outcome = std::make_unique<bridge::Outcome>();
  bridge::find_bridge(own_environment(), library.c_str(), *outcome);
  if (outcome->ready || outcome->torch_version[0] == '\0') return;
  announce(outcome->torch_version);
  bridge::build_bridge(own_environment(), library.c_str(), *outcome);
}

Result<std::string> find_torch_library_in(const std::string& folder) {
  for (const char* place : {"lib/libc10_cuda.so", "torch/lib/libc10_cuda.so"}) {
    const std::string library = fs::path(folder) / place;
    if (::access(library.c_str(), R_OK) == 0) return library;
  }
  return Error{folder + ": contains no PyTorch with CUDA (no lib/libc10_cuda.so)"};
}

Result<std::string> build_bridge_for_all(const std::string& torch_library,
                                         const std::string& directory) {
  const auto outcome = std::make_unique<bridge::Outcome>();
  if (directory.empty()) {
    bridge::build_bridge(own_environment(), torch_library.c_str(), *outcome);
  } else {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return Error{directory + ": " + error.message()};
    bridge::build_bridge_in(own_environment(), torch_library.c_str(),
                            fs::canonical(directory, error).c_str(), *outcome);
  }
  if (!outcome->ready) return Error{std::string("cannot build the bridge: ") + outcome->reason};
  return std::string(outcome->path);
}

}  // namespace tidemark
