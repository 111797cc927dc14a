// Redirects the calls that one shared object makes to a function of another.
//
// Such calls go through a slot in the caller's global offset table; changing the slot changes where
// they go, for that caller alone and with one store of a pointer, whatever other threads do.
#pragma once

#include <cstdint>

namespace tidemark::injector {

struct GotSlot {
  void** address = nullptr;
  bool read_only = false;  // the loader protected its page when it was done (RELRO)
};

// The slot of `symbol` in the loaded object whose file name is `library` ("libc10_cuda.so").
bool find_got_slot(const char* library, const char* symbol, GotSlot& slot) noexcept;

bool write_got_slot(const GotSlot& slot, void* target) noexcept;

// Where the loader found the object; false when it is not loaded. `path` has room for PATH_MAX.
bool loaded_path(const char* library, char* path, unsigned long size) noexcept;

}  // namespace tidemark::injector
