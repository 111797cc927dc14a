// The variables that the functions of this folder may use.
//
// They run on threads of the injector while the program may call setenv(): getenv() and `environ`
// would read freed memory. So the caller passes an environment that does not change.
#pragma once

namespace tidemark::bridge {

struct Environment {
  const char* (*find)(const char* name);  // nullptr if it is not set
  // Calls visit("NAME=value", context) for each. The entries stay valid.
  void (*each)(void (*visit)(const char* entry, void* context), void* context);
};

}  // namespace tidemark::bridge
