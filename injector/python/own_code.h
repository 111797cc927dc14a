// Runs a few lines of Python of tidemark's own in the interpreter of the process.
//
// They are run by a pending call: on the main thread, with the GIL, between two instructions of the
// running program, or at the latest when the interpreter begins to shut down, before its exit
// functions.
#pragma once

#include <cstddef>
#include <span>

namespace tidemark::injector {

using PythonObject = void;

// CPython's declaration of a C function, unchanged since 3.0.
struct PythonMethod {
  const char* name;
  PythonObject* (*call)(PythonObject* self, PythonObject* arguments);
  int flags = 1;  // any number of arguments
  const char* documentation = nullptr;
};

// What is used of CPython; all of it exists from 3.9 on. Needs the GIL, except for the first four.
struct PythonCalls {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // may be missing
  int (*add_pending_call)(int (*)(void*), void*) = nullptr;
  void* (*this_thread_state)() = nullptr;
  void* (*release_gil)() = nullptr;  // returns the thread's state, for take_gil
  void (*take_gil)(void*) = nullptr;
  PythonObject* (*modules)() = nullptr;                             // borrowed
  PythonObject* (*dict_get)(PythonObject*, const char*) = nullptr;  // borrowed
  PythonObject* (*dict_new)() = nullptr;
  int (*dict_set)(PythonObject*, const char*, PythonObject*) = nullptr;
  PythonObject* (*builtins)() = nullptr;  // borrowed
  PythonObject* (*attribute)(PythonObject*, const char*) = nullptr;
  PythonObject* (*function_new)(PythonMethod*, PythonObject*, PythonObject*) = nullptr;
  PythonObject* (*compile)(const char*, const char*, int) = nullptr;
  PythonObject* (*evaluate)(PythonObject*, PythonObject*, PythonObject*) = nullptr;
  PythonObject* (*tuple_item)(PythonObject*, ptrdiff_t) = nullptr;  // borrowed
  unsigned long long (*to_number)(PythonObject*) = nullptr;
  PythonObject* (*from_bool)(long) = nullptr;
  void (*unreference)(PythonObject*) = nullptr;
  void (*clear_error)() = nullptr;
  PythonObject* (*error_occurred)() = nullptr;
};
extern PythonCalls python_calls;  // valid once find_python_calls() was true

// False: there is no interpreter, or another thread is looking. Any thread.
bool find_python_calls() noexcept;

// Runs `run` as a pending call. False: the interpreter does not run, or has too many of them. Any
// thread; needs find_python_calls().
bool ask_python_to_run(int (*run)(void*)) noexcept;

// Inside a pending call: runs the lines, which see `methods` and, as `_given`, an object. False if
// they raised an exception, which is cleared. The methods must live as long as the process.
bool run_python_lines(const char* lines, std::span<PythonMethod> methods,
                      PythonObject* given = nullptr) noexcept;

}  // namespace tidemark::injector
