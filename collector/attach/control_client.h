// Talks to a process that tidemark is loaded in (proto/control.h).
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

// What came after "ok".
class ControlReply {
 public:
  ControlReply() = default;
  explicit ControlReply(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  // "" when the key is not there.
  const std::string& text(const std::string& key) const;
  std::optional<uint64_t> number(const std::string& key) const;

 private:
  std::map<std::string, std::string> values_;
};

using ControlRequest = std::map<std::string, std::string>;

class ControlClient {
 public:
  // `user`: who the process runs as; the one who answers must be that process. Nothing: it has no
  // socket that anybody listens at.
  static std::optional<ControlClient> connect(pid_t pid, pid_t own_pid, uid_t user,
                                              const ProcessEnvironment& environment);

  ControlClient(ControlClient&& other) noexcept;
  ControlClient& operator=(ControlClient&& other) noexcept;
  ~ControlClient();

  // One request and its reply. An Error is what the process said, or that it did not answer.
  Result<ControlReply> ask(std::string_view verb, const ControlRequest& values = {},
                           std::chrono::milliseconds time = std::chrono::seconds(30));

 private:
  explicit ControlClient(int fd) : fd_(fd) {}
  int fd_ = -1;
  std::string unread_;
};

// Removes the names that killed processes of this user have left where sockets lie.
void remove_left_names();

}  // namespace tidemark
