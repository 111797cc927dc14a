#include "injector/process/now.h"

#include <time.h>

namespace tidemark::injector {

int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tidemark::injector
