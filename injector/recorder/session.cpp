#include "injector/recorder/session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "injector/process/complain.h"
#include "injector/process/environment.h"
#include "injector/process/file_system.h"
#include "proto/base/pages.h"
#include "proto/base/units.h"

namespace tidemark::injector {

namespace {

constexpr uint32_t kMinBufferMb = 4;
constexpr uint32_t kMaxBufferMb = 4096;
constexpr int kMostTraces = 100'000;  // per process and directory
constexpr char kSharedMemory[] = "/dev/shm";

std::atomic_flag said_no_directory;
std::atomic_flag said_no_trace;
std::atomic_flag said_no_ring;
std::atomic_flag said_small_ring;
std::atomic_flag said_no_memory;

// Creates all missing directories of the path, accessible to the user only.
bool make_directories(const char* directory) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s", directory) >= static_cast<int>(sizeof path)) {
    errno = ENAMETOOLONG;
    return false;
  }
  for (char* at = path + 1; *at != '\0'; ++at) {
    if (*at != '/') continue;
    *at = '\0';
    if (::mkdir(path, 0700) != 0 && errno != EEXIST && ::access(path, F_OK) != 0) return false;
    *at = '/';
  }
  struct stat info {};
  if (::mkdir(path, 0700) == 0 || errno == EEXIST) {
    if (::stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return true;
    errno = ENOTDIR;
  }
  return false;
}

// rank<R>-<host>-<pid>, with -<n> for the n-th recording of the same process.
int format_name(char* out, size_t size, const RecorderOptions& options, int attempt) {
  char host[64] = "localhost";
  ::gethostname(host, sizeof host - 1);
  for (char& c : host) {
    if (c == '/') c = '_';
  }
  char rank[32] = "";
  if (options.rank >= 0) {
    snprintf(rank, sizeof rank, "rank%lld-", static_cast<long long>(options.rank));
  }
  char again[16] = "";
  if (attempt > 1) snprintf(again, sizeof again, "-%d", attempt);
  return snprintf(out, size, "%s%s-%d%s.tmk", rank, host, static_cast<int>(::getpid()), again);
}

// Tries the requested size, then half of it and so on until the file fits.
bool create_ring(Session& session, const char* path) {
  for (uint32_t mb = session.options.buffer_mb; mb >= kMinBufferMb; mb /= 2) {
    if (session.arena.create(path, uint64_t{mb} << 20)) {
      if (mb < session.options.buffer_mb) {
        complain(said_small_ring,
                 "not enough space for a buffer of %u MB next to %s; recording with %u MB",
                 session.options.buffer_mb, session.trace_path, mb);
      }
      session.options.buffer_mb = mb;
      return true;
    }
    if (!too_large_for_disk(errno)) return false;
  }
  return false;
}

// The ring in another directory, for file systems that are full or that cannot be relied on for a
// shared mapping. The symbolic link tells recovery where the ring is.
bool create_linked_ring(Session& session, const char* directory) {
  char resolved[PATH_MAX];
  if (::realpath(directory, resolved) == nullptr) return false;
  const int length =
      snprintf(session.ring_target, sizeof session.ring_target, "%s/tidemark-%u-%d-%llx.ring",
               resolved, static_cast<unsigned>(::getuid()), static_cast<int>(::getpid()),
               static_cast<unsigned long long>(now_ns()));
  int error = ENAMETOOLONG;
  if (length < static_cast<int>(sizeof session.ring_target)) {
    const bool created = create_ring(session, session.ring_target);
    if (created && ::symlink(session.ring_target, session.ring_path) == 0) return true;
    error = errno;
    if (created) {
      ::unlink(session.ring_target);
      session.arena.unlock();
      session.arena.unmap();
    }
  }
  session.ring_target[0] = '\0';
  errno = error;
  return false;
}

// The host's libraries need /dev/shm, too (NCCL, data loaders), and containers often have only 64
// MiB of it.
bool fits_into_shared_memory(const Session& session) {
  constexpr uint64_t kShare = 8;
  return free_bytes_in(kSharedMemory) / kShare >= uint64_t{session.options.buffer_mb} << 20;
}

// A mapping of a file on a network file system ends the host with SIGBUS when the file is removed
// on another node, or when the server does not answer.
bool create_ring_on_this_node(Session& session) {
  if (fits_into_shared_memory(session) && create_linked_ring(session, kSharedMemory)) return true;
  for (const char* directory : {process_environment("TMPDIR"), "/tmp"}) {
    if (directory == nullptr || *directory == '\0' || on_network_file_system(directory)) continue;
    if (create_linked_ring(session, directory)) return true;
  }
  return false;
}

bool may_be_in_shared_memory(int error) {
  return error != EACCES && error != EROFS && error != EPERM;
}

bool place_ring(Session& session, const char* directory, const char* ring_directory) {
  if (ring_directory != nullptr && *ring_directory != '\0') {
    if (create_linked_ring(session, ring_directory)) return true;
    complain(said_no_ring,
             "cannot create the buffer in %s (TIDEMARK_RING_DIR): %s; recording is off",
             ring_directory, std::strerror(errno));
    return false;
  }
  if (on_network_file_system(directory) && create_ring_on_this_node(session)) return true;
  if (create_ring(session, session.ring_path)) return true;
  const int error = errno;
  if (may_be_in_shared_memory(error) && create_linked_ring(session, kSharedMemory)) return true;
  complain(
      said_no_ring,
      "cannot create the buffer in %s: %s; recording is off. Set TIDEMARK_OUT to a directory on "
      "another file system",
      directory, std::strerror(error));
  return false;
}

bool has_no_file(const char* path) {
  struct stat info {};
  return ::lstat(path, &info) != 0 && errno == ENOENT;
}

// Unused names for both files. A process that called exec() keeps its pid, and so does one that
// records twice.
bool choose_names(Session& session, const char* directory) {
  for (int attempt = 1; attempt < kMostTraces; ++attempt) {
    char name[160];
    format_name(name, sizeof name, session.options, attempt);
    if (snprintf(session.trace_path, sizeof session.trace_path, "%s/%s", directory, name) >=
        static_cast<int>(sizeof session.trace_path)) {
      errno = ENAMETOOLONG;
      return false;
    }
    snprintf(session.ring_path, sizeof session.ring_path, "%s.ring", session.trace_path);
    if (has_no_file(session.trace_path) && has_no_file(session.ring_path)) return true;
  }
  errno = EEXIST;
  return false;
}

bool create_files(Session& session, const char* directory, const char* ring_directory) {
  if (!choose_names(session, directory)) {
    complain(said_no_trace, "cannot create a trace in %s: %s; recording is off", directory,
             std::strerror(errno));
    return false;
  }
  // The ring comes first: a trace without a ring would look finished but damaged.
  if (!place_ring(session, directory, ring_directory)) return false;
  if (session.file.create(session.trace_path)) return true;
  complain(said_no_trace, "cannot create %s: %s; recording is off", session.trace_path,
           std::strerror(errno));
  return false;
}

}  // namespace

Session* create_session(const RecorderOptions& options) noexcept {
  const bool named = options.directory != nullptr && options.directory[0] != '\0';
  const char* const wanted = named ? options.directory : "tidemark-trace";
  char directory[PATH_MAX];
  if (!make_directories(wanted) || ::realpath(wanted, directory) == nullptr) {
    complain(said_no_directory,
             "cannot create the directory %s: %s; recording is off. Set TIDEMARK_OUT to a "
             "directory that you can write to",
             wanted, std::strerror(errno));
    return nullptr;
  }
  void* const memory = map_pages(sizeof(Session));
  if (memory == nullptr) {
    complain(said_no_memory, "not enough host memory; recording is off");
    return nullptr;
  }
  auto* const session = new (memory) Session();
  session->options = options;
  session->options.directory = nullptr;  // owned by the caller
  session->options.ring_directory = nullptr;
  std::snprintf(session->job, sizeof session->job, "%s", options.job != nullptr ? options.job : "");
  session->options.job = session->job;
  session->options.buffer_mb = std::clamp(options.buffer_mb, kMinBufferMb, kMaxBufferMb);
  session->options.drain_period_ms = std::max(options.drain_period_ms, 1U);
  session->options.flush_period_ms = std::max(options.flush_period_ms, 1U);
  if (options.keep_bytes != 0) {
    session->options.keep_bytes = std::max(options.keep_bytes, kLeastKeepBytes);
  }
  if (options.keep_ns != 0) session->options.keep_ns = std::max(options.keep_ns, kLeastKeepNs);
  session->pid = ::getpid();
  if (!session->dictionaries.create()) {
    complain(said_no_memory, "not enough host memory; recording is off");
    free_session(*session);
    return nullptr;
  }
  if (create_files(*session, directory, options.ring_directory)) return session;
  abandon_session(*session);
  return nullptr;
}

void abandon_session(Session& session) noexcept {
  session.file.close();
  // Removes only files that this session created.
  if (session.arena.exists()) {
    ::unlink(session.ring_path);
    if (session.ring_target[0] != '\0') ::unlink(session.ring_target);
    session.arena.unlock();
  }
  if (session.file.exists()) ::unlink(session.trace_path);
  free_session(session);
}

void free_session(Session& session) noexcept {
  session.arena.unmap();
  session.dictionaries.unmap();
  unmap_pages(&session, sizeof session);
}

}  // namespace tidemark::injector
