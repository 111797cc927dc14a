#include "injector/python/runtime.h"

#include <dlfcn.h>

#include <cstddef>

#include "injector/python/find_symbol.h"

namespace tidemark::injector {
namespace {

// Parses digits at `at` and advances it. (strtol would need the newest glibc if it was built with
// one.)
int read_number(const char*& at) {
  int number = 0;
  for (; *at >= '0' && *at <= '9' && number < 1000; ++at) number = number * 10 + (*at - '0');
  return number;
}

}  // namespace

bool find_python(PythonRuntime& python) noexcept {
  python = PythonRuntime();
  const char* (*version)() = nullptr;
  if (!find_symbol(version, "Py_GetVersion")) return false;
  PythonRuntime found;
  if (!find_symbol(found.is_initialized, "Py_IsInitialized") ||
      !find_symbol(found.this_thread_state, "PyGILState_GetThisThreadState")) {
    return false;
  }
  if (!find_symbol(found.is_finalizing, "Py_IsFinalizing"))
    find_symbol(found.is_finalizing, "_Py_IsFinalizing");
  found.code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
  found.text_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type");
  found.bytes_type = dlsym(RTLD_DEFAULT, "PyBytes_Type");
  found.cell_type = dlsym(RTLD_DEFAULT, "PyCell_Type");
  const char* text = version();  // "3.12.3 (main, …"
  const int major = read_number(text);
  if (*text == '.') found.minor = read_number(++text);
  found.layout_known =
      found.code_type != nullptr && found.text_type != nullptr && found.bytes_type != nullptr &&
      find_python_layout(major, found.minor, dlsym(RTLD_DEFAULT, "_PyRuntime"), found.layout);
  python = found;
  return true;
}

}  // namespace tidemark::injector
