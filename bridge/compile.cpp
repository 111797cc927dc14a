#include "bridge/compile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "bridge/run_compiler.h"

namespace tidemark::bridge {
namespace {

bool is_program(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 && S_ISREG(info.st_mode) && ::access(path, X_OK) == 0;
}

// Not left to execvp(), which reads the live environment.
bool find_program(const Environment& environment, const char* name, char (&out)[PATH_MAX]) {
  if (std::strchr(name, '/') != nullptr) {
    const int length = std::snprintf(out, sizeof out, "%s", name);
    return static_cast<size_t>(length) < sizeof out && is_program(out);
  }
  const char* path = environment.find("PATH");
  if (path == nullptr) path = "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t size = std::strcspn(path, ":");
    const int length =
        std::snprintf(out, sizeof out, "%.*s/%s", static_cast<int>(size), path, name);
    if (size > 0 && static_cast<size_t>(length) < sizeof out && is_program(out)) return true;
    if (path[size] == '\0') return false;
    path += size + 1;
  }
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
  const char* const* finish() {
    list[count] = nullptr;
    return list;
  }
};

// The allocator's trace matters most: if torch's larger headers do not compile, we do without
// annotations.
struct Attempt {
  const char* standard;
  bool annotations;
};

// Headers up to 2.9 need C++17, later ones C++20; a compiler may support only the former.
constexpr Attempt kAttempts[] = {
    {"-std=c++20", true}, {"-std=c++17", true}, {"-std=c++20", false}, {"-std=c++17", false}};

// All paths of one compilation.
struct Files {
  const char* source;
  const char* library;
  char log[PATH_MAX + 8];
  char status[PATH_MAX + 8];
};

bool is_library(const char* path) {
  static constexpr char kElf[] = {0x7f, 'E', 'L', 'F'};
  char begin[sizeof kElf] = {};
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return false;
  const bool whole = std::fread(begin, sizeof begin, 1, file) == 1;
  std::fclose(file);
  return whole && std::memcmp(begin, kElf, sizeof kElf) == 0;
}

bool try_compiler(const Environment& environment, const TorchPlace& torch,
                  const CompileFacts& facts, const char* compiler, const Attempt& attempt,
                  const Files& files) {
  auto* const arguments = static_cast<Arguments*>(std::calloc(1, sizeof(Arguments)));
  if (arguments == nullptr) return false;
  for (const char* flag : {compiler, attempt.standard, "-O2", "-fPIC", "-shared", "-w",
                           "-fvisibility=hidden", "-DUSE_CUDA"}) {
    arguments->add(flag);
  }
  arguments->add(facts.cxx11_abi ? "-D_GLIBCXX_USE_CXX11_ABI=1" : "-D_GLIBCXX_USE_CXX11_ABI=0");
  arguments->add_joined("-I", torch.directory, "/include");
  if (facts.cuda_include[0] != '\0') arguments->add_joined("-I", facts.cuda_include, "");
  arguments->add(files.source);
  arguments->add("-o");
  arguments->add(files.library);
  arguments->add_joined("-L", torch.directory, "/lib");
  arguments->add("-lc10_cuda");
  arguments->add("-lc10");
  if (attempt.annotations) {
    arguments->add("-DTIDEMARK_ANNOTATIONS");
    arguments->add("-ltorch_cpu");
  }
  const bool built = run_compiler(environment, arguments->finish(), files.log, files.status) &&
                     is_library(files.library);
  std::free(arguments);
  return built;
}

}  // namespace

bool find_compiler(const Environment& environment, char (&path)[PATH_MAX]) noexcept {
  for (const char* name : {environment.find("CXX"), "c++", "g++", "clang++"}) {
    if (name != nullptr && name[0] != '\0' && find_program(environment, name, path)) return true;
  }
  path[0] = '\0';
  return false;
}

bool compile_bridge(const Environment& environment, const TorchPlace& torch, const char* compiler,
                    const char* source, const char* library, char* reason,
                    size_t reason_size) noexcept {
  Files files{source, library, {}, {}};
  std::snprintf(files.log, sizeof files.log, "%s.log", library);
  std::snprintf(files.status, sizeof files.status, "%s.end", library);
  CompileFacts facts;
  find_compile_facts(environment, torch, facts);
  bool built = false;
  for (const Attempt& attempt : kAttempts) {
    built = try_compiler(environment, torch, facts, compiler, attempt, files);
    if (built) break;
  }
  if (!built) {
    first_error(files.log, reason, reason_size);
    if (facts.cuda_include[0] == '\0') {
      std::snprintf(reason, reason_size, "cuda_runtime_api.h was not found (set CUDA_HOME)");
    }
  }
  ::unlink(files.log);
  return built;
}

}  // namespace tidemark::bridge
