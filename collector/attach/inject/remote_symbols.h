// Finds a function of a loaded library in another process.
//
// Read from the memory of the process and not from the file: the file may be in another mount
// namespace or have been replaced since, and the mapped code is what will be called.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/remote_memory.h"

namespace tidemark::inject {

// 0 if it has no function of that name, or is not a readable shared object.
uint64_t find_symbol(const RemoteMemory& memory, const MappedFile& library, std::string_view name);

// In any of glibc's libraries: up to 2.33 dlopen and threads were in separate libraries.
uint64_t find_libc_symbol(const RemoteMemory& memory, const std::vector<MappedFile>& files,
                          std::string_view name);

}  // namespace tidemark::inject
