// The library for a process that does not see it where we do: a container.
#pragma once

#include <sys/types.h>

#include <string>

#include "proto/base/result.h"

namespace tidemark::inject {

// Copies the library to /tmp/tidemark-<user>/ in the process's own view of the file system, for its
// user alone. The path as the process sees it. One that lies there already is used.
Result<std::string> copy_library(pid_t pid, uid_t user, const std::string& library);

}  // namespace tidemark::inject
