// Redirects the calls that one shared object makes to a function of another.
//
// Such calls go through a slot in the caller's global offset table. Changing the slot redirects
// them, for that caller only and with a single pointer store, whatever other threads do.
#pragma once

#include <cstdint>

namespace tidemark::injector {

struct GotSlot {
  void** address = nullptr;
  bool read_only = false;  // on a page that the loader made read-only (RELRO)
};

// The slot of `symbol` in the loaded object whose file name is `library` ("libc10_cuda.so"), with
// or without a version.
bool find_got_slot(const char* library, const char* symbol, GotSlot& slot) noexcept;

bool write_got_slot(const GotSlot& slot, void* target) noexcept;

// The path of the loaded object; false if it is not loaded. `path` has space for PATH_MAX.
bool loaded_path(const char* library, char* path, unsigned long size) noexcept;

// Whether an object whose file name begins like this is loaded.
bool is_loaded(const char* beginning) noexcept;

}  // namespace tidemark::injector
