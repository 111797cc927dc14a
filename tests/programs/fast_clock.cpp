// For LD_PRELOAD: CLOCK_REALTIME goes FAST_CLOCK times as fast, so that a run of minutes has the
// times of one of days. Everything that waits uses other clocks.
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

namespace {

using Function = int (*)(clockid_t, timespec*);
constexpr long long kSecond = 1'000'000'000;

Function g_real = nullptr;
long long g_factor = 1;
long long g_start_ns = 0;

__attribute__((constructor)) void prepare() {
  g_real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  timespec now{};
  g_real(CLOCK_REALTIME, &now);
  g_start_ns = now.tv_sec * kSecond + now.tv_nsec;
  const char* const factor = getenv("FAST_CLOCK");
  g_factor = factor != nullptr ? atoll(factor) : 1;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* out) {
  if (g_real == nullptr) prepare();
  const int result = g_real(clock, out);
  if (clock != CLOCK_REALTIME || result != 0) return result;
  const long long now = out->tv_sec * kSecond + out->tv_nsec;
  const long long fast = g_start_ns + (now - g_start_ns) * g_factor;
  out->tv_sec = fast / kSecond;
  out->tv_nsec = fast % kSecond;
  return 0;
}
