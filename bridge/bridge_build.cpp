#include "bridge/bridge_build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bridge/bridge_source.h"
#include "bridge/compile.h"
#include "bridge/machine.h"
#include "bridge/torch_place.h"

namespace tidemark::bridge {
namespace {

// After a failure the other processes of a job do not try to compile again, but it is not
// remembered for ever. Nor is a bridge that was built for this machine and does not load built
// again sooner.
constexpr time_t kFailureHoldsSeconds = 3600;
constexpr time_t kAbandonedSeconds = 24 * 3600;

// Code is loaded from there: it must belong to us, and nobody else may have write access.
bool is_private_directory(const char* path) {
  struct stat info {};
  return ::lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool use_cache_under(const char* parent, const char* name, char (&out)[PATH_MAX]) {
  if (parent == nullptr || parent[0] != '/') return false;
  const int length = std::snprintf(out, sizeof out, "%s/%s", parent, name);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof out) return false;
  ::mkdir(parent, 0700);
  ::mkdir(out, 0700);
  return is_private_directory(out) && ::access(out, W_OK) == 0;
}

bool find_cache(const Environment& environment, char (&out)[PATH_MAX]) {
  if (use_cache_under(environment.find("XDG_CACHE_HOME"), "tidemark", out)) return true;
  char parent[PATH_MAX];
  const char* const home = environment.find("HOME");
  if (home != nullptr) {
    std::snprintf(parent, sizeof parent, "%s/.cache", home);
    if (use_cache_under(parent, "tidemark", out)) return true;
  }
  char name[64];
  std::snprintf(name, sizeof name, "tidemark-%u", static_cast<unsigned>(::geteuid()));
  return use_cache_under("/tmp", name, out);
}

bool is_own_file(const char* path) {
  struct stat info {};
  return ::lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size > 0;
}

// One that the user has named may also belong to an administrator.
bool is_trusted_file(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
         (info.st_uid == ::geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size > 0;
}

bool write_text(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const size_t size = std::strlen(text);
  const bool written = ::write(file, text, size) == static_cast<ssize_t>(size);
  return ::close(file) == 0 && written;
}

bool is_younger_than(const char* path, time_t seconds) {
  struct stat info {};
  return ::stat(path, &info) == 0 && ::time(nullptr) - info.st_mtime <= seconds;
}

// All paths of one bridge in the cache. Too large for a small thread stack.
struct Paths {
  char cache[PATH_MAX];
  char shared[PATH_MAX];  // the bridge for every machine of this kind
  char own[PATH_MAX];     // the bridge for this machine only
  char lock[PATH_MAX];
  char failed[PATH_MAX];    // why the compiler failed; "" without a compiler
  char folder[PATH_MAX];    // a pattern for mkdtemp()
  char compiler[PATH_MAX];  // "" if there is none
};

// Compilers differ between machines that share the cache: what one cannot do, another may.
uint64_t compiler_identity(const char* path) {
  struct stat info {};
  ::stat(path, &info);
  const int64_t facts[] = {static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_mtime)};
  return mix_bytes(mix_bytes(kHashBegin, facts, sizeof facts), path, std::strlen(path));
}

// "torch-2.11.0+cu130-x86_64-glibc2.39-stdcxx6.0.33-0123456789abcdef", the same in every process
// that can use the same bridge.
void name_bridge(const TorchPlace& torch, char (&out)[256]) {
  uint64_t key = mix_bytes(torch.identity, kBridgeSource, std::strlen(kBridgeSource));
  key = mix_bytes(key, kBridgeAbi, std::strlen(kBridgeAbi));
  char machine[96];
  describe_machine(machine, sizeof machine);
  std::snprintf(out, sizeof out, "torch-%s-%s-%016llx", torch.version, machine,
                static_cast<unsigned long long>(key));
}

bool name_paths(const Environment& environment, const TorchPlace& torch, const char* directory,
                Paths& paths, Outcome& outcome) {
  if (directory != nullptr) {
    std::snprintf(paths.cache, sizeof paths.cache, "%s", directory);
  } else if (!find_cache(environment, paths.cache)) {
    std::snprintf(outcome.reason, sizeof outcome.reason,
                  "no writable cache directory (set XDG_CACHE_HOME)");
    return false;
  }
  char bridge[256];
  name_bridge(torch, bridge);
  char base[PATH_MAX];
  const int length = std::snprintf(base, sizeof base, "%s/%s", paths.cache, bridge);
  constexpr size_t kLongestEnding = 40;
  if (length <= 0 || static_cast<size_t>(length) + kLongestEnding >= sizeof base) {
    std::snprintf(outcome.reason, sizeof outcome.reason, "the path of the cache is too long");
    return false;
  }
  const auto name = [&](char(&out)[PATH_MAX], const char* ending, uint64_t number) {
    std::snprintf(out, sizeof out, "%.*s", length, base);
    std::snprintf(out + length, sizeof out - static_cast<size_t>(length), ending,
                  static_cast<unsigned long long>(number));
  };
  name(paths.shared, ".so", 0);
  name(paths.own, "-%016llx.so", machine_identity());
  name(paths.lock, ".lock", 0);
  name(paths.folder, ".build-XXXXXX", 0);
  return true;
}

// Many folders are searched, so only if there is no bridge yet.
void choose_compiler(const Environment& environment, Paths& paths) {
  if (!find_compiler(environment, paths.compiler)) return;
  std::memcpy(paths.failed, paths.shared, sizeof paths.failed);
  char* const ending = paths.failed + std::strlen(paths.failed) - std::strlen(".so");
  std::snprintf(ending, static_cast<size_t>(paths.failed + sizeof paths.failed - ending),
                "-%016llx.failed",
                static_cast<unsigned long long>(compiler_identity(paths.compiler)));
}

// Reads the reason of a recent failure, if there was one.
bool failed_lately(const Paths& paths, Outcome& outcome) {
  if (paths.failed[0] == '\0' || !is_younger_than(paths.failed, kFailureHoldsSeconds)) return false;
  const int file = ::open(paths.failed, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = ::read(file, outcome.reason, sizeof outcome.reason - 1);
  ::close(file);
  outcome.reason[size > 0 ? size : 0] = '\0';
  return size > 0;
}

// Removes the files in a folder of a compilation, and the folder.
void remove_folder(const char* path) {
  DIR* const folder = ::opendir(path);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') ::unlinkat(::dirfd(folder), entry->d_name, 0);
  }
  ::closedir(folder);
  ::rmdir(path);
}

// Folders of processes that were killed while they compiled.
void remove_abandoned_folders(const Paths& paths) {
  DIR* const cache = ::opendir(paths.cache);
  if (cache == nullptr) return;
  while (const dirent* entry = ::readdir(cache)) {
    char path[PATH_MAX];
    const int length = std::snprintf(path, sizeof path, "%s/%s", paths.cache, entry->d_name);
    if (std::strstr(entry->d_name, ".build-") == nullptr ||
        static_cast<size_t>(length) >= sizeof path || is_younger_than(path, kAbandonedSeconds)) {
      continue;
    }
    if (is_private_directory(path)) remove_folder(path);
  }
  ::closedir(cache);
}

// Compiles in a folder of its own, so that processes that the lock does not keep apart do not meet,
// and gives the library its name once it is complete.
void compile(const Environment& environment, const TorchPlace& torch, const Paths& paths,
             const char* library, Outcome& outcome) {
  if (paths.compiler[0] == '\0') {  // not remembered: the next machine may have one
    std::snprintf(outcome.reason, sizeof outcome.reason,
                  "no C++ compiler was found (c++, g++, clang++ or $CXX)");
    return;
  }
  remove_abandoned_folders(paths);
  char folder[PATH_MAX];
  std::memcpy(folder, paths.folder, sizeof folder);
  char source[PATH_MAX + 32];
  char abi[PATH_MAX + 32];
  char fresh[PATH_MAX + 32];
  const bool made = ::mkdtemp(folder) != nullptr;
  std::snprintf(source, sizeof source, "%s/torch_bridge.cpp", folder);
  std::snprintf(abi, sizeof abi, "%s/torch_bridge_abi.h", folder);
  std::snprintf(fresh, sizeof fresh, "%s/bridge.so", folder);
  if (!made || !write_text(source, kBridgeSource) || !write_text(abi, kBridgeAbi)) {
    std::snprintf(outcome.reason, sizeof outcome.reason, "cannot write to %.400s", paths.cache);
  } else if (compile_bridge(environment, torch, paths.compiler, source, fresh, outcome.reason,
                            sizeof outcome.reason)) {
    ::chmod(fresh, 0600);
    outcome.compiled = outcome.ready = ::rename(fresh, library) == 0;
    if (!outcome.ready) {
      std::snprintf(outcome.reason, sizeof outcome.reason, "cannot write to %.400s", paths.cache);
    }
    ::unlink(paths.failed);
  } else {
    write_text(paths.failed, outcome.reason);
  }
  if (made) remove_folder(folder);
}

struct Work {
  TorchPlace torch;
  Paths paths;
};

void use(const char* library, Outcome& outcome) {
  std::snprintf(outcome.path, sizeof outcome.path, "%s", library);
  outcome.ready = is_own_file(outcome.path);
}

// A bridge that was built once for many machines: 'tidemark bridge build -o DIR'.
void use_prebuilt(const Environment& environment, const TorchPlace& torch, Outcome& outcome) {
  const char* const directory = environment.find("TIDEMARK_BRIDGE_DIR");
  if (directory == nullptr || directory[0] == '\0') return;
  char bridge[256];
  name_bridge(torch, bridge);
  const int length =
      std::snprintf(outcome.path, sizeof outcome.path, "%s/%s.so", directory, bridge);
  outcome.ready =
      static_cast<size_t>(length) < sizeof outcome.path && is_trusted_file(outcome.path);
}

enum class Prebuilt : uint8_t { kUse, kIgnore };

// nullptr with a reason, or with a bridge that is ready. To be freed.
Work* prepare(const Environment& environment, const char* libc10_cuda, Prebuilt prebuilt,
              const char* directory, Outcome& outcome) {
  auto* const work = static_cast<Work*>(std::calloc(1, sizeof(Work)));
  if (work == nullptr) return nullptr;
  const bool known = find_torch(libc10_cuda, work->torch, outcome.reason, sizeof outcome.reason);
  std::memcpy(outcome.torch_version, work->torch.version, sizeof outcome.torch_version);
  if (known && prebuilt == Prebuilt::kUse) use_prebuilt(environment, work->torch, outcome);
  if (known && !outcome.ready &&
      name_paths(environment, work->torch, directory, work->paths, outcome)) {
    return work;
  }
  std::free(work);
  return nullptr;
}

// One that was built for this machine was built because the other one did not load.
void find(const Paths& paths, Outcome& outcome) {
  use(paths.own, outcome);
  if (!outcome.ready) use(paths.shared, outcome);
}

// Only saves work: other processes that need the same bridge wait for this one. Some file systems
// of clusters have no locks.
class BuildLock {
 public:
  explicit BuildLock(const char* path)
      : fd_(::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~BuildLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

 private:
  int fd_;
};

}  // namespace

void find_bridge(const Environment& environment, const char* libc10_cuda,
                 Outcome& outcome) noexcept {
  outcome = Outcome();
  Work* const work = prepare(environment, libc10_cuda, Prebuilt::kUse, nullptr, outcome);
  if (work == nullptr) return;
  find(work->paths, outcome);
  if (!outcome.ready) {
    choose_compiler(environment, work->paths);
    if (!failed_lately(work->paths, outcome)) {
      std::snprintf(outcome.reason, sizeof outcome.reason, "it is not built yet");
    }
  }
  std::free(work);
}

void build_bridge(const Environment& environment, const char* libc10_cuda,
                  Outcome& outcome) noexcept {
  outcome = Outcome();
  Work* const work = prepare(environment, libc10_cuda, Prebuilt::kUse, nullptr, outcome);
  if (work == nullptr) return;
  Paths& paths = work->paths;
  find(paths, outcome);
  if (!outcome.ready) {
    choose_compiler(environment, paths);
    const BuildLock lock(paths.lock);
    find(paths, outcome);  // another process may have been faster
    if (!outcome.ready && !failed_lately(paths, outcome)) {
      compile(environment, work->torch, paths, paths.shared, outcome);
    }
  }
  std::free(work);
}

void rebuild_bridge(const Environment& environment, const char* libc10_cuda,
                    Outcome& outcome) noexcept {
  char refused[PATH_MAX];
  std::memcpy(refused, outcome.path, sizeof refused);
  outcome = Outcome();
  Work* const work = prepare(environment, libc10_cuda, Prebuilt::kIgnore, nullptr, outcome);
  if (work == nullptr) return;
  Paths& paths = work->paths;
  choose_compiler(environment, paths);
  const BuildLock lock(paths.lock);
  use(paths.own, outcome);
  const bool old =
      std::strcmp(refused, paths.own) == 0 && !is_younger_than(paths.own, kFailureHoldsSeconds);
  if ((!outcome.ready || old) && !failed_lately(paths, outcome)) {
    outcome.ready = false;
    compile(environment, work->torch, paths, paths.own, outcome);
  }
  std::free(work);
}

void build_bridge_in(const Environment& environment, const char* libc10_cuda, const char* directory,
                     Outcome& outcome) noexcept {
  outcome = Outcome();
  Work* const work = prepare(environment, libc10_cuda, Prebuilt::kIgnore, directory, outcome);
  if (work == nullptr) return;
  const Paths& paths = work->paths;
  use(paths.shared, outcome);
  if (!outcome.ready) {
    choose_compiler(environment, work->paths);
    compile(environment, work->torch, paths, paths.shared, outcome);
    ::unlink(paths.failed);
  }
  if (outcome.ready) ::chmod(outcome.path, 0644);  // for others to load
  std::free(work);
}

}  // namespace tidemark::bridge
