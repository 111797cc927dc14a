// Asks a Python interpreter to run a script, by the way that CPython has for it since 3.14 (PEP
// 768, what sys.remote_exec does): a path is written into the main thread's state, and the
// interpreter runs the file at its next safe place. No thread is stopped.
//
// Where these fields lie the interpreter says itself, in _Py_DebugOffsets at the start of
// _PyRuntime; that description is of 3.14 and is taken for no other version.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "collector/attach/inject/remote_memory.h"

namespace tidemark::inject {

// Words of _Py_DebugOffsets of 3.14, by their place.
inline constexpr size_t kPythonWords = 95;
using PythonOffsets = std::array<uint64_t, kPythonWords>;

class PythonRequest {
 public:
  PythonRequest(PythonRequest&&) = default;
  PythonRequest& operator=(PythonRequest&&) = delete;

  // Takes it back if the interpreter has not come to it, and removes the script.
  void cancel();

 private:
  friend std::optional<PythonRequest> ask_python_at(RemoteMemory, uint64_t, const std::string&);
  friend std::optional<PythonRequest> ask_python(pid_t, const std::string&, const std::string&);
  PythonRequest(RemoteMemory memory, uint64_t pending)
      : memory_(std::move(memory)), pending_(pending) {}

  RemoteMemory memory_;
  uint64_t pending_;
  std::string script_;
};

// Nothing: it is no Python 3.14, does not allow it, or does not see our files.
std::optional<PythonRequest> ask_python(pid_t pid, const std::string& library,
                                        const std::string& function);

// The same with _PyRuntime's address and a script that is there.
std::optional<PythonRequest> ask_python_at(RemoteMemory memory, uint64_t runtime,
                                           const std::string& script);

// Python text as it stands in a literal.
std::string python_literal(const std::string& text);

}  // namespace tidemark::inject
