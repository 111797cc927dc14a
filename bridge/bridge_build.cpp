#include "bridge/bridge_build.h"

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
#include "bridge/torch_place.h"

namespace tidemark::bridge {
namespace {

// After a failure the other processes of a job do not try to compile again, but it is not
// remembered for ever.
constexpr time_t kFailureHoldsSeconds = 3600;

// Code is loaded from there: it must belong to us, and nobody else may have write access.
bool is_private_directory(const char* path) {
  struct stat info {};
  return ::lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool make_directory(const char* path) {
  return ::mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool use_cache_under(const char* parent, const char* name, char (&out)[PATH_MAX]) {
  if (parent == nullptr || parent[0] != '/') return false;
  const int length = std::snprintf(out, sizeof out, "%s/%s", parent, name);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof out) return false;
  make_directory(parent);
  return make_directory(out) && is_private_directory(out) && ::access(out, W_OK) == 0;
}

bool find_cache(char (&out)[PATH_MAX]) {
  if (use_cache_under(std::getenv("XDG_CACHE_HOME"), "tidemark", out)) return true;
  char parent[PATH_MAX];
  const char* const home = std::getenv("HOME");
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

bool write_text(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const size_t size = std::strlen(text);
  const bool written = ::write(file, text, size) == static_cast<ssize_t>(size);
  return ::close(file) == 0 && written;
}

// All paths of one bridge in the cache.
struct Paths {
  char cache[PATH_MAX];
  char base[PATH_MAX];
  char lock[PATH_MAX + 16];
  char failed[PATH_MAX + 16];
  char folder[PATH_MAX + 16];
  char source[PATH_MAX + 64];
  char abi[PATH_MAX + 64];
  char fresh[PATH_MAX + 64];
};

bool name_paths(const TorchPlace& torch, Paths& paths, Outcome& outcome) {
  if (!find_cache(paths.cache)) {
    std::snprintf(outcome.reason, sizeof outcome.reason,
                  "no writable cache directory (set XDG_CACHE_HOME)");
    return false;
  }
  uint64_t key = mix_bytes(torch.identity, kBridgeSource, std::strlen(kBridgeSource));
  key = mix_bytes(key, kBridgeAbi, std::strlen(kBridgeAbi));
  const int length =
      std::snprintf(paths.base, sizeof paths.base, "%s/torch-%s-%016llx", paths.cache,
                    torch.version, static_cast<unsigned long long>(key));
  if (length <= 0 || static_cast<size_t>(length) + 8 >= sizeof paths.base) return false;
  std::snprintf(outcome.path, sizeof outcome.path, "%.*s.so", length, paths.base);
  std::snprintf(paths.lock, sizeof paths.lock, "%s.lock", paths.base);
  std::snprintf(paths.failed, sizeof paths.failed, "%s.failed", paths.base);
  std::snprintf(paths.folder, sizeof paths.folder, "%s.build", paths.base);
  std::snprintf(paths.source, sizeof paths.source, "%s/torch_bridge.cpp", paths.folder);
  std::snprintf(paths.abi, sizeof paths.abi, "%s/torch_bridge_abi.h", paths.folder);
  std::snprintf(paths.fresh, sizeof paths.fresh, "%s/bridge.so", paths.folder);
  return true;
}

// Reads the reason of a recent failure, if there was one.
bool failed_lately(const Paths& paths, Outcome& outcome) {
  struct stat info {};
  if (::stat(paths.failed, &info) != 0) return false;
  if (::time(nullptr) - info.st_mtime > kFailureHoldsSeconds) return false;
  const int file = ::open(paths.failed, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = ::read(file, outcome.reason, sizeof outcome.reason - 1);
  ::close(file);
  outcome.reason[size > 0 ? size : 0] = '\0';
  return size > 0;
}

void compile_locked(const TorchPlace& torch, const Paths& paths, Outcome& outcome) {
  if (is_own_file(outcome.path)) {  // another process was faster
    outcome.ready = true;
    return;
  }
  if (failed_lately(paths, outcome)) return;
  if (!make_directory(paths.folder) || !is_private_directory(paths.folder) ||
      !write_text(paths.source, kBridgeSource) || !write_text(paths.abi, kBridgeAbi)) {
    std::snprintf(outcome.reason, sizeof outcome.reason, "cannot write to %.400s", paths.cache);
    return;
  }
  if (compile_bridge(torch, paths.source, paths.fresh, outcome.reason, sizeof outcome.reason)) {
    ::chmod(paths.fresh, 0600);
    outcome.ready = ::rename(paths.fresh, outcome.path) == 0;
    ::unlink(paths.failed);
  } else {
    write_text(paths.failed, outcome.reason);
  }
  ::unlink(paths.source);
  ::unlink(paths.abi);
  ::unlink(paths.fresh);
  ::rmdir(paths.folder);
}

bool prepare(const char* libc10_cuda, TorchPlace& torch, Paths& paths, Outcome& outcome) {
  outcome = Outcome();
  const bool known = find_torch(libc10_cuda, torch, outcome.reason, sizeof outcome.reason);
  std::memcpy(outcome.torch_version, torch.version, sizeof outcome.torch_version);
  return known && name_paths(torch, paths, outcome);
}

// Both are too large for a small thread stack.
struct Work {
  TorchPlace torch;
  Paths paths;
};

}  // namespace

void find_bridge(const char* libc10_cuda, Outcome& outcome) noexcept {
  Work* const work = static_cast<Work*>(std::calloc(1, sizeof(Work)));
  if (work == nullptr) return;
  work->torch = TorchPlace();
  if (prepare(libc10_cuda, work->torch, work->paths, outcome)) {
    outcome.ready = is_own_file(outcome.path);
    if (!outcome.ready && !failed_lately(work->paths, outcome)) {
      std::snprintf(outcome.reason, sizeof outcome.reason, "it is not built yet");
    }
  }
  std::free(work);
}

void build_bridge(const char* libc10_cuda, Outcome& outcome) noexcept {
  find_bridge(libc10_cuda, outcome);
  if (outcome.ready) return;
  Work* const work = static_cast<Work*>(std::calloc(1, sizeof(Work)));
  if (work == nullptr) return;
  work->torch = TorchPlace();
  if (prepare(libc10_cuda, work->torch, work->paths, outcome)) {
    const int lock = ::open(work->paths.lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock >= 0) ::flock(lock, LOCK_EX);  // released when its holder ends
    compile_locked(work->torch, work->paths, outcome);
    if (lock >= 0) ::close(lock);
  }
  std::free(work);
}

}  // namespace tidemark::bridge
