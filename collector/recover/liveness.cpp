#include "collector/recover/liveness.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace tidemark {

namespace {

// A process of another machine or container cannot be looked up by pid: it counts as dead if its
// writer, which updates the heartbeat about once per second, has been silent for this long.
constexpr int64_t kSilenceNs = 120'000'000'000;

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

uint64_t own_pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool is_silent(const ring::RingHeader& header) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec - header.heartbeat_ns >=
         kSilenceNs;
}

size_t count_threads(const std::string& process) {
  DIR* const tasks = ::opendir((process + "/task").c_str());
  if (tasks == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(tasks);
  return count;
}

bool runs_here(uint32_t pid, uint64_t start_ticks) {
  if (pid == 0 || pid > INT32_MAX) return false;
  const std::string process = "/proc/" + std::to_string(pid);
  const std::string line = read_line(process + "/stat");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {  // gone, or hidden from us
    return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  std::string field;
  fields >> state;  // field 3
  for (int number = 4; number <= 22; ++number) fields >> field;
  if (std::strtoull(field.c_str(), nullptr, 10) != start_ticks)
    return false;  // a later process with the same pid
  // The main thread may have ended while others still run.
  const bool ended = state == "Z" || state == "X";
  return !ended || count_threads(process) > 1;
}

}  // namespace

Liveness check_liveness(int ring_fd, const ring::RingHeader& header, bool asked) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  const bool locked = ::fcntl(ring_fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  // The host name would not do: machines of a cluster may share one.
  if (read_line("/proc/sys/kernel/random/boot_id") != header.boot_id) {
    const bool dead = !locked && asked && is_silent(header);
    return dead ? Liveness::kDead : Liveness::kMayLiveElsewhere;
  }
  if (locked) return Liveness::kMayLive;
  const bool alive = header.pid_namespace == own_pid_namespace()
                         ? runs_here(header.pid, header.process_start_ticks)
                         : !is_silent(header);
  return alive ? Liveness::kMayLive : Liveness::kDead;
}

}  // namespace tidemark
