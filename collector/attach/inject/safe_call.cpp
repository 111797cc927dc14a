#include "collector/attach/inject/safe_call.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace tidemark::inject {

namespace {

constexpr uint64_t kStackBytes = 64 << 10;         // how far to search for the frame of a handler
constexpr uint64_t kLargestCode = 16 << 20;        // of a C library
constexpr uint64_t kAddressBits = 0xffffffffffff;  // the bits above may be a pointer's signature

bool only_waits(int64_t number) {
  switch (number) {
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
    case SYS_pause:
#endif
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_restart_syscall:  // of a sleep, a poll, or a futex with a time limit
    case SYS_wait4:
    case SYS_waitid:
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_io_getevents:
    case SYS_ioctl:  // how the GPU driver is called
      return true;
    default:
      return false;
  }
}

// Finds every occurrence of `code` in the mappings of a file.
void find_code(const RemoteMemory& memory, const MappedFile& file, std::span<const uint8_t> code,
               std::vector<uint64_t>& found) {
  constexpr size_t kPiece = 64 << 10;
  std::vector<uint8_t> bytes(kPiece + code.size());
  for (uint64_t at = file.begin; at < std::min(file.end, file.begin + kLargestCode); at += kPiece) {
    const size_t size = std::min<uint64_t>(bytes.size(), file.end - at);
    if (!memory.read(at, bytes.data(), size)) continue;  // a gap between segments
    const auto end = bytes.begin() + static_cast<ptrdiff_t>(size);
    auto place = bytes.begin();
    while ((place = std::search(place, end, code.begin(), code.end())) != end) {
      found.push_back(at + static_cast<uint64_t>(place - bytes.begin()));
      ++place;
    }
  }
}

}  // namespace

SafeCalls::SafeCalls(pid_t process, const RemoteMemory& memory,
                     const std::vector<MappedFile>& files)
    : process_(process), memory_(memory) {
  std::vector<uint64_t> calls;
  for (const MappedFile& file : files) {
    const bool is_libc = file.name().starts_with("libc.so.6") || file.name().starts_with("libc-2.");
    if (!is_libc && file.path != "[vdso]") continue;
    find_code(memory, file, signal_return_code(), signal_returns_);
    find_code(memory, file, call_and_return_code(), calls);
  }
  // The same bytes may also be in mappings that are not executable.
  const auto first_executable = [&](const std::vector<uint64_t>& places) -> uint64_t {
    for (const uint64_t place : places) {
      if (mapping_at(process, place).executable) return place;
    }
    return 0;
  };
  return_path_ = {first_executable(calls), first_executable(signal_returns_), 0};
}

// Reads from streams are safe: the loader only reads files.
bool SafeCalls::is_stream(uint64_t descriptor) const {
  char target[64] = {};
  const std::string link =
      "/proc/" + std::to_string(process_) + "/fd/" + std::to_string(static_cast<int>(descriptor));
  if (::readlink(link.c_str(), target, sizeof target - 1) <= 0) return false;
  const std::string_view name = target;
  return name.starts_with("pipe:") || name.starts_with("socket:") ||
         name.starts_with("anon_inode:") || name.starts_with("/dev/");
}

bool SafeCalls::is_safe(const SystemCall& call) const {
  if (only_waits(call.number)) return true;
  if (call.number == SYS_read || call.number == SYS_readv) return is_stream(call.arguments[0]);
  return call.number == SYS_futex &&
         (static_cast<int>(call.arguments[1]) & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

bool SafeCalls::in_signal_handler(uint64_t stack_pointer) const {
  constexpr uint64_t kPiece = 4096;
  std::vector<uint64_t> words(kPiece / sizeof(uint64_t));
  const uint64_t end = (stack_pointer & ~(kPiece - 1)) + kStackBytes;
  uint64_t at = stack_pointer & ~uint64_t{7};
  while (at < end) {
    const uint64_t bytes = kPiece - at % kPiece;
    if (!memory_.read(at, words.data(), bytes)) return false;  // the end of the stack
    for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
      const uint64_t word = words[i] & kAddressBits;
      for (const uint64_t place : signal_returns_) {
        if (word == place) return true;
      }
    }
    at += bytes;
  }
  return false;
}

bool SafeCalls::is_safe_entry(const Registers& registers) const {
  uint8_t code[kSystemCallBytes];
  if (!memory_.read(program_counter(registers) - sizeof code, code, sizeof code)) return false;
  return ends_with_system_call(code) && is_safe(entered_call(registers)) &&
         !in_signal_handler(stack_pointer(registers));
}

SystemCall waiting_call(pid_t process, pid_t thread) {
  SystemCall call;
  const std::string path =
      "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/syscall";
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return call;
  long long number = -1;
  auto& a = call.arguments;
  if (std::fscanf(file, "%lld %lx %lx %lx %lx %lx %lx", &number, &a[0], &a[1], &a[2], &a[3], &a[4],
                  &a[5]) == 7) {
    call.number = number;
  }
  std::fclose(file);
  return call;
}

}  // namespace tidemark::inject
