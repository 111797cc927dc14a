// Survives the loss of a mapped file.
//
// The ring is a shared mapping of a file: so its records survive SIGKILL. But if the file becomes
// shorter (somebody truncates it) or cannot be read any more, the kernel answers the next access
// with SIGBUS, whose default action ends the host. A mapping that cannot shrink would be a sealed
// memfd, which disappears together with the process and is of no use to recovery. So, while a
// mapping is guarded, tidemark handles SIGBUS: the lost mapping is replaced by empty memory at the
// same addresses, a flag is set, and the thread continues. Any other SIGBUS has the effect that it
// would have had without us.
//
// Not covered: a host that installs a handler of its own later, and threads that block SIGBUS,
// which the kernel then ends the process for. The threads of tidemark do not block it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::injector {

// `lost` is set before the thread that met the fault continues. False: too many mappings; then it
// is not guarded.
bool guard_mapping(void* base, uint64_t bytes, std::atomic<bool>& lost) noexcept;
// Call before the mapping is removed.
void unguard_mapping(const void* base) noexcept;

}  // namespace tidemark::injector
