#include "collector/launch/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

namespace tidemark {

namespace {

namespace fs = std::filesystem;

// Signals that a user may send to this process but that are meant for the program.
constexpr std::array kForwarded = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                   SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

volatile sig_atomic_t g_child = 0;

// The terminal sends Ctrl-C to the whole foreground group, including the program: only signals sent
// by a process (kill) are forwarded.
void forward(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  if (g_child > 0 && info->si_code <= 0) ::kill(static_cast<pid_t>(g_child), signal);
  errno = saved;
}

std::string random_id() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string id;
  for (int i = 0; i < 16; ++i) id += kDigits[device() % 16];
  return id;
}

void set_environment(const LaunchOptions& options, const std::string& run) {
  // A library that the user wanted to inject stays in use: ours loads and calls it. Where every job
  // is armed, the variable names another copy of ours.
  if (const char* other = std::getenv("CUDA_INJECTION64_PATH");
      other != nullptr && *other != '\0' && options.injector != other &&
      fs::path(other).filename() != fs::path(options.injector).filename()) {
    ::setenv("TIDEMARK_CHAIN", other, 0);
  }
  ::setenv("CUDA_INJECTION64_PATH", options.injector.c_str(), 1);
  ::setenv("NVTX_INJECTION64_PATH", options.injector.c_str(), 0);  // keeps that of another tool
  if (!options.directory.empty()) {
    ::setenv("TIDEMARK_OUT", options.directory.c_str(), 1);
    ::unsetenv("TIDEMARK_ARM");  // records now, also where every job is armed
  }
  // The same library is NCCL's profiler plugin. Keeps a plugin that the user has set.
  ::setenv("NCCL_PROFILER_PLUGIN", options.injector.c_str(), 0);
  ::setenv("NCCL_SET_THREAD_NAME", "1", 0);  // tells NCCL's threads from the program's
  ::setenv("TIDEMARK_JOB", random_id().c_str(), 0);
  ::setenv(kRunVariable, run.c_str(), 1);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
}

// In the child: executes the program, or reports the errno to the parent through `report_fd`.
[[noreturn]] void become(const LaunchOptions& options, const std::string& run, const sigset_t& mask,
                         int report_fd) {
  for (const int signal : kForwarded) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  set_environment(options, run);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(report_fd, &error, sizeof error);
  ::_exit(127);
}

Status make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      if (::access(path.c_str(), W_OK) == 0) return {};
      return Error{path + ": is not writable"};
    }
    return Error{path + ": is not a directory"};
  }
  if (errno == ENOENT) {
    std::error_code error;
    if (const fs::path parent = fs::path(path).parent_path();
        !parent.empty() && fs::create_directories(parent, error)) {
      if (::mkdir(path.c_str(), 0700) == 0) return {};
    }
  }
  return Error{path + ": " + std::strerror(errno)};
}

LaunchResult wait_for(pid_t child) {
  int status = 0;
  TEMP_FAILURE_RETRY(::waitpid(child, &status, 0));
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

Result<std::string> find_injector() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"libtidemark.so", "injector/libtidemark.so", "../lib/libtidemark.so",
                            "../lib/tidemark/libtidemark.so"}) {
    const fs::path path = self / place;
    if (fs::exists(path, error)) return fs::canonical(path, error).string();
  }
  return Error{"libtidemark.so is neither next to " + (self / "tidemark").string() +
               " nor in ../lib: build or install the injector"};
}

Result<LaunchResult> launch(const LaunchOptions& options) {
  std::error_code ignored;
  const bool make = !options.directory.empty() && !fs::exists(options.directory, ignored);
  if (!options.directory.empty()) {
    if (Status status = make_directory(options.directory); !status) return status.error();
  }
  const std::string run = random_id();
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return Error{std::strerror(errno)};

  struct sigaction action {};
  action.sa_sigaction = forward;
  action.sa_flags = SA_SIGINFO;
  sigset_t forwarded;
  sigset_t before;
  ::sigemptyset(&forwarded);
  for (const int signal : kForwarded) ::sigaddset(&forwarded, signal);
  ::sigprocmask(SIG_BLOCK, &forwarded, &before);  // so that none is lost before the child exists
  for (const int signal : kForwarded) ::sigaction(signal, &action, nullptr);
  const pid_t child = ::fork();
  if (child == 0) become(options, run, before, pipe_fds[1]);
  g_child = child;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(pipe_fds[1]);
  if (child < 0) return Error{std::string("cannot start a process: ") + std::strerror(errno)};

  int error = 0;
  const bool failed = TEMP_FAILURE_RETRY(::read(pipe_fds[0], &error, sizeof error)) == sizeof error;
  ::close(pipe_fds[0]);
  LaunchResult result = wait_for(child);
  g_child = 0;
  if (failed) result.start_error = error;
  result.made_directory = make;
  result.run = run;
  return result;
}

}  // namespace tidemark
