// Where torch is installed, and what is needed to compile against it.
#pragma once

#include <limits.h>

#include <cstdint>

#include "bridge/environment.h"

namespace tidemark::bridge {

struct TorchPlace {
  char directory[PATH_MAX] = {};  // …/site-packages/torch
  char version[64] = {};
  uint64_t identity = 0;  // changes when the installed files change
};

// Facts needed only to compile. Finding them takes a scan of a library and of many folders.
struct CompileFacts {
  char cuda_include[PATH_MAX] = {};  // a folder with cuda_runtime_api.h; "" when there is none
  bool cxx11_abi = true;
};
void find_compile_facts(const Environment& environment, const TorchPlace& place,
                        CompileFacts& facts) noexcept;

// The folder of the torch package that has this library, whose path is resolved. False if there is
// none.
bool find_torch_folder(const char* library, char (&folder)[PATH_MAX]) noexcept;

// False with a reason if the path does not belong to an installed torch with headers.
bool find_torch(const char* libc10_cuda, TorchPlace& place, char* reason,
                unsigned long reason_size) noexcept;

// FNV-1a, continued from `hash`.
inline constexpr uint64_t kHashBegin = 0xcbf29ce484222325;
uint64_t mix_bytes(uint64_t hash, const void* data, unsigned long size) noexcept;

}  // namespace tidemark::bridge
