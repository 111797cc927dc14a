// Imitates Python 3.14: describes itself as CPython does (_Py_DebugOffsets), and runs a script on
// request. It has no other part of an interpreter.
#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

struct ThreadState {
  uint64_t unused[3];
  uint64_t eval_breaker;
  uint64_t more[4];
  struct {
    int32_t pending_call;
    char script_path[512];
  } support;
};

struct Interpreter {
  uint64_t unused[5];
  ThreadState* threads_main;
  int32_t remote_debug;
};

struct Runtime {
  uint64_t words[95];
  uint64_t unused[7];
  Interpreter* interpreters_head;
};

ThreadState g_thread{};
Interpreter g_interpreter{{}, &g_thread, 1};

}  // namespace

extern "C" {
__attribute__((visibility("default"))) Runtime _PyRuntime{};
}

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  uint64_t* const words = _PyRuntime.words;
  std::memcpy(&words[0], "xdebugpy", 8);
  words[1] = how == "older" ? 0x030d01f0 : 0x030e00f0;
  words[5] = offsetof(Runtime, interpreters_head);
  words[10] = offsetof(Interpreter, threads_main);
  words[89] = offsetof(ThreadState, eval_breaker);
  words[90] = offsetof(ThreadState, support);
  words[91] = offsetof(Interpreter, remote_debug);
  words[92] = 0;
  words[93] = 4;
  words[94] = sizeof g_thread.support.script_path;
  _PyRuntime.interpreters_head = &g_interpreter;
  if (how == "forbids") g_interpreter.remote_debug = 0;

  std::puts("ready");
  std::fflush(stdout);
  pollfd in{STDIN_FILENO, POLLIN, 0};
  while (::poll(&in, 1, 5) == 0) {
    volatile ThreadState& thread = g_thread;
    if ((thread.eval_breaker & 32) == 0) continue;
    thread.eval_breaker = thread.eval_breaker & ~uint64_t{32};
    if (how == "busy" || thread.support.pending_call != 1) continue;
    thread.support.pending_call = 0;
    const std::string command = std::string("python3 ") + g_thread.support.script_path;
    std::printf("script returned %d\n", std::system(command.c_str()));
    std::fflush(stdout);
  }
  std::printf("pending %d\nfine\n", g_thread.support.pending_call);
}
