// Keeps the packaged programs, which are built on glibc 2.31, runnable on glibc 2.28: the functions
// below are newer there, and are answered from here instead.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#define TIDEMARK_HIDDEN extern "C" __attribute__((visibility("hidden")))

// glibc 2.29 gave these new versions, which no longer call matherr(). The old ones are still there.
#if defined(__x86_64__)
#define TIDEMARK_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define TIDEMARK_OLDEST "GLIBC_2.17"
#endif
// Named by the assembler, since the compiler knows the functions and would export them: the old
// version would then be looked for, and found, here.
#define TIDEMARK_OLD_VERSION(NAME, PARAMETERS, ARGUMENTS)                    \
  extern "C" double tidemark_old_##NAME PARAMETERS;                          \
  __asm__(".symver tidemark_old_" #NAME ", " #NAME "@" TIDEMARK_OLDEST);     \
  TIDEMARK_HIDDEN double tidemark_##NAME PARAMETERS __asm__(#NAME);          \
  double tidemark_##NAME PARAMETERS {                                        \
    return tidemark_old_##NAME ARGUMENTS;                                    \
  }
TIDEMARK_OLD_VERSION(exp, (double x), (x))
TIDEMARK_OLD_VERSION(exp2, (double x), (x))
TIDEMARK_OLD_VERSION(log, (double x), (x))
TIDEMARK_OLD_VERSION(log2, (double x), (x))
TIDEMARK_OLD_VERSION(pow, (double x, double y), (x, y))

// glibc 2.30. libstdc++ waits with it until a time of the steady clock. An older glibc can wait only
// by the wall clock: a step of that clock during the wait makes the wait shorter or longer, and every
// caller checks its condition again.
TIDEMARK_HIDDEN int tidemark_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                            clockid_t clock, const timespec* until) noexcept
    __asm__("pthread_cond_clockwait");

int tidemark_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                            const timespec* until) noexcept {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto newer = reinterpret_cast<Wait>(::dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (newer != nullptr) return newer(condition, mutex, clock, until);
  timespec here{};
  timespec wall{};
  ::clock_gettime(clock, &here);
  ::clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += until->tv_sec - here.tv_sec;
  wall.tv_nsec += until->tv_nsec - here.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += 1'000'000'000;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= 1'000'000'000) {
    wall.tv_nsec -= 1'000'000'000;
    ++wall.tv_sec;
  }
  return ::pthread_cond_timedwait(condition, mutex, &wall);
}
