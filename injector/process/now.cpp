#include "injector/process/now.h"

#include <time.h>

namespace tidemark::injector {

namespace {

int64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t now_ns() noexcept {
  return read(CLOCK_REALTIME);
}

int64_t monotonic_ns() noexcept {
  return read(CLOCK_MONOTONIC);
}

}  // namespace tidemark::injector
