#include "collector/attach/inject/tracee.h"

#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "collector/attach/inject/process_status.h"
#include "collector/attach/inject/safe_call.h"

namespace tidemark::inject {

namespace {

using std::chrono::steady_clock;

constexpr auto kRollback = std::chrono::seconds(5);  // limit for stops while restoring the thread
constexpr size_t kLargestSet = 1 << 16;

constexpr uint64_t bit(int signal) {
  return uint64_t{1} << (signal - 1);
}

// Signals raised by an instruction cannot be delayed: if blocked, they end the process or reset its
// handler.
constexpr uint64_t kAllButFaults = ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) |
                                     bit(SIGTRAP) | bit(SIGSYS) | bit(SIGKILL) | bit(SIGSTOP));

// ptrace is variadic in glibc: arguments must have the width of a pointer.
long trace(int request, pid_t thread, uintptr_t address, uintptr_t data) {
  return ::ptrace(static_cast<__ptrace_request>(request), thread, reinterpret_cast<void*>(address),
                  reinterpret_cast<void*>(data));
}

void pause_for(std::chrono::microseconds time) {
  const timespec wait{0, static_cast<long>(time.count() * 1000)};
  ::nanosleep(&wait, nullptr);
}

}  // namespace

Status Tracee::seize(int& errno_out) {
  errno_out = 0;
  if (trace(PTRACE_SEIZE, thread_, 0, PTRACE_O_TRACESYSGOOD) != 0) {
    errno_out = errno;
    return Error{std::strerror(errno_out)};
  }
  seized_ = true;
  if (!interrupt_running(steady_clock::now() + kRollback)) {
    return Error{"thread " + std::to_string(thread_) + " does not stop"};
  }
  return {};
}

Tracee::Stop Tracee::wait(Deadline deadline) {
  std::chrono::microseconds pause(20);
  int status = 0;
  while (true) {
    const pid_t got = ::waitpid(thread_, &status, __WALL | WNOHANG);
    if (got == thread_) break;
    if (got < 0 && errno != EINTR) {
      seized_ = stopped_ = false;
      return Stop::kGone;
    }
    if (steady_clock::now() >= deadline) return Stop::kNone;
    pause_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
  if (!WIFSTOPPED(status)) {
    seized_ = stopped_ = false;
    return Stop::kGone;
  }
  stopped_ = true;
  if (status >> 16 == PTRACE_EVENT_STOP) {
    return WSTOPSIG(status) == SIGTRAP ? Stop::kInterrupted : Stop::kHalted;
  }
  if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
    in_call_ = !in_call_;
    return in_call_ ? Stop::kEntry : Stop::kExit;
  }
  signal_ = WSTOPSIG(status);
  return Stop::kSignal;
}

Tracee::Stop Tracee::resume(int request, int signal, Deadline deadline) {
  if (trace(request, thread_, 0, static_cast<uintptr_t>(signal)) != 0) {
    return wait(steady_clock::now() + kRollback);  // it has ended: wait() returns that status
  }
  stopped_ = false;
  return wait(deadline);
}

bool Tracee::interrupt(Deadline deadline) {
  if (trace(PTRACE_INTERRUPT, thread_, 0, 0) != 0) return false;
  Stop stop = stopped_ ? resume(PTRACE_CONT, 0, deadline) : wait(deadline);
  while (stop != Stop::kInterrupted && stop != Stop::kHalted) {
    if (stop == Stop::kNone || stop == Stop::kGone) return false;
    int pass = 0;
    if (stop == Stop::kSignal) {
      if (masked_) keep_signal();
      pass = masked_ ? 0 : signal_;
    }
    // Another stop that comes after the request replaces the requested one: request it again.
    trace(PTRACE_INTERRUPT, thread_, 0, 0);
    stop = resume(PTRACE_CONT, pass, deadline);
  }
  in_call_ = false;
  return true;
}

bool Tracee::interrupt_running(Deadline deadline) {
  const SystemCall before = waiting_call(process_, thread_);
  if (!interrupt(deadline)) return false;
  undo_spurious_eintr(before);
  Registers now;
  if (read(now)) note_call(now);
  return true;
}

void Tracee::note_call(const Registers& registers) {
  const int64_t number = entered_call(registers).number;
  if (number != SYS_restart_syscall) call_ = number;
}

// The stop alone makes some calls (epoll_wait, a recv with a time limit, …) end with EINTR. Without
// a signal the program must not see that.
void Tracee::undo_spurious_eintr(const SystemCall& before) const {
  Registers now;
  if (before.number < 0 || !read(now) || static_cast<int64_t>(result_of(now)) != -EINTR) return;
  if (has_deliverable_signal(process_, thread_)) return;
  if (restart_call(now, before)) static_cast<void>(write(now));
}

Result<bool> Tracee::reach_safe_point(const SafeCalls& calls, Deadline deadline, bool only_known) {
  int pass = 0;
  while (true) {
    const Stop stop = resume(PTRACE_SYSCALL, pass, deadline);
    pass = stop == Stop::kSignal ? signal_ : 0;
    if (stop == Stop::kGone) return Error{"thread " + std::to_string(thread_) + " has ended"};
    if (stop == Stop::kHalted) {
      leave();
      return Error{"it was stopped by a signal"};
    }
    Registers now;
    if (stop == Stop::kEntry && read(now)) {
      note_call(now);
      const uint64_t instruction = system_call_address(program_counter(now));
      if (calls.is_safe_entry(now) &&
          (!only_known || restarted_number(calls, instruction, entered_call(now).number) >= 0)) {
        if (stop_at_call(calls)) return true;
        const Error error{std::string("cannot prepare a thread: ") + std::strerror(errno)};
        leave();
        return error;
      }
    }
    // A busy thread may make system calls endlessly.
    if (stop == Stop::kNone || steady_clock::now() >= deadline) {
      leave(pass);
      return false;
    }
  }
}

// At the entry of a call: stops the thread on its way back with registers that enter the call
// again, also if this process ends meanwhile. Where the call cannot be skipped, it is interrupted.
bool Tracee::stop_at_call(const SafeCalls& calls) {
  Registers entered;
  if (!read(entered)) return false;
  const SystemCall call = entered_call(entered);
  const uint64_t instruction = system_call_address(program_counter(entered));
  if (kRegistersSkipCall) {
    set_before_call(entered, instruction, call);
    if (!write(entered)) return false;
  }
  if (!interrupt(steady_clock::now() + kRollback)) return false;
  if (!save_registers(calls, instruction, call)) return false;
  if (trace(static_cast<int>(PTRACE_GETSIGMASK), thread_, sizeof mask_,
            reinterpret_cast<uintptr_t>(&mask_)) != 0) {
    return false;
  }
  vectors_.clear();
  for (const int type : vector_register_sets()) {
    RegisterSet set{type, std::vector<uint8_t>(kLargestSet)};
    iovec data{set.bytes.data(), set.bytes.size()};
    if (trace(PTRACE_GETREGSET, thread_, static_cast<uintptr_t>(type),
              reinterpret_cast<uintptr_t>(&data)) != 0) {
      continue;  // this machine does not have it
    }
    set.bytes.resize(data.iov_len);
    vectors_.push_back(std::move(set));
  }
  saved_ = true;
  prepare_way_back(calls);
  uint64_t blocked = mask_ | kAllButFaults;
  masked_ = trace(static_cast<int>(PTRACE_SETSIGMASK), thread_, sizeof blocked,
                  reinterpret_cast<uintptr_t>(&blocked)) == 0;
  return masked_;
}

// After an interrupted wait the kernel enters restart_syscall, which hides the call. It is known if
// it was interrupted by this object; glibc before 2.41 also loads it directly before entering.
int64_t Tracee::restarted_number(const SafeCalls& calls, uint64_t instruction,
                                 int64_t entered) const {
  if (entered != SYS_restart_syscall) return entered;
  if (call_ >= 0) return call_;
  uint8_t code[kLoadBytes];
  if (!calls.memory().read(instruction - sizeof code, code, sizeof code)) return -1;
  return loaded_number(code);
}

// Either the call is to be entered again, or it had nothing to wait for and has returned. False: a
// signal came first.
//
// rt_sigreturn makes the kernel forget an interrupted call: without a tracer, a wait that the stop
// interrupted starts again from the beginning.
bool Tracee::save_registers(const SafeCalls& calls, uint64_t instruction, const SystemCall& call) {
  if (!read(registers_)) return false;  // all of them are valid at this stop
  const uint64_t pc = program_counter(registers_);
  const bool returned = pc != instruction && system_call_address(pc) == instruction;
  if (pc != instruction && !returned) return false;
  const bool interrupted = static_cast<int64_t>(result_of(registers_)) == -EINTR &&
                           !has_deliverable_signal(process_, thread_);
  knows_call_ = true;
  for_return_ = registers_;
  if (returned && !interrupted) return true;
  set_before_call(registers_, instruction, call);
  SystemCall again = call;
  again.number = restarted_number(calls, instruction, call.number);
  knows_call_ = again.number >= 0;
  if (knows_call_) set_before_call(for_return_, instruction, again);
  return true;
}

// The stack below the stack pointer of a stopped thread is free, as for any signal. If the stack is
// small (a coroutine's) or the code is missing, the thread cannot restore itself only during the
// few microseconds of the system calls themselves.
void Tracee::prepare_way_back(const SafeCalls& calls) {
  constexpr uint64_t kEnough = 64 << 10;
  ReturnPath path = calls.return_path();
  if (!knows_call_ || path.call_and_return == 0 || path.signal_return == 0 ||
      has_shadow_stack(vectors_)) {
    return;
  }
  const uint64_t top = stack_pointer(registers_);
  const MappedRange stack = mapping_at(process_, top);
  const uint64_t size = return_frame(for_return_, vectors_, mask_, 0).size();
  if (!stack.writable || top - stack.begin < std::max(kEnough, 4 * size)) return;
  path.frame = (top - kRedZoneBytes - size) & ~uint64_t{63};
  const std::vector<uint8_t> frame =
      return_frame(for_return_, vectors_, mask_, path.frame, path.signal_return);
  Registers now = registers_;
  set_return(now, path);
  if (calls.memory().write(path.frame, frame.data(), frame.size()) && write(now)) way_back_ = path;
}

Result<int64_t> Tracee::system_call(const SystemCall& call, Deadline deadline) {
  Registers now = registers_;
  if (way_back_.frame != 0) {
    set_returning_call(now, way_back_, call);
  } else {
    set_before_call(now, program_counter(registers_), call);
  }
  in_call_ = false;
  if (!write(now))
    return Error{std::string("cannot access its registers: ") + std::strerror(errno)};
  while (true) {
    const Stop stop = resume(PTRACE_SYSCALL, 0, deadline);
    if (stop == Stop::kGone) return Error{"it has ended"};
    if (stop == Stop::kNone) return Error{"a system call did not return in time"};
    if (stop == Stop::kSignal) {
      if (is_caught(SIGSYS)) return Error{"its seccomp filter forbids a system call"};
      keep_signal();
    }
    if (stop != Stop::kExit) continue;
    // The signal of a seccomp filter comes directly after the exit, before any other instruction.
    if (has_own_signal(process_, thread_, SIGSYS)) continue;
    if (!read(now))
      return Error{std::string("cannot access its registers: ") + std::strerror(errno)};
    return static_cast<int64_t>(result_of(now));
  }
}

Result<int64_t> Tracee::stub_call(uint64_t code, size_t code_bytes, uint64_t function,
                                  std::span<const uint64_t> arguments, uint64_t stack,
                                  uint64_t frame, Deadline deadline) {
  Registers now = registers_;
  set_stub_call(now, code, function, arguments, stack, frame);
  in_call_ = false;
  if (!write(now))
    return Error{std::string("cannot access its registers: ") + std::strerror(errno)};
  while (true) {
    // Also stops at system calls of the function: that is how a seccomp refusal is noticed.
    const Stop stop = resume(PTRACE_SYSCALL, 0, deadline);
    if (stop == Stop::kGone) return Error{"it has ended"};
    if (stop == Stop::kNone) return Error{"the function did not return in time"};
    if (stop == Stop::kSignal) {
      if (is_caught(SIGSYS)) return Error{"its seccomp filter forbids a system call"};
      if (is_caught(signal_)) {
        return Error{std::string("the function raised ") + ::strsignal(signal_)};
      }
      keep_signal();
    }
    if (stop != Stop::kEntry) continue;
    if (!read(now))
      return Error{std::string("cannot access its registers: ") + std::strerror(errno)};
    const uint64_t pc = program_counter(now);
    if (pc < code || pc >= code + code_bytes) continue;
    return static_cast<int64_t>(entered_call(now).arguments[0]);
  }
}

std::vector<uint8_t> Tracee::frame_for_return(uint64_t address) const {
  return return_frame(for_return_, vectors_, mask_, address);
}

// Whether the stop is for this signal and an instruction of the thread has raised it.
bool Tracee::is_caught(int signal) const {
  if (signal_ != signal || (kAllButFaults & bit(signal)) != 0) return false;
  siginfo_t info{};
  if (trace(PTRACE_GETSIGINFO, thread_, 0, reinterpret_cast<uintptr_t>(&info)) != 0) return true;
  return info.si_code > 0;
}

void Tracee::keep_signal() {
  if (signal_ != 0 && !is_caught(signal_)) kept_.push_back(signal_);
  signal_ = 0;
}

void Tracee::leave(int signal) {
  if (!seized_) return;
  const Deadline deadline = steady_clock::now() + kRollback;
  // Also interrupts a running call. The registers last: until then it can restore itself.
  const bool stopped = saved_ ? interrupt(deadline) : stopped_ || interrupt_running(deadline);
  if (masked_ && stopped) {
    trace(static_cast<int>(PTRACE_SETSIGMASK), thread_, sizeof mask_,
          reinterpret_cast<uintptr_t>(&mask_));
  }
  if (saved_ && stopped) {
    for (RegisterSet& set : vectors_) {
      iovec data{set.bytes.data(), set.bytes.size()};
      trace(PTRACE_SETREGSET, thread_, static_cast<uintptr_t>(set.type),
            reinterpret_cast<uintptr_t>(&data));
    }
    static_cast<void>(write(registers_));
  }
  // A thread that has ended must be reaped here: its process cannot end before.
  if (seized_ && !stopped_) static_cast<void>(wait(deadline));
  // Only a stopped thread can be detached.
  if (stopped_) trace(PTRACE_DETACH, thread_, 0, static_cast<uintptr_t>(signal));
  for (const int kept : kept_) ::syscall(SYS_tgkill, process_, thread_, kept);
  seized_ = stopped_ = saved_ = masked_ = false;
}

bool Tracee::read(Registers& registers) const {
  iovec data{&registers, sizeof registers};
  return trace(PTRACE_GETREGSET, thread_, NT_PRSTATUS, reinterpret_cast<uintptr_t>(&data)) == 0;
}

bool Tracee::write(const Registers& registers) const {
  iovec data{const_cast<Registers*>(&registers), sizeof registers};
  return trace(PTRACE_SETREGSET, thread_, NT_PRSTATUS, reinterpret_cast<uintptr_t>(&data)) == 0;
}

}  // namespace tidemark::inject
