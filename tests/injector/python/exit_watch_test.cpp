// The end of an interpreter, while threads read their frames. The interpreter is a fake: functions
// of this program under CPython's names.
#include "injector/python/exit_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "injector/python/own_code.h"

namespace {

using namespace tidemark::injector;

int (*g_pending)(void*) = nullptr;
PythonMethod* g_method = nullptr;  // the function that was registered
std::atomic<bool> g_gil_held{true};
std::atomic<int> g_gil_releases{0};
char g_object;

// A thread's state. The interpreter frees it at its end.
struct State {
  std::atomic<bool> freed{false};
};
thread_local State* t_state = nullptr;

void* this_state() {
  return t_state;
}
int yes() {
  return 1;
}
int no() {
  return 0;
}

PythonRuntime fake_runtime() {
  PythonRuntime python;
  python.is_initialized = yes;
  python.is_finalizing = no;
  python.this_thread_state = this_state;
  return python;
}

}  // namespace

// NOLINTBEGIN: CPython's names
extern "C" {
#define FAKE __attribute__((visibility("default")))
FAKE int Py_IsInitialized() {
  return 1;
}
FAKE int Py_IsFinalizing() {
  return 0;
}
FAKE int Py_AddPendingCall(int (*run)(void*), void*) {
  g_pending = run;
  return 0;
}
FAKE void* PyGILState_GetThisThreadState() {
  return t_state;
}
FAKE void* PyEval_SaveThread() {
  g_gil_held = false;
  ++g_gil_releases;
  return t_state;
}
FAKE void PyEval_RestoreThread(void*) {
  g_gil_held = true;
}
FAKE void* PyImport_GetModuleDict() {
  return &g_object;
}
FAKE void* PyDict_GetItemString(void*, const char*) {
  return nullptr;
}
FAKE void* PyDict_New() {
  return &g_object;
}
FAKE int PyDict_SetItemString(void*, const char*, void*) {
  return 0;
}
FAKE void* PyEval_GetBuiltins() {
  return &g_object;
}
FAKE void* PyObject_GetAttrString(void*, const char*) {
  return nullptr;
}
FAKE void* PyCFunction_NewEx(PythonMethod* method, void*, void*) {
  g_method = method;
  return &g_object;
}
FAKE void* Py_CompileString(const char*, const char*, int) {
  return &g_object;
}
FAKE void* PyEval_EvalCode(void*, void*, void*) {
  return &g_object;
}
FAKE void* PyTuple_GetItem(void*, ptrdiff_t) {
  return nullptr;
}
FAKE unsigned long long PyLong_AsUnsignedLongLong(void*) {
  return 0;
}
FAKE void* PyBool_FromLong(long) {
  return &g_object;
}
FAKE void Py_DecRef(void*) {}
FAKE void PyErr_Clear() {}
FAKE void* PyErr_Occurred() {
  return nullptr;
}
}
// NOLINTEND

namespace {

class PythonExit : public testing::Test {
 protected:
  void SetUp() override {
    t_state = &main_state_;
    ASSERT_TRUE(watch_python_exit());
    if (g_method == nullptr) {  // the first test: the others are like forked children
      ASSERT_NE(g_pending, nullptr);
      g_pending(nullptr);
    }
    ASSERT_NE(g_method, nullptr);
  }
  void TearDown() override { reset_python_exit_watch(); }

  static void run_exit_function() { g_method->call(nullptr, nullptr); }

  const PythonRuntime python_ = fake_runtime();
  State main_state_;
};

TEST_F(PythonExit, WaitsForAWalkWithoutTheGil) {
  State state;
  std::atomic<bool> walks{false};
  const int releases = g_gil_releases;
  std::thread daemon([&] {
    t_state = &state;
    const PythonWalk walk(python_);
    ASSERT_EQ(walk.thread(), &state);
    walks = true;
    // As a walk that needs the GIL waits for it.
    while (g_gil_releases == releases) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(state.freed);
  });
  while (!walks) std::this_thread::yield();
  run_exit_function();
  state.freed = true;
  EXPECT_TRUE(g_gil_held);
  daemon.join();
}

TEST_F(PythonExit, OnlyTheLastThreadGoesOnReading) {
  run_exit_function();
  EXPECT_EQ(PythonWalk(python_).thread(), &main_state_);
  State state;
  std::thread([&] {
    t_state = &state;
    EXPECT_EQ(PythonWalk(python_).thread(), nullptr);
  }).join();
}

TEST_F(PythonExit, NoThreadReadsWhatIsFreed) {
  for (int round = 0; round < 20; ++round) {
    State states[8];
    std::atomic<int> walking{0};
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> daemons;
    for (State& state : states) {
      daemons.emplace_back([&] {
        t_state = &state;
        ++walking;
        while (!over) {
          const PythonWalk walk(python_);
          for (int i = 0; walk.thread() != nullptr && i < 100; ++i) wrong += state.freed;
        }
      });
    }
    while (walking < 8) std::this_thread::yield();
    run_exit_function();
    for (State& state : states) state.freed = true;
    over = true;
    for (std::thread& daemon : daemons) daemon.join();
    EXPECT_EQ(wrong, 0);
    reset_python_exit_watch();
  }
}

TEST_F(PythonExit, AWalkInsideAWalkReadsNothing) {
  const PythonWalk walk(python_);
  EXPECT_EQ(walk.thread(), &main_state_);
  EXPECT_EQ(PythonWalk(python_).thread(), nullptr);
}

}  // namespace
