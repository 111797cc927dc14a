#include "injector/control/server.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "injector/control/verbs.h"
#include "injector/process/complain.h"
#include "injector/process/file_system.h"
#include "injector/process/options.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/recorder.h"
#include "proto/control.h"

namespace tidemark::injector {
namespace {

// Starting a capture runs CUPTI and the loader on this stack. Smaller than a huge page, which the
// system might otherwise use for it.
constexpr size_t kStackBytes = 1 << 20;
constexpr size_t kMaxListeners = 2;
constexpr size_t kMaxClients = 8;
constexpr int kAcceptPauseMs = 500;
constexpr int kReplyTimeoutMs = 2000;

// A descriptor that the host may have closed and reused for something of its own.
struct OwnSocket {
  int fd = -1;
  uint64_t inode = 0;

  // Moved to a number that the host does not expect for a file of its own.
  void take(int opened) noexcept {
    struct stat info {};
    fd = move_descriptor_up(opened);
    inode = ::fstat(fd, &info) == 0 ? info.st_ino : 0;
  }
  bool ours() const noexcept {
    struct stat info {};
    return fd >= 0 && ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == inode;
  }
  void close() noexcept {
    if (ours()) ::close(fd);
    fd = -1;
  }
};

struct Client {
  OwnSocket socket;
  size_t size = 0;
  char line[control::kMaxLineBytes];
};

struct Listener {
  OwnSocket socket;
  char path[PATH_MAX + 40] = "";
  std::atomic<bool> named{false};  // `path` is complete, and is the name of a socket

  void set_name(const char* directory, const char* name) noexcept {
    named.store(false);
    std::snprintf(path, sizeof path, "%s/%s", directory, name);
    named.store(true);
  }
};

// Used by the control thread only, except that a forked child and the exit handler close it.
struct Server {
  Listener listeners[kMaxListeners];
  Client clients[kMaxClients];
  bool cannot_accept = false;  // the process has no descriptor left
};
Server g_server;
std::atomic<int> g_running_in{0};  // pid
std::atomic_flag g_said_no_socket;

void in_forked_child() {
  const int host_errno = errno;
  for (Listener& listener : g_server.listeners) {
    listener.socket.close();
    listener.named.store(false);
  }
  for (Client& client : g_server.clients) client.socket.close();
  g_running_in.store(0);
  errno = host_errno;
}

void at_exit() {
  if (g_running_in.load() != ::getpid()) return;
  for (const Listener& listener : g_server.listeners) {
    if (listener.named.load()) ::unlink(listener.path);
  }
}

void prepare_process() {
  static bool prepared = false;
  if (prepared) return;
  prepared = true;
  pthread_atfork(nullptr, nullptr, in_forked_child);
  std::atexit(at_exit);
}

// A socket file that nobody listens on was left by an earlier process with the same pid.
bool is_taken(const sockaddr_un& address, socklen_t size) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;
  const bool free = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), size) != 0 &&
                    (errno == ECONNREFUSED || errno == ENOENT);
  ::close(probe);
  return !free;
}

int listen_at(int directory, const char* path, const char* name) {
  sockaddr_un address;
  socklen_t size = 0;
  if (!control::socket_address(directory, path, name, address, size)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 && ::listen(fd, 16) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// The socket gets its name once it listens: between bind() and listen() it would look like one that
// was left behind, and be removed. The new name replaces a stale one.
bool bind_in(int directory, const char* path, Listener& listener) {
  char name[32];
  char early[64];
  sockaddr_un address;
  socklen_t size = 0;
  std::snprintf(early, sizeof early, "%d-%llx.new", static_cast<int>(::getpid()),
                static_cast<unsigned long long>(now_ns()));
  if (!control::socket_name(::getpid(), name, sizeof name) ||
      !control::socket_address(directory, path, name, address, size)) {
    errno = ENAMETOOLONG;
    return false;
  }
  if (is_taken(address, size)) {
    errno = EADDRINUSE;
    return false;
  }
  const int fd = listen_at(directory, path, early);
  if (fd < 0) return false;
  if (::renameat(directory, early, directory, name) == 0) {
    listener.set_name(path, name);
    listener.socket.take(fd);
    return true;
  }
  const int error = errno;
  ::unlinkat(directory, early, 0);
  ::close(fd);
  errno = error;
  return false;
}

bool open_in(control::Place place, char (&path)[PATH_MAX], Listener& listener) {
  const uid_t user = ::geteuid();
  errno = 0;
  if (!control::place_path(place, process_environment, user, path, sizeof path)) return false;
  const int directory = control::open_directory(path, true, user);
  if (directory < 0) return false;
  const bool open = bind_in(directory, path, listener);
  const int error = errno;
  ::close(directory);
  errno = error;
  return open;
}

// False with errno, which is 0 if that place does not exist.
bool open_patiently(control::Place place, char (&path)[PATH_MAX], Listener& listener) {
  bool open = open_in(place, path, listener);
  // Retry: the program may close all descriptors while this one is being created.
  for (int more = 3; !open && errno != 0 && more > 0; --more) open = open_in(place, path, listener);
  return open;
}

bool open_listeners() {
  char path[PATH_MAX];
  for (const control::Place place : control::kPlaces) {
    if (open_patiently(place, path, g_server.listeners[0])) {
      // The runtime directory is removed when the user logs out, even if the job goes on.
      if (place == control::Place::kRuntime) {
        open_patiently(control::Place::kTemporary, path, g_server.listeners[1]);
      }
      return true;
    }
    // A directory set by the user is not replaced by another one.
    const bool set_by_user = place == control::Place::kVariable && errno != 0;
    if (!set_by_user && place != control::Place::kTemporary) continue;
    complain(g_said_no_socket,
             "cannot open a control socket in %s: %s; 'tidemark attach' cannot reach this process",
             path,
             errno == EPERM ? "only its owner may have write access to this directory"
                            : std::strerror(errno));
    return false;
  }
  return false;
}

// ---- clients --------------------------------------------------------------------------------

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    pollfd ready{fd, POLLOUT, 0};
    if (n < 0 && errno == EAGAIN && ::poll(&ready, 1, kReplyTimeoutMs) > 0) continue;
    return false;
  }
  return true;
}

void accept_client(const Listener& listener) {
  const int fd = ::accept4(listener.socket.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // The connection stays in the queue, and poll() would report it at once again.
    g_server.cannot_accept =
        errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return;
  }
  control::Peer peer{};
  if (control::ask_peer(fd, peer) && control::may_talk(peer, ::geteuid())) {
    for (Client& client : g_server.clients) {
      if (client.socket.fd >= 0) continue;
      client.size = 0;
      client.socket.take(fd);
      return;
    }
    send_all(fd, "error too many clients are connected to this process\n");
  } else {
    send_all(fd, "error only root and the user of this process may control it\n");
  }
  ::close(fd);
}

// Handles complete lines in the order they arrive. False: the client has disconnected or sent
// garbage.
bool serve(Client& client) {
  const ssize_t n =
      ::recv(client.socket.fd, client.line + client.size, sizeof client.line - client.size, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  client.size += static_cast<size_t>(n);
  while (true) {
    const std::string_view received(client.line, client.size);
    const size_t end = received.find('\n');
    if (end == std::string_view::npos) break;
    static control::Line reply(control::kOk);  // too large for the stack; only one thread uses it
    answer(received.substr(0, end), reply);
    if (!send_all(client.socket.fd, reply.finish())) return false;
    client.size -= end + 1;
    std::memmove(client.line, client.line + end + 1, client.size);
  }
  return client.size < sizeof client.line;
}

int poll_timeout_ms(bool paused) {
  const int due = ms_until_due();
  return paused && (due < 0 || due > kAcceptPauseMs) ? kAcceptPauseMs : due;
}

// False: the host has closed our socket.
bool serve_round() {
  pollfd waits[kMaxListeners + kMaxClients];
  pollfd* const client_waits = waits + kMaxListeners;
  const bool paused = std::exchange(g_server.cannot_accept, false);
  for (size_t i = 0; i < kMaxListeners; ++i) {
    waits[i] = {paused ? -1 : g_server.listeners[i].socket.fd, POLLIN, 0};
  }
  for (size_t i = 0; i < kMaxClients; ++i) {
    client_waits[i] = {g_server.clients[i].socket.fd, POLLIN, 0};
  }
  const int ready = ::poll(waits, kMaxListeners + kMaxClients, poll_timeout_ms(paused));
  act_when_due();
  if (ready <= 0) return true;
  for (size_t i = 0; i < kMaxListeners; ++i) {
    if ((waits[i].revents & POLLNVAL) != 0) return false;
  }
  for (size_t i = 0; i < kMaxClients; ++i) {
    Client& client = g_server.clients[i];
    if (client_waits[i].revents == 0 || client.socket.fd != client_waits[i].fd) continue;
    if (!client.socket.ours() || !serve(client)) client.socket.close();
  }
  for (size_t i = 0; i < kMaxListeners; ++i) {
    if (waits[i].revents == 0) continue;
    if (!g_server.listeners[i].socket.ours()) return false;
    accept_client(g_server.listeners[i]);
  }
  return true;
}

void* run(void*) {
  pthread_setname_np(pthread_self(), "tidemark-ctl");
  prepare_process();
  if (open_listeners()) {
    while (serve_round()) {
    }
    for (Listener& listener : g_server.listeners) listener.socket.close();
  }
  g_running_in.store(0);
  return nullptr;
}

}  // namespace

bool start_control_server() noexcept {
  const int pid = ::getpid();
  int running = g_running_in.load();
  if (running == pid) return true;
  if (!g_running_in.compare_exchange_strong(running, pid)) return true;
  const SignalShield inherited;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, run, nullptr);
  // A host with a lot of static thread-local storage needs more: use the default.
  if (error == EINVAL) error = pthread_create(&thread, nullptr, run, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) g_running_in.store(0);
  return error == 0;
}

}  // namespace tidemark::injector
