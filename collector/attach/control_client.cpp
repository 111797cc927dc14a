#include "collector/attach/control_client.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "proto/base/descriptor.h"
#include "proto/control.h"

namespace tidemark {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For control::Lookup, which has no parameter for the environment to use.
thread_local const ProcessEnvironment* t_environment = nullptr;

const char* look_up(const char* name) {
  const std::string& value = t_environment->get(name);
  return value.empty() ? nullptr : value.c_str();
}

const char* look_up_own(const char* name) {
  return std::getenv(name);
}

bool same_files(pid_t pid) {
  struct stat own {};
  struct stat other {};
  const std::string space = "/proc/" + std::to_string(pid) + "/ns/mnt";
  return ::stat("/proc/self/ns/mnt", &own) != 0 || ::stat(space.c_str(), &other) != 0 ||
         own.st_ino == other.st_ino;
}

// Where its socket may be: by its own variables, by ours, and the fallback.
std::vector<std::string> directories(pid_t pid, uid_t user, const ProcessEnvironment& environment) {
  const std::string root = same_files(pid) ? "" : "/proc/" + std::to_string(pid) + "/root";
  std::vector<std::string> found;
  std::set<std::string> seen;
  t_environment = &environment;
  for (const control::Lookup lookup : {look_up, look_up_own}) {
    for (const control::Place place : control::kPlaces) {
      char path[PATH_MAX];
      if (!control::place_path(place, lookup, user, path, sizeof path) || path[0] != '/') continue;
      if (seen.insert(path).second) found.push_back(root + path);
    }
  }
  return found;
}

// Only sockets whose process has ended: a running process takes over the name of its pid.
void remove_left_names_in(const std::string& directory) {
  const Descriptor place(control::open_directory(directory.c_str(), false, ::geteuid()));
  DIR* const names = place.get() >= 0 ? ::opendir(directory.c_str()) : nullptr;
  if (names == nullptr) return;
  while (const dirent* entry = ::readdir(names)) {
    const pid_t pid = control::pid_of_socket(entry->d_name);
    sockaddr_un address;
    socklen_t size = 0;
    if (pid == 0 || ::kill(pid, 0) == 0 || errno != ESRCH ||
        !control::socket_address(place.get(), directory.c_str(), entry->d_name, address, size)) {
      continue;
    }
    // The pid may belong to a process in another container.
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 &&
        errno == ECONNREFUSED) {
      ::unlinkat(place.get(), entry->d_name, 0);
    }
  }
  ::closedir(names);
}

// A process that is stopped accepts nothing: once its queue is full, connect() would block.
void limit_waiting(int fd, milliseconds time) {
  const auto us = std::max<int64_t>(time.count() * 1000, 1000);  // 0 would be no limit
  const timeval limit{us / 1'000'000, us % 1'000'000};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int connect_in(const std::string& directory, pid_t pid, pid_t own_pid, uid_t user,
               milliseconds time, bool* stuck) {
  const Descriptor place(control::open_directory(directory.c_str(), false, user));
  char name[32];
  sockaddr_un address;
  socklen_t size = 0;
  if (place.get() < 0 || !control::socket_name(own_pid, name, sizeof name) ||
      !control::socket_address(place.get(), directory.c_str(), name, address, size)) {
    return -1;
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  limit_waiting(fd, time);
  control::Peer peer{};
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  if (!connected && errno == EAGAIN && stuck != nullptr) *stuck = true;
  if (connected && control::ask_peer(fd, peer) && control::may_talk(peer, user) &&
      peer.pid == pid) {
    return fd;
  }
  ::close(fd);
  return -1;
}

std::string unescaped(std::string_view value) {
  std::string text(value.size() + 1, '\0');
  const size_t length = control::unescape(value, text.data(), text.size());
  text.resize(length <= value.size() ? length : 0);
  return text;
}

Result<ControlReply> parse(std::string_view line) {
  if (control::first_word(line) != control::kOk) {
    const std::string_view words = control::rest_of(line);
    return Error{words.empty() ? "sent a reply that is not understood" : std::string(words)};
  }
  std::map<std::string, std::string> values;
  control::each_pair(line, [&](std::string_view key, std::string_view value) {
    values[std::string(key)] = unescaped(value);
  });
  return ControlReply(std::move(values));
}

}  // namespace

const std::string& ControlReply::text(const std::string& key) const {
  static const std::string kNone;
  const auto found = values_.find(key);
  return found != values_.end() ? found->second : kNone;
}

std::optional<uint64_t> ControlReply::number(const std::string& key) const {
  const std::string& value = text(key);
  uint64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (value.empty() || error != std::errc() || end != value.data() + value.size()) return {};
  return parsed;
}

std::optional<ControlClient> ControlClient::connect(pid_t pid, pid_t own_pid, uid_t user,
                                                    const ProcessEnvironment& environment,
                                                    milliseconds time, bool* stuck) {
  if (stuck != nullptr) *stuck = false;
  for (const std::string& directory : directories(pid, user, environment)) {
    if (const int fd = connect_in(directory, pid, own_pid, user, time, stuck); fd >= 0) {
      return ControlClient(fd);
    }
    if (stuck != nullptr && *stuck) break;  // its other sockets wait in the same thread
  }
  return std::nullopt;
}

void remove_left_names() {
  for (const control::Place place : control::kPlaces) {
    char path[PATH_MAX];
    if (!control::place_path(place, look_up_own, ::geteuid(), path, sizeof path)) continue;
    remove_left_names_in(path);
  }
}

ControlClient::ControlClient(ControlClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), unread_(std::move(other.unread_)) {}

ControlClient& ControlClient::operator=(ControlClient&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(unread_, other.unread_);
  return *this;
}

ControlClient::~ControlClient() {
  if (fd_ >= 0) ::close(fd_);
}

Result<ControlReply> ControlClient::ask(std::string_view verb, const ControlRequest& values,
                                        std::chrono::milliseconds time) {
  control::Line request(verb);
  for (const auto& [key, value] : values) request.add(key, value);
  if (!request.complete()) return Error{"the request is too long"};
  const std::string_view bytes = request.finish();
  if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return Error{"has ended"};
  }
  const auto deadline = Clock::now() + time;
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return parse(line);
    }
    if (unread_.size() > control::kMaxLineBytes) return Error{"sent a reply that is too long"};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{fd_, POLLIN, 0};
    const int got = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{"does not answer"};
    char piece[4096];
    const ssize_t size = ::recv(fd_, piece, sizeof piece, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error{"has ended"};
    unread_.append(piece, static_cast<size_t>(size));
  }
}

}  // namespace tidemark
