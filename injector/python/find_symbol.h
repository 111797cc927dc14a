// Functions of the process by name, in whatever is loaded.
#pragma once

#include <dlfcn.h>

namespace tidemark::injector {

// False, and null, when there is none.
template <typename Function>
bool find_symbol(Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace tidemark::injector
