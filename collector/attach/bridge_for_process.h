// Makes the bridge to PyTorch ready for a process that runs already, before it is recorded.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace tidemark {

// For the torch that the process has loaded, in the cache where the process looks for it, and as
// its user. Does nothing when it has no torch, wants no bridge, sees other files than this process
// does (a container: it compiles by itself), or its bridge is there already. `announce` is called
// with torch's version before a compiler runs. A failure is left to the injector to report.
void prepare_bridge_for(pid_t pid, uid_t user,
                        const std::function<void(const std::string&)>& announce);

}  // namespace tidemark
