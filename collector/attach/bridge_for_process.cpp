#include "collector/attach/bridge_for_process.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "bridge/bridge_build.h"
#include "collector/attach/inject/process_maps.h"
#include "collector/launch/process_environment.h"
#include "proto/base/library_name.h"

namespace tidemark {

namespace {

std::string loaded_torch_library(pid_t pid) {
  const auto files = inject::read_maps(pid);
  if (!files) return "";
  for (const inject::MappedFile& file : *files) {
    if (is_library_name(file.name(), "libc10_cuda.so")) return file.path;
  }
  return "";
}

bool is_same_file(pid_t pid, const std::string& path) {
  struct stat own {};
  struct stat seen {};
  const std::string through = "/proc/" + std::to_string(pid) + "/root" + path;
  return ::stat(path.c_str(), &own) == 0 && ::stat(through.c_str(), &seen) == 0 &&
         own.st_dev == seen.st_dev && own.st_ino == seen.st_ino;
}

bool become(uid_t user) {
  if (::geteuid() == user) return true;
  const passwd* const entry = ::getpwuid(user);
  return entry != nullptr && ::initgroups(entry->pw_name, entry->pw_gid) == 0 &&
         ::setgid(entry->pw_gid) == 0 && ::setuid(user) == 0;
}

// Runs in a separate process: changes to the user and sets the variables that select cache and
// compiler. Writes the version of torch to `announce_fd` if it has to compile.
[[noreturn]] void build_as(uid_t user, const ProcessEnvironment& environment,
                           const std::string& library, int announce_fd) {
  for (const char* name :
       {"XDG_CACHE_HOME", "HOME", "TIDEMARK_BRIDGE_DIR", "CXX", "CUDA_HOME", "CUDA_PATH"}) {
    const std::string& value = environment.get(name);
    if (value.empty()) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value.c_str(), 1);
    }
  }
  if (!become(user)) ::_exit(1);
  const auto outcome = std::make_unique<bridge::Outcome>();
  bridge::find_bridge(own_environment(), library.c_str(), *outcome);
  if (outcome->ready || outcome->torch_version[0] == '\0') ::_exit(0);
  const std::string version = outcome->torch_version;
  if (::write(announce_fd, version.data(), version.size()) < 0) ::_exit(1);
  ::close(announce_fd);
  bridge::build_bridge(own_environment(), library.c_str(), *outcome);
  ::_exit(outcome->ready ? 0 : 1);
}

bool is_off(const ProcessEnvironment& environment, const char* name) {
  return environment.get(name) == "0";
}

}  // namespace

void prepare_bridge_for(pid_t pid, uid_t user,
                        const std::function<void(const std::string&)>& announce) {
  const ProcessEnvironment environment(pid);
  if (is_off(environment, "TIDEMARK_TORCH") || is_off(environment, "TIDEMARK_BRIDGE") ||
      environment.get("TIDEMARK_BRIDGE") == "prebuilt") {
    return;
  }
  const std::string library = loaded_torch_library(pid);
  int fds[2];
  if (library.empty() || !is_same_file(pid, library) || ::pipe2(fds, O_CLOEXEC) != 0) return;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(fds[0]);
    build_as(user, environment, library, fds[1]);
  }
  ::close(fds[1]);
  std::array<char, 64> version{};
  const ssize_t size = child > 0 ? ::read(fds[0], version.data(), version.size()) : 0;
  ::close(fds[0]);
  if (size > 0) announce(std::string(version.data(), static_cast<size_t>(size)));
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace tidemark
