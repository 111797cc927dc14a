// Calls that do not return, as on a card that fell off the bus.
//
// SIMGPU_HANG=LIBRARY[:CALLS], LIBRARY one of nvml, cupti: the first CALLS calls (0 unless given)
// of the functions that talk to the card return, later ones do not.
// SIMGPU_HANG=LIBRARY@FILE: they do not return while FILE exists.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tidemark::simgpu {

// Read when the library is loaded: later the program may be changing its environment. Never freed: a
// call may hang while the process exits.
inline const std::string& g_hang =
    *new std::string(std::getenv("SIMGPU_HANG") ? std::getenv("SIMGPU_HANG") : "");

inline void hang_if_asked(const char* library) {
  static std::atomic<long> calls{0};
  const size_t length = std::strlen(library);
  if (g_hang.compare(0, length, library) != 0) return;
  const char* const rest = g_hang.c_str() + length;
  if (*rest == '@') {
    while (::access(rest + 1, F_OK) == 0) ::usleep(10'000);
    return;
  }
  const long allowed = *rest == ':' ? std::strtol(rest + 1, nullptr, 10) : 0;
  if (calls.fetch_add(1) < allowed) return;
  while (true) ::pause();
}

}  // namespace tidemark::simgpu
