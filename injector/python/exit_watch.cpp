#include "injector/python/exit_watch.h"

#include <time.h>

#include <cstdint>

#include "injector/python/own_code.h"
#include "injector/recorder/thread_register.h"

namespace tidemark::injector {
namespace {

// Reading takes microseconds. It takes longer only on a thread that does not get to run, or that
// waits for the GIL (gil.h).
constexpr uint32_t kPatienceMs = 1000;

enum class Stage : uint32_t { kIdle, kAsked, kInstalled };
std::atomic<Stage> g_stage{Stage::kIdle};

// If the main thread has ended, exit functions are already running, and a new one never will.
constexpr char kRegister[] = R"(
import atexit, sys
atexit.register(_end)
try:
    if not sys.modules["threading"].main_thread().is_alive():
        _end()
except Exception:
    pass
)";

PythonObject* on_exit(PythonObject*, PythonObject*) {
  last_python_thread.store(python_calls.this_thread_state());
  void* const state = python_calls.release_gil();
  if (!wait_until_nobody_walks(kPatienceMs)) {
    const timespec pause{0, 20'000'000};  // without membarrier(), this has to do
    nanosleep(&pause, nullptr);
  }
  python_calls.take_gil(state);
  return python_calls.from_bool(1);
}

PythonMethod g_methods[] = {{"_end", on_exit}};

int install(void*) {
  if (g_stage.exchange(Stage::kInstalled) == Stage::kInstalled) return 0;
  if (!run_python_lines(kRegister, g_methods)) {
    last_python_thread.store(python_calls.this_thread_state());
  }
  return 0;
}

}  // namespace

std::atomic<const void*> last_python_thread{nullptr};

bool watch_python_exit() noexcept {
  if (g_stage.load() != Stage::kIdle) return true;
  if (!find_python_calls()) return false;
  g_stage.store(Stage::kAsked);
  if (ask_python_to_run(install)) return true;
  g_stage.store(Stage::kIdle);
  return false;
}

void reset_python_exit_watch() noexcept {
  last_python_thread.store(nullptr);
  // A child inherits exit functions, but not pending calls.
  if (g_stage.load() == Stage::kAsked) g_stage.store(Stage::kIdle);
}

}  // namespace tidemark::injector
