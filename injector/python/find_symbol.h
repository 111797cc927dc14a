// Finds functions of the process by name, in any loaded library.
#pragma once

#include <dlfcn.h>

namespace tidemark::injector {

// False, and null, if there is none.
template <typename Function>
bool find_symbol(Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace tidemark::injector
