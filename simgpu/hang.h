// Calls that never return, as on a card that fell off the bus.
//
// SIMGPU_HANG=LIBRARY[:CALLS], LIBRARY one of nvml, cupti: the first CALLS calls (0 unless given)
// of the functions that talk to the card return, later ones do not.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tidemark::simgpu {

inline void hang_if_asked(const char* library) {
  static std::atomic<long> calls{0};
  const char* const text = std::getenv("SIMGPU_HANG");
  const size_t length = std::strlen(library);
  if (text == nullptr || std::strncmp(text, library, length) != 0) return;
  const long allowed = text[length] == ':' ? std::strtol(text + length + 1, nullptr, 10) : 0;
  if (calls.fetch_add(1) < allowed) return;
  while (true) ::pause();
}

}  // namespace tidemark::simgpu
