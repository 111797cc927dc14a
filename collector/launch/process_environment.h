// The environment that another process was started with, and what it says of its place in a job.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace tidemark {

class ProcessEnvironment {
 public:
  // Empty when it may not be read.
  explicit ProcessEnvironment(pid_t pid);
  explicit ProcessEnvironment(std::map<std::string, std::string> values)
      : values_(std::move(values)) {}

  // "" when it is not set.
  const std::string& get(const std::string& name) const;
  // -1: not part of a ranked job. As the injector finds it.
  int64_t rank() const;
  // The name that the ranks of one job share; "" when there is none.
  std::string job() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace tidemark
