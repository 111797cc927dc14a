#include "collector/attach/inject/python_remote.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/remote_symbols.h"
#include "proto/base/file_io.h"

namespace tidemark::inject {

namespace {

// Indices in PythonOffsets (Include/internal/pycore_debug_offsets.h, 3.14).
constexpr size_t kCookie = 0;
constexpr size_t kVersion = 1;
constexpr size_t kInterpretersHead = 5;
constexpr size_t kThreadsMain = 10;
constexpr size_t kEvalBreaker = 89;
constexpr size_t kSupport = 90;
constexpr size_t kEnabled = 91;
constexpr size_t kPendingCall = 92;
constexpr size_t kScriptPath = 93;
constexpr size_t kScriptPathSize = 94;

constexpr char kCookieText[9] = "xdebugpy";
constexpr uint64_t kLargestOffset = 1 << 24;
constexpr uint64_t kPleaseStop = 1 << 5;  // _PY_EVAL_PLEASE_STOP_BIT

bool is_314(const PythonOffsets& offsets) {
  if (std::memcmp(&offsets[kCookie], kCookieText, 8) != 0) return false;
  if (offsets[kVersion] >> 16 != 0x030e) return false;
  for (size_t i = kEvalBreaker; i < kPythonWords; ++i) {
    if (offsets[i] > kLargestOffset) return false;
  }
  return offsets[kInterpretersHead] < kLargestOffset && offsets[kThreadsMain] < kLargestOffset;
}

uint64_t find_runtime(const RemoteMemory& memory, pid_t pid) {
  const auto files = read_maps(pid);
  if (!files) return 0;
  for (const MappedFile& file : *files) {
    // libpython3.14.so, or the program if it contains the interpreter.
    if (file.name().find("python") == std::string_view::npos) continue;
    if (const uint64_t runtime = find_symbol(memory, file, "_PyRuntime"); runtime != 0) {
      return runtime;
    }
  }
  return 0;
}

bool sees_our_files(pid_t pid) {
  struct stat own {};
  struct stat other {};
  return ::stat("/", &own) == 0 &&
         ::stat(fmt::format("/proc/{}/root/", pid).c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

std::string write_script(const std::string& library, const std::string& function) {
  char path[] = "/tmp/tidemark-XXXXXX.py";
  const int fd = ::mkstemps(path, 3);
  if (fd < 0) return "";
  const std::string text = script_text(path, library, function);
  // Readable for all: the process may belong to another user, and there is nothing secret in it.
  const bool good = ::fchmod(fd, 0644) == 0 && write_all(fd, text.data(), text.size());
  ::close(fd);
  if (good) return path;
  ::unlink(path);
  return "";
}

}  // namespace

std::string python_literal(const std::string& text) {
  std::string literal = "os.fsdecode(b'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\';
    literal += plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return literal + "')";
}

std::string script_text(const std::string& path, const std::string& library,
                        const std::string& function) {
  return fmt::format(
      "import ctypes, os\n"
      "ctypes.CDLL({}).{}()\n"
      "try:\n"
      "    os.unlink({})\n"
      "except OSError:\n"
      "    pass\n",
      python_literal(library), function, python_literal(path));
}

void PythonRequest::remove_script() {
  if (!script_.empty()) ::unlink(script_.c_str());
}

void PythonRequest::cancel() {
  const int32_t none = 0;
  memory_.write(pending_, &none, sizeof none);
  remove_script();
}

std::optional<PythonRequest> ask_python_at(RemoteMemory memory, uint64_t runtime,
                                           const std::string& script) {
  PythonOffsets offsets;
  if (!memory.read(runtime, offsets) || !is_314(offsets)) return std::nullopt;
  if (script.size() >= offsets[kScriptPathSize]) return std::nullopt;
  uint64_t interpreter = 0;
  if (!memory.read(runtime + offsets[kInterpretersHead], interpreter) || interpreter == 0) {
    return std::nullopt;
  }
  int32_t enabled = 0;
  if (!memory.read(interpreter + offsets[kEnabled], enabled) || enabled != 1) return std::nullopt;
  uint64_t thread = 0;
  if (!memory.read(interpreter + offsets[kThreadsMain], thread) || thread == 0) return std::nullopt;
  const uint64_t support = thread + offsets[kSupport];
  const uint64_t pending = support + offsets[kPendingCall];
  int32_t already = 0;
  if (!memory.read(pending, already) || already != 0) return std::nullopt;  // another tool's
  const int32_t one = 1;
  uint64_t breaker = 0;
  if (!memory.write(support + offsets[kScriptPath], script.c_str(), script.size() + 1) ||
      !memory.write(pending, &one, sizeof one) ||
      !memory.read(thread + offsets[kEvalBreaker], breaker)) {
    return std::nullopt;
  }
  breaker |= kPleaseStop;
  if (!memory.write(thread + offsets[kEvalBreaker], &breaker, sizeof breaker)) return std::nullopt;
  return PythonRequest(std::move(memory), pending);
}

std::optional<PythonRequest> ask_python(pid_t pid, const std::string& library,
                                        const std::string& function) {
  RemoteMemory memory(pid);
  if (!memory.good() || !sees_our_files(pid)) return std::nullopt;
  const uint64_t runtime = find_runtime(memory, pid);
  PythonOffsets offsets;
  if (runtime == 0 || !memory.read(runtime, offsets) || !is_314(offsets)) return std::nullopt;
  const std::string script = write_script(library, function);
  if (script.empty()) return std::nullopt;
  std::optional<PythonRequest> request = ask_python_at(std::move(memory), runtime, script);
  if (request) {
    request->script_ = script;
  } else {
    ::unlink(script.c_str());
  }
  return request;
}

}  // namespace tidemark::inject
