// A library that is loaded into a running process by the tests.
#include <atomic>

namespace {
std::atomic<int> g_calls{0};
}

// How many times it was called.
extern "C" __attribute__((visibility("default"))) int guest_arrived() {
  return ++g_calls;
}
