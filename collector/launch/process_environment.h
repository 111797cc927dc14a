// The environment that another process was started with, and its rank and job according to it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "bridge/environment.h"

namespace tidemark {

class ProcessEnvironment {
 public:
  // Empty if it cannot be read.
  explicit ProcessEnvironment(pid_t pid);
  explicit ProcessEnvironment(std::map<std::string, std::string> values)
      : values_(std::move(values)) {}

  // "" if it is not set.
  const std::string& get(const std::string& name) const;
  // -1: not part of a ranked job. Uses the same rules as the injector.
  int64_t rank() const;
  // The name that the ranks of one job share; "" if there is none.
  std::string job() const;

 private:
  std::map<std::string, std::string> values_;
};

// The variables of this process, which no other thread changes.
bridge::Environment own_environment();

}  // namespace tidemark
