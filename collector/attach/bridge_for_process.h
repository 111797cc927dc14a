// Builds the bridge to PyTorch for a running process, before it is recorded.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace tidemark {

// Builds it for the torch that the process has loaded, in the cache where the process looks for it,
// and as its user. Does nothing if the process has no torch, wants no bridge, sees other files than
// this process (a container: its injector compiles the bridge), or if the bridge exists already.
// Calls `announce` with the version of torch before a compiler runs. The injector reports failures.
void prepare_bridge_for(pid_t pid, uid_t user,
                        const std::function<void(const std::string&)>& announce);

}  // namespace tidemark
