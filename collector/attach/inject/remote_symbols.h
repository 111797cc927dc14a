// Where a function of a loaded library lies in another process.
//
// Read from the process's memory and not from the file: the file may lie in another mount namespace
// or have been replaced since, and what is mapped is what would be called.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/remote_memory.h"

namespace tidemark::inject {

// 0: it has none of that name, or is no shared object that can be read.
uint64_t find_symbol(const RemoteMemory& memory, const MappedFile& library, std::string_view name);

// In any of glibc's libraries: until 2.33 dlopen and threads had libraries of their own.
uint64_t find_libc_symbol(const RemoteMemory& memory, const std::vector<MappedFile>& files,
                          std::string_view name);

}  // namespace tidemark::inject
