// Talks to a process that has tidemark loaded (proto/control.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collector/launch/process_environment.h"
#include "proto/base/result.h"

namespace tidemark {

// The key=value pairs after "ok".
class ControlReply {
 public:
  ControlReply() = default;
  explicit ControlReply(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  // "" if there is no such key.
  const std::string& text(const std::string& key) const;
  std::optional<uint64_t> number(const std::string& key) const;

 private:
  std::map<std::string, std::string> values_;
};

using ControlRequest = std::map<std::string, std::string>;

class ControlClient {
 public:
  static constexpr std::chrono::milliseconds kConnectTime{2000};

  // `own_pid`: its pid in its own namespace; `user`: its user. Checks that it is this process that
  // answers. Nothing if no socket of the process accepts connections in that time; `stuck` is then
  // true if it has one, but too many wait for it already.
  static std::optional<ControlClient> connect(pid_t pid, pid_t own_pid, uid_t user,
                                              const ProcessEnvironment& environment,
                                              std::chrono::milliseconds time = kConnectTime,
                                              bool* stuck = nullptr);

  ControlClient(ControlClient&& other) noexcept;
  ControlClient& operator=(ControlClient&& other) noexcept;
  ~ControlClient();

  // Sends a request and returns the reply. Error: the message of the process, or no answer.
  Result<ControlReply> ask(std::string_view verb, const ControlRequest& values = {},
                           std::chrono::milliseconds time = std::chrono::seconds(30));

 private:
  explicit ControlClient(int fd) : fd_(fd) {}
  int fd_ = -1;
  std::string unread_;
};

// Removes the sockets that killed processes of this user have left.
void remove_left_names();

}  // namespace tidemark
