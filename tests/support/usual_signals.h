// For programs of tests that end by a signal, or whose forked children start threads: sanitizers
// would catch the one and forbid the other. Include it once per program.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_abort=0:die_after_fork=0";
}
#elif defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_abort=0";
}
#endif
