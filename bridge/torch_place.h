// Where a torch is installed and what a program compiled against it needs.
#pragma once

#include <limits.h>

#include <cstdint>

namespace tidemark::bridge {

struct TorchPlace {
  char directory[PATH_MAX] = {};  // …/site-packages/torch
  char version[64] = {};
  uint64_t identity = 0;  // changes when the installed files change
};

// What only a compiler needs to know: it takes a look into torch's library and at many folders.
struct CompileFacts {
  char cuda_include[PATH_MAX] = {};  // a folder with cuda_runtime_api.h; "" when there is none
  bool cxx11_abi = true;
};
void find_compile_facts(const TorchPlace& place, CompileFacts& facts) noexcept;

// False with a reason when the path is not that of an installed torch with its headers.
bool find_torch(const char* libc10_cuda, TorchPlace& place, char* reason,
                unsigned long reason_size) noexcept;

// FNV-1a, continued from `hash`.
uint64_t mix_bytes(uint64_t hash, const void* data, unsigned long size) noexcept;

}  // namespace tidemark::bridge
