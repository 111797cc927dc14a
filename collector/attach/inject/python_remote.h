// Makes a Python interpreter run a script, through the interface that CPython has since 3.14 (PEP
// 768, as sys.remote_exec does): the path is written into the state of the main thread, and the
// interpreter runs the file at its next safe point. No thread is stopped.
//
// The interpreter describes the offsets of these fields in _Py_DebugOffsets at the start of
// _PyRuntime; only the layout of 3.14 is known, and no other version is used.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "collector/attach/inject/remote_memory.h"

namespace tidemark::inject {

// The words of _Py_DebugOffsets of 3.14, in order.
inline constexpr size_t kPythonWords = 95;
using PythonOffsets = std::array<uint64_t, kPythonWords>;

class PythonRequest {
 public:
  PythonRequest(PythonRequest&&) = default;
  PythonRequest& operator=(PythonRequest&&) = delete;

  // Withdraws the request if the interpreter has not run it yet, and removes the script.
  void cancel();
  // After the interpreter has run it: in /tmp it cannot remove the script of another user (root).
  void remove_script();

 private:
  friend std::optional<PythonRequest> ask_python_at(RemoteMemory, uint64_t, const std::string&);
  friend std::optional<PythonRequest> ask_python(pid_t, const std::string&, const std::string&);
  PythonRequest(RemoteMemory memory, uint64_t pending)
      : memory_(std::move(memory)), pending_(pending) {}

  RemoteMemory memory_;
  uint64_t pending_;
  std::string script_;
};

// Nothing if it is not Python 3.14, does not allow it, or does not see our files.
std::optional<PythonRequest> ask_python(pid_t pid, const std::string& library,
                                        const std::string& function);

// The same with the address of _PyRuntime and an existing script.
std::optional<PythonRequest> ask_python_at(RemoteMemory memory, uint64_t runtime,
                                           const std::string& script);

// The content of a script at `path` that loads the library, calls its function, and removes itself.
std::string script_text(const std::string& path, const std::string& library,
                        const std::string& function);

// A Python expression for this text.
std::string python_literal(const std::string& text);

}  // namespace tidemark::inject
