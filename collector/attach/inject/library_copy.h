// Copies the library for a process that does not see the same files: a container.
#pragma once

#include <sys/types.h>

#include <string>

#include "proto/base/result.h"

namespace tidemark::inject {

// Copies the library to /tmp/tidemark-<user>/ in the file system of the process, accessible to its
// user only, unless it is there already. Returns the path as the process sees it.
Result<std::string> copy_library(pid_t pid, uid_t user, const std::string& library);

}  // namespace tidemark::inject
