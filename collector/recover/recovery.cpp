#include "collector/recover/recovery.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "collector/recover/liveness.h"
#include "collector/recover/ring_reader.h"
#include "collector/recover/trace_tail.h"
#include "proto/base/descriptor.h"
#include "proto/base/file_io.h"
#include "proto/frame.h"

namespace tidemark {

namespace {

constexpr auto kLockPatience = std::chrono::seconds(10);
constexpr auto kLockPause = std::chrono::milliseconds(50);

Error error_of(const std::string& path) {
  return Error{path + ": " + std::strerror(errno)};
}

// A ring may be elsewhere on the node that recorded it, with a link next to the trace. Other links
// are not followed: a trace directory created by another user must not lead to our files.
std::string place_of(const std::string& ring) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(ring, error);
  if (error || !target.is_absolute()) return ring;
  const std::string name = target.filename().string();
  if (!name.starts_with("tidemark-") || !name.ends_with(ring::kSuffix)) return ring;
  struct stat link {};
  struct stat file {};
  const bool others = ::lstat(ring.c_str(), &link) == 0 && ::lstat(target.c_str(), &file) == 0 &&
                      link.st_uid != file.st_uid;
  return others ? ring : target.string();
}

bool lock_for_recovery(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLockPause);
  }
  return true;
}

bool still_has_name(int fd, const std::string& path) {
  struct stat here {};
  struct stat there {};
  return ::fstat(fd, &here) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

void sync_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const Descriptor directory(
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

uint32_t generation_of(const std::string& path) {
  FileHeader header;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  return file.get() >= 0 && read_at(file.get(), 0, &header, sizeof header) ? header.generation : 0;
}

// A process that keeps a limited window may have been killed while it replaced its trace: either
// the shorter file was not complete, or it counts already but does not have its name yet.
Status choose_file(const RingReader& ring, const std::string& path) {
  const std::string next = path + std::string(ring::kNextSuffix);
  struct stat info {};
  if (::lstat(next.c_str(), &info) != 0) return {};
  const uint32_t counted = ring.checkpoint().generation;
  const bool counts = counted != 0 && generation_of(next) == counted;
  if ((counts ? ::rename(next.c_str(), path.c_str()) : ::unlink(next.c_str())) != 0) {
    return error_of(next);
  }
  return {};
}

Status move_records(RingReader& ring, RecoveryReport& report) {
  if (Status status = choose_file(ring, report.path); !status) return status.error();
  const Descriptor file(
      ::open(report.path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return error_of(report.path);
  if (!S_ISREG(info.st_mode)) return Error{report.path + ": not a regular file"};
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t counted = ring.checkpoint().file_bytes;
  report.cut_bytes = size - std::min(size, counted);
  report.missing_bytes = counted - std::min(size, counted);
  return append_ring(file.get(), std::min(size, counted), ring, report);
}

// Removes the trace of a process that died before it recorded anything: at most a file header.
void remove_empty_trace(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<uint64_t>(info.st_size) <= sizeof(FileHeader)) {
    ::unlink(path.c_str());
  }
}

// Says so in the report.
bool may_be_alive(int fd, const ring::RingHeader& header, RecoveryBy by, RecoveryReport& report) {
  switch (check_liveness(fd, header, by == RecoveryBy::kUser)) {
    case Liveness::kDead:
      return false;
    case Liveness::kMayLive:
      report.outcome = RecoveryOutcome::kStillRunning;
      break;
    case Liveness::kMayLiveElsewhere:
      report.outcome = RecoveryOutcome::kElsewhere;
      report.host.assign(header.host, ::strnlen(header.host, sizeof header.host));
      break;
  }
  return true;
}

Result<RecoveryReport> recover_locked(int fd, const std::string& ring_path,
                                      const std::string& place, RecoveryBy by,
                                      RecoveryReport report) {
  Result<RingReader> ring = RingReader::open(fd, ring_path);
  if (!ring) return ring.error();
  if (may_be_alive(fd, ring->header(), by, report)) return report;
  if (ring->live()) {
    if (Status status = move_records(*ring, report); !status) return status.error();
  } else {
    remove_empty_trace(report.path);
  }
  sync_directory(ring_path);
  if (::unlink(ring_path.c_str()) != 0) return error_of(ring_path);
  if (place != ring_path) ::unlink(place.c_str());
  report.outcome = RecoveryOutcome::kRecovered;
  return report;
}

}  // namespace

Result<RecoveryReport> recover_file(const std::string& path, RecoveryBy by) {
  RecoveryReport report;
  report.path =
      path.ends_with(ring::kSuffix) ? path.substr(0, path.size() - ring::kSuffix.size()) : path;
  const std::string ring_path = report.path + std::string(ring::kSuffix);
  const std::string place = place_of(ring_path);
  const Descriptor ring(::open(place.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (ring.get() < 0) {
    if (errno == ENOENT && place == ring_path) return report;
    if (errno == ENOENT) {  // only the node that recorded it can tell
      report.outcome = RecoveryOutcome::kRingElsewhere;
      return report;
    }
    return error_of(place);
  }
  struct stat info {};
  if (::fstat(ring.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{place + ": not a regular file"};
  }
  // Also checked before waiting for the lock: on NFS the lock of the writer would block us.
  if (const Result<RingReader> look = RingReader::open(ring.get(), ring_path);
      look && may_be_alive(ring.get(), look->header(), by, report)) {
    return report;
  }
  if (!lock_for_recovery(ring.get())) {
    report.outcome = RecoveryOutcome::kBusy;
    return report;
  }
  if (!still_has_name(ring.get(), place)) return report;
  return recover_locked(ring.get(), ring_path, place, by, std::move(report));
}

Result<DirectoryRecovery> recover_directory(const std::string& directory, RecoveryBy by) {
  std::error_code error;
  std::vector<std::string> rings;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().string().ends_with(".tmk.ring")) rings.push_back(it->path().string());
  }
  if (error) return Error{directory + ": " + error.message()};
  std::sort(rings.begin(), rings.end());
  DirectoryRecovery all;
  for (const std::string& ring : rings) {
    Result<RecoveryReport> report = recover_file(ring, by);
    if (report) {
      all.files.push_back(std::move(*report));
    } else {
      all.failures.push_back(report.error());
    }
  }
  return all;
}

}  // namespace tidemark
