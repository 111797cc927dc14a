// Calls that do not return, as on a card that fell off the bus.
//
// SIMGPU_HANG=WHAT[:CALLS]: the first CALLS calls (0 unless given) return, later ones do not.
//
//   nvml       reading the memory of a card
//   cupti      cuptiActivityFlushAll
//   subscribe  cuptiSubscribe, cuptiSubscribe_v2
//   switch     cuptiActivityEnable, cuptiActivityDisable and their _v2
//
// SIMGPU_HANG=WHAT@FILE: they do not return while FILE exists.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simgpu/environment.h"

namespace tidemark::simgpu {

// One for each thing that can hang; constructed at its first call, never destroyed: a call may hang
// while the process exits.
class Hang {
 public:
  Hang(const char* what, Lookup lookup) {
    const char* const text = lookup("SIMGPU_HANG");
    const size_t length = std::strlen(what);
    if (text == nullptr || std::strncmp(text, what, length) != 0) return;
    const char* const rest = text + length;
    if (*rest == '@') file_ = new std::string(rest + 1);
    if (*rest != ':' && *rest != '\0') return;
    asked_ = true;
    allowed_ = *rest == ':' ? std::strtol(rest + 1, nullptr, 10) : 0;
  }

  void if_asked() {
    while (file_ != nullptr && ::access(file_->c_str(), F_OK) == 0) ::usleep(10'000);
    if (!asked_ || calls_.fetch_add(1) < allowed_) return;
    while (true) ::pause();
  }

 private:
  bool asked_ = false;
  long allowed_ = 0;
  std::atomic<long> calls_{0};
  const std::string* file_ = nullptr;
};

}  // namespace tidemark::simgpu
