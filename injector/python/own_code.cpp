#include "injector/python/own_code.h"

#include <atomic>

#include "injector/process/tool_thread.h"
#include "injector/python/find_symbol.h"

namespace tidemark::injector {
namespace {

constexpr int kFileInput = 257;

PidLock g_finding;
std::atomic<bool> g_found{false};

bool find_all(PythonCalls& calls) {
  if (!find_symbol(calls.is_finalizing, "Py_IsFinalizing"))
    find_symbol(calls.is_finalizing, "_Py_IsFinalizing");
  return find_symbol(calls.is_initialized, "Py_IsInitialized") &&
         find_symbol(calls.add_pending_call, "Py_AddPendingCall") &&
         find_symbol(calls.this_thread_state, "PyGILState_GetThisThreadState") &&
         find_symbol(calls.release_gil, "PyEval_SaveThread") &&
         find_symbol(calls.take_gil, "PyEval_RestoreThread") &&
         find_symbol(calls.modules, "PyImport_GetModuleDict") &&
         find_symbol(calls.dict_get, "PyDict_GetItemString") &&
         find_symbol(calls.dict_new, "PyDict_New") &&
         find_symbol(calls.dict_set, "PyDict_SetItemString") &&
         find_symbol(calls.builtins, "PyEval_GetBuiltins") &&
         find_symbol(calls.attribute, "PyObject_GetAttrString") &&
         find_symbol(calls.function_new, "PyCFunction_NewEx") &&
         find_symbol(calls.compile, "Py_CompileString") &&
         find_symbol(calls.evaluate, "PyEval_EvalCode") &&
         find_symbol(calls.tuple_item, "PyTuple_GetItem") &&
         find_symbol(calls.to_number, "PyLong_AsUnsignedLongLong") &&
         find_symbol(calls.from_bool, "PyBool_FromLong") &&
         find_symbol(calls.unreference, "Py_DecRef") &&
         find_symbol(calls.clear_error, "PyErr_Clear") &&
         find_symbol(calls.error_occurred, "PyErr_Occurred");
}

// An interpreter that has ended, or is about to, must not be called: it would crash.
bool takes_calls() {
  return python_calls.is_initialized() != 0 &&
         (python_calls.is_finalizing == nullptr || python_calls.is_finalizing() == 0);
}

bool put(PythonObject* globals, const char* name, PythonObject* value) {
  if (value == nullptr) return false;
  const bool stored = python_calls.dict_set(globals, name, value) == 0;
  python_calls.unreference(value);
  return stored;
}

bool evaluate(const char* lines, PythonObject* globals) {
  PythonObject* const code = python_calls.compile(lines, "<tidemark>", kFileInput);
  PythonObject* const result =
      code != nullptr ? python_calls.evaluate(code, globals, globals) : nullptr;
  if (result != nullptr) python_calls.unreference(result);
  if (code != nullptr) python_calls.unreference(code);
  return result != nullptr;
}

}  // namespace

PythonCalls python_calls;

bool find_python_calls() noexcept {
  if (g_found.load(std::memory_order_acquire)) return true;
  PythonCalls found;
  if (!find_all(found) || !g_finding.try_lock()) return false;
  if (!g_found.load(std::memory_order_relaxed)) python_calls = found;
  g_found.store(true, std::memory_order_release);
  g_finding.unlock();
  return true;
}

bool ask_python_to_run(int (*run)(void*)) noexcept {
  return takes_calls() && python_calls.add_pending_call(run, nullptr) == 0;
}

bool run_python_lines(const char* lines, std::span<PythonMethod> methods,
                      PythonObject* given) noexcept {
  PythonObject* const globals = python_calls.dict_new();
  bool done = globals != nullptr &&
              python_calls.dict_set(globals, "__builtins__", python_calls.builtins()) == 0 &&
              (given == nullptr || python_calls.dict_set(globals, "_given", given) == 0);
  for (PythonMethod& method : methods) {
    done = done && put(globals, method.name, python_calls.function_new(&method, nullptr, nullptr));
  }
  done = done && evaluate(lines, globals);
  if (globals != nullptr) python_calls.unreference(globals);
  python_calls.clear_error();
  return done;
}

}  // namespace tidemark::injector
