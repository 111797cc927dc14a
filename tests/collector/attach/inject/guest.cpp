// A library that the tests inject into a running process.
#include <atomic>

namespace {
std::atomic<int> g_calls{0};
}

// Returns how many times it was called.
extern "C" __attribute__((visibility("default"))) int guest_arrived() {
  return ++g_calls;
}
