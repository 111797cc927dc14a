// Calls that never return, as on a card that fell off the bus.
//
// SIMGPU_HANG=WHAT[:CALLS]: the first CALLS calls (0 unless given) return, later ones do not.
//
//   nvml       reading the memory of a card
//   cupti      cuptiActivityFlushAll
//   subscribe  cuptiSubscribe, cuptiSubscribe_v2
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "simgpu/environment.h"

namespace tidemark::simgpu {

// One for each thing that can hang; constructed at its first call.
class Hang {
 public:
  Hang(const char* what, Lookup lookup) {
    const char* const text = lookup("SIMGPU_HANG");
    const size_t length = std::strlen(what);
    if (text == nullptr || std::strncmp(text, what, length) != 0) return;
    if (text[length] != ':' && text[length] != '\0') return;
    asked_ = true;
    allowed_ = text[length] == ':' ? std::strtol(text + length + 1, nullptr, 10) : 0;
  }

  void if_asked() {
    if (!asked_ || calls_.fetch_add(1) < allowed_) return;
    while (true) ::pause();
  }

 private:
  bool asked_ = false;
  long allowed_ = 0;
  std::atomic<long> calls_{0};
};

}  // namespace tidemark::simgpu
