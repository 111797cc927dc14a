// How one talks to a process that tidemark is loaded in: where its socket lies, and what is said.
//
// Every such process listens on a stream socket named <directory>/<pid>.sock, where pid is the
// process's own view of itself. The directory is the first that is named by
//
//   $TIDEMARK_CONTROL_DIR      as it is; when it cannot be used there is no socket
//   $XDG_RUNTIME_DIR/tidemark  unless it cannot be made
//   /tmp/tidemark-<uid>
//
// A job may have been given other variables than the shell that looks for it: a client looks in all
// places. The directory belongs to the user alone (0700); both ends also ask the kernel who the
// other one is (SO_PEERCRED) and talk to the same user and to root only. A socket has its name from
// the moment that somebody listens at it, by rename(): a name that nobody listens behind
// (ECONNREFUSED) was left by a process that was killed. The next process of that number takes it
// over, and a client removes it when no such process exists; never while one does, whose server
// might be about to take the name.
//
// A request is a line, and so is its reply; requests of a connection are answered in their order.
//
//   request  VERB key=value key=value …
//   reply    ok key=value key=value …
//            error TEXT                 one sentence for people
//
// Values are percent-escaped: no byte below 0x21, no '%', no 0x7f and above. Keys that are not
// known are passed over; a reply may have more keys than its reader knows.
//
//   status    → v pid state captures command host, and as far as they are known
//               rank local_rank world job trace (of the present or the last capture)
//   start     out for_ms, and every variable TIDEMARK_X in small letters without the prefix: stacks
//             kernels copies nccl torch bridge annotations optimizer python_gil cupti nvml_hz
//             buffer_mb
//             → trace capture
//   stop      → trace rows dropped
//   snapshot  as start, but for_ms
//             → trace rows dropped
//   live      torch=1 (a bridge in the cache may be loaded to ask PyTorch)
//             → time_ns state devices=N, and for each device i from 0: d<i> (its ordinal), and as
//               far as they are known d<i>_name d<i>_total d<i>_used d<i>_process d<i>_allocated
//               d<i>_reserved, in bytes
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemark::control {

inline constexpr uint64_t kVersion = 1;         // v= of status
inline constexpr size_t kMaxLineBytes = 16384;  // with its end; longer lines are refused

inline constexpr std::string_view kStatus = "status";
inline constexpr std::string_view kStart = "start";
inline constexpr std::string_view kStop = "stop";
inline constexpr std::string_view kSnapshot = "snapshot";
inline constexpr std::string_view kLive = "live";

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

// The directory of that place, with no slash at its end. False when its variable is not set or it
// is too long.
bool place_path(Place place, Lookup lookup, uid_t user, char* out, size_t size) noexcept;

// Opens the directory (O_PATH) after looking whether it is one, not a link to one, of `user`, and
// writable by that user alone; makes it first if asked to. -1 with errno: EPERM for one that must
// not be trusted.
int open_directory(const char* path, bool make, uid_t user) noexcept;

// "<pid>.sock" and back; 0 for any other name.
bool socket_name(pid_t pid, char* out, size_t size) noexcept;
pid_t pid_of_socket(std::string_view name) noexcept;

// The address of a socket in an open directory: <path>/<name>, or /proc/self/fd/<fd>/<name> where
// that is too long for an address. False when `name` is too long even so.
bool socket_address(int directory_fd, const char* path, const char* name, sockaddr_un& out,
                    socklen_t& size) noexcept;

// Who is at the other end, as the kernel saw it when the connection was made (or when the server
// began to listen).
struct Peer {
  pid_t pid;
  uid_t user;
};
bool ask_peer(int socket_fd, Peer& out) noexcept;
// Whether a peer may ask, or be asked.
bool may_talk(const Peer& peer, uid_t user) noexcept;

// ---- lines ----------------------------------------------------------------------------------

// A request or a reply in the making.
class Line {
 public:
  explicit Line(std::string_view word) noexcept { append(word); }

  Line& add(std::string_view key, std::string_view value) noexcept;
  Line& add(std::string_view key, uint64_t value) noexcept;
  // Free text, for errors; line ends become spaces.
  Line& text(std::string_view words) noexcept;

  // What does not fit any more is left out, whole keys at a time.
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

// The verb, or ok and error. Lines are given without their end.
std::string_view first_word(std::string_view line) noexcept;
// What stands behind the first word.
std::string_view rest_of(std::string_view line) noexcept;

// The value of a key, unescaped and with a zero behind it. False when there is no such key or no
// room.
bool find_value(std::string_view line, std::string_view key, char* out, size_t size) noexcept;
// False too when the value is not a decimal number.
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

// The number of bytes written before the zero, or SIZE_MAX when there is no room. A '%' without two
// hexadecimal digits stands for itself.
size_t unescape(std::string_view value, char* out, size_t size) noexcept;

}  // namespace tidemark::control
