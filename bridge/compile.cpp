#include "bridge/compile.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern char** environ;

namespace tidemark::bridge {
namespace {

constexpr int kTimeoutSeconds = 180;
constexpr size_t kMaxVariables = 4096;

// The compiler must not be recorded, nor load the libraries that are preloaded into the job.
size_t compiler_environment(char** out) {
  static constexpr const char* kLeftOut[] = {
      "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH=", "LD_PRELOAD=", "TIDEMARK_ARM="};
  size_t count = 0;
  for (char** variable = environ; *variable != nullptr && count + 1 < kMaxVariables; ++variable) {
    bool wanted = true;
    for (const char* name : kLeftOut)
      wanted &= std::strncmp(*variable, name, std::strlen(name)) != 0;
    if (wanted) out[count++] = *variable;
  }
  out[count] = nullptr;
  return count;
}

bool wait_for(pid_t child, int& status) {
  for (int i = 0; i < kTimeoutSeconds * 20; ++i) {
    const pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child) return true;
    // A host that ignores SIGCHLD, or waits for any child, may have taken the status.
    if (done < 0 && errno != EINTR) {
      status = 0;
      return errno == ECHILD;
    }
    const timespec pause{0, 50'000'000};
    nanosleep(&pause, nullptr);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return false;
}

// True when the program ran and returned 0. `started` tells a missing compiler from one that
// failed.
bool run_compiler(char* const* arguments, const char* log, bool& started) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Its own process group: Ctrl-C in the terminal of the job must not reach the compiler.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  auto** const variables = static_cast<char**>(std::malloc(kMaxVariables * sizeof(char*)));
  pid_t child = 0;
  started = false;
  int status = -1;
  if (variables != nullptr) {
    compiler_environment(variables);
    started = ::posix_spawnp(&child, arguments[0], &files, &attributes, arguments, variables) == 0;
  }
  const bool ended = started && wait_for(child, status);
  std::free(variables);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (started && ended && WIFEXITED(status) && WEXITSTATUS(status) == 127) started = false;
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Takes the first line of the log that contains an error.
void first_error(const char* log, char* reason, size_t reason_size) {
  std::snprintf(reason, reason_size, "the compiler failed without an error message");
  std::FILE* const file = std::fopen(log, "re");
  if (file == nullptr) return;
  char line[400];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strstr(line, "error") == nullptr) continue;
    line[std::strcspn(line, "\n")] = '\0';
    std::snprintf(reason, reason_size, "compilation failed: %s", line);
    break;
  }
  std::fclose(file);
}

struct Arguments {
  static constexpr size_t kMax = 32;
  char text[8][PATH_MAX + 32];
  const char* list[kMax];
  size_t texts = 0;
  size_t count = 0;

  void add(const char* argument) {
    if (count + 1 < kMax) list[count++] = argument;
  }
  void add_joined(const char* prefix, const char* middle, const char* suffix) {
    if (texts == 8) return;
    std::snprintf(text[texts], sizeof text[0], "%s%s%s", prefix, middle, suffix);
    add(text[texts++]);
  }
  char* const* finish() {
    list[count] = nullptr;
    return const_cast<char* const*>(list);
  }
};

// The allocator's trace matters most: if torch's larger headers do not compile, we do without
// annotations.
struct Attempt {
  const char* compiler;
  const char* standard;
  bool annotations;
};

bool try_compiler(const TorchPlace& torch, const CompileFacts& facts, const Attempt& attempt,
                  const char* source, const char* library, const char* log, bool& started) {
  auto* const arguments = static_cast<Arguments*>(std::calloc(1, sizeof(Arguments)));
  if (arguments == nullptr) return false;
  for (const char* flag : {attempt.compiler, attempt.standard, "-O2", "-fPIC", "-shared", "-w",
                           "-fvisibility=hidden", "-DUSE_CUDA"}) {
    arguments->add(flag);
  }
  arguments->add(facts.cxx11_abi ? "-D_GLIBCXX_USE_CXX11_ABI=1" : "-D_GLIBCXX_USE_CXX11_ABI=0");
  arguments->add_joined("-I", torch.directory, "/include");
  if (facts.cuda_include[0] != '\0') arguments->add_joined("-I", facts.cuda_include, "");
  arguments->add(source);
  arguments->add("-o");
  arguments->add(library);
  arguments->add_joined("-L", torch.directory, "/lib");
  arguments->add("-lc10_cuda");
  arguments->add("-lc10");
  if (attempt.annotations) {
    arguments->add("-DTIDEMARK_ANNOTATIONS");
    arguments->add("-ltorch_cpu");
  }
  const bool built = run_compiler(arguments->finish(), log, started);
  std::free(arguments);
  return built;
}

}  // namespace

bool compile_bridge(const TorchPlace& torch, const char* source, const char* library, char* reason,
                    size_t reason_size) noexcept {
  char log[PATH_MAX + 8];
  std::snprintf(log, sizeof log, "%s.log", library);
  CompileFacts facts;
  find_compile_facts(torch, facts);
  const char* const chosen = std::getenv("CXX");
  bool any_started = false;
  for (const char* compiler : {chosen, "c++", "g++", "clang++"}) {
    if (compiler == nullptr || compiler[0] == '\0' || any_started) continue;
    // Headers up to 2.9 need C++17, later ones C++20; a compiler may support only the former.
    for (const Attempt& attempt :
         {Attempt{compiler, "-std=c++20", true}, Attempt{compiler, "-std=c++17", true},
          Attempt{compiler, "-std=c++20", false}, Attempt{compiler, "-std=c++17", false}}) {
      bool started = false;
      if (try_compiler(torch, facts, attempt, source, library, log, started)) {
        ::unlink(log);
        return true;
      }
      any_started |= started;
      if (!started) break;
    }
  }
  if (any_started) {
    first_error(log, reason, reason_size);
    if (facts.cuda_include[0] == '\0') {
      std::snprintf(reason, reason_size, "cuda_runtime_api.h was not found (set CUDA_HOME)");
    }
  } else {
    std::snprintf(reason, reason_size, "no C++ compiler was found (c++, g++, clang++ or $CXX)");
  }
  ::unlink(log);
  return false;
}

}  // namespace tidemark::bridge
