// For programs of tests that fork: the leak detector would look for threads that only the parent has,
// and for what they own. Include it once per program.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <unistd.h>

static const pid_t g_first_process = ::getpid();
extern "C" int __lsan_is_turned_off() {
  return ::getpid() != g_first_process ? 1 : 0;
}
#endif
