// The control protocol of processes that have tidemark loaded: the place of the socket, and a
// line-based text protocol.
//
// Every such process listens on a stream socket named <directory>/<pid>.sock, where pid is the
// pid that the process has in its own namespace. The directory is the first of
//
//   $TIDEMARK_CONTROL_DIR      as is; if it cannot be used there is no socket
//   $XDG_RUNTIME_DIR/tidemark  unless it cannot be created
//   /tmp/tidemark-<uid>
//
// A process in $XDG_RUNTIME_DIR also listens in /tmp/tidemark-<uid>: the former is removed when the
// user logs out. A job may run with other variables than the shell that looks for it, so a client
// looks in all three. The directory is accessible to the user only (0700); both ends also get the
// credentials of the peer from the kernel (SO_PEERCRED) and talk to the same user and to root only.
// A socket gets its name by rename() once the server listens on it: a name that refuses connections
// (ECONNREFUSED) was left by a process that was killed. The next process with that pid takes the
// name over. A client removes it if no process has that pid, but never while one has: its server
// may be about to take the name.
//
// Requests and replies are one line each; requests of a connection are answered in order.
//
//   request  VERB key=value key=value …
//   reply    ok key=value key=value …
//            error TEXT                 one sentence for the user
//
// Values are percent-escaped: no byte below 0x21, no '%', no 0x7f and above. Unknown keys are
// ignored; a reply may have more keys than its reader knows.
//
//   status    → v pid state captures command host, and if known
//               rank local_rank world job trace (of the current or the last capture)
//   start     out for_ms wait_ms (until PyTorch's allocator is recorded, too), and every variable
//             TIDEMARK_X in lower case without the prefix: stacks
//             kernels copies nccl torch bridge annotations optimizer python_gil cupti nvml_hz
//             buffer_mb keep seal_above
//             → trace capture
//   stop      → trace rows dropped
//   snapshot  as start, except for_ms
//             → trace rows dropped
//   live      torch=1 (a cached bridge may be loaded to query PyTorch)
//             → time_ns state devices=N, and for each device i from 0: d<i> (its ordinal), and if
//               known d<i>_name d<i>_uuid and, in bytes, d<i>_total d<i>_used d<i>_process;
//               of PyTorch d<i>_allocated d<i>_requested d<i>_reserved d<i>_largest_hole
//               d<i>_retries d<i>_ooms, torch_pinned torch_pinned_in_use; and while it records
//               d<i>_by_<owner> (driver memory, in bytes), d<i>_refusals, d<i>_lows (the least
//               allocated in each of the last steps, separated by commas), steps lost
//               callbacks_ns writer_ns host_bytes pinned uncounted
//   seal      name (else made of the time), together=1 (so do the other ranks of the job)
//             → trace (the sealed file)
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemark::control {

inline constexpr uint64_t kVersion = 1;         // v= of status
inline constexpr size_t kMaxLineBytes = 16384;  // with the line end; longer lines are rejected

inline constexpr std::string_view kStatus = "status";
inline constexpr std::string_view kStart = "start";
inline constexpr std::string_view kStop = "stop";
inline constexpr std::string_view kSnapshot = "snapshot";
inline constexpr std::string_view kLive = "live";
inline constexpr std::string_view kSeal = "seal";

inline constexpr std::string_view kOk = "ok";
inline constexpr std::string_view kError = "error";

// Values of state=.
inline constexpr std::string_view kArmed = "armed";  // loaded, recording nothing
inline constexpr std::string_view kRecording = "recording";
inline constexpr std::string_view kStopping = "stopping";

// ---- places ---------------------------------------------------------------------------------

enum class Place { kVariable, kRuntime, kTemporary };
inline constexpr Place kPlaces[] = {Place::kVariable, Place::kRuntime, Place::kTemporary};

using Lookup = const char* (*)(const char* name);  // getenv

// The directory of that place, without a trailing slash. False if its variable is not set or the
// path is too long.
bool place_path(Place place, Lookup lookup, uid_t user, char* out, size_t size) noexcept;

// Opens the directory (O_PATH); with `make`, creates it first. It must be a directory and no link
// to one, belong to `user` and be writable by that user only. -1 with errno on failure: EPERM for
// one that must not be trusted.
int open_directory(const char* path, bool make, uid_t user) noexcept;

// "<pid>.sock" and back; 0 for any other name.
bool socket_name(pid_t pid, char* out, size_t size) noexcept;
pid_t pid_of_socket(std::string_view name) noexcept;

// The address of a socket in an open directory: <path>/<name>, or /proc/self/fd/<fd>/<name> if that
// is too long for an address. False if `name` is too long even then.
bool socket_address(int directory_fd, const char* path, const char* name, sockaddr_un& out,
                    socklen_t& size) noexcept;

// The process at the other end, as the kernel saw it when the connection was made (or when the
// server began to listen).
struct Peer {
  pid_t pid;
  uid_t user;
};
bool ask_peer(int socket_fd, Peer& out) noexcept;
// Whether to accept requests from this peer, and to send it any.
bool may_talk(const Peer& peer, uid_t user) noexcept;

// ---- lines ----------------------------------------------------------------------------------

// Builds a request or a reply.
class Line {
 public:
  explicit Line(std::string_view word) noexcept { append(word); }

  Line& add(std::string_view key, std::string_view value) noexcept;
  Line& add(std::string_view key, uint64_t value) noexcept;
  // Free text, for errors; line ends become spaces.
  Line& text(std::string_view words) noexcept;

  // False if something did not fit: such keys are left out as a whole.
  bool complete() const noexcept { return complete_; }
  // With its line end.
  std::string_view finish() noexcept;

 private:
  bool append(std::string_view bytes) noexcept;
  bool append_escaped(std::string_view value) noexcept;

  char bytes_[kMaxLineBytes];
  size_t size_ = 0;
  bool complete_ = true;
};

// The verb, or ok and error. Lines are passed without their line end.
std::string_view first_word(std::string_view line) noexcept;
// The text after the first word.
std::string_view rest_of(std::string_view line) noexcept;

// The value of a key, unescaped and zero-terminated. False if there is no such key or `out` is too
// small.
bool find_value(std::string_view line, std::string_view key, char* out, size_t size) noexcept;
// Also false if the value is not a decimal number.
bool find_number(std::string_view line, std::string_view key, uint64_t& out) noexcept;

// Calls visit(key, raw value) for each pair; unescape() makes the value readable.
template <typename Visit>
void each_pair(std::string_view line, Visit&& visit) {
  std::string_view rest = rest_of(line);
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    const std::string_view pair = rest.substr(0, space);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos) visit(pair.substr(0, equals), pair.substr(equals + 1));
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
}

// The number of bytes written before the zero, or SIZE_MAX if `out` is too small. A '%' without two
// hexadecimal digits stands for itself.
size_t unescape(std::string_view value, char* out, size_t size) noexcept;

}  // namespace tidemark::control
