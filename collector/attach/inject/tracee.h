// One thread of another process, seized by ptrace.
//
// All calls come from the thread that made the object: the kernel knows one tracing thread. Whoever
// holds it must call leave() on every way out; the destructor does so in any case. If this process
// dies, the kernel lets the thread go on as it stands (no PTRACE_O_EXITKILL). From the moment that
// its registers or its signal mask are not its own, the thread stands on a path that ends in
// rt_sigreturn with a frame that restores them, so that it finds its own way back.
//
// Kinds of stops, and what the registers are worth in them:
//   - at a call's entry and exit: on aarch64 x7 shows the kind of stop and cannot be written;
//   - after PTRACE_INTERRUPT, on the way back to the program: all of them are true.
// Therefore registers are saved and restored only in the last.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "collector/attach/inject/arch.h"
#include "collector/attach/inject/safe_call.h"
#include "proto/base/result.h"

namespace tidemark::inject {

using Deadline = std::chrono::steady_clock::time_point;

class Tracee {
 public:
  Tracee(pid_t process, pid_t thread) : process_(process), thread_(thread) {}
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;
  ~Tracee() { leave(); }

  // Seizes and stops it. `errno_out`: ptrace's own reason when it is refused.
  Status seize(int& errno_out);

  // Lets it run until it is about to enter a system call in which a thread only waits, and stops
  // it there, before the call, with all signals blocked but those that a fault raises. False when
  // the deadline comes first; then it has been left alone again.
  Result<bool> reach_safe_point(const SafeCalls& calls, Deadline deadline);

  // The following only at a safe point.

  // A system call by the thread itself. The kernel's answer, negative errors included; an Error
  // when a signal (seccomp's SIGSYS) or the end came instead.
  Result<int64_t> system_call(const SystemCall& call, Deadline deadline);

  // Runs the stub's call until it comes back; its result. At the deadline the thread is taken out
  // of the function again.
  Result<int64_t> stub_call(uint64_t code, size_t code_bytes, uint64_t function,
                            std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame,
                            Deadline deadline);

  // What the way back needs, should this process die meanwhile.
  std::vector<uint8_t> frame_for_return(uint64_t address) const;

  // Everything as it was, and lets it go: the interrupted call is entered as if for the first time.
  void leave() { leave(0); }

 private:
  // kHalted: the whole process was stopped from outside (SIGSTOP).
  enum class Stop { kNone, kEntry, kExit, kInterrupted, kHalted, kSignal, kGone };

  // `signal`: the one that a signal-delivery stop was about.
  void leave(int signal);
  Stop wait(Deadline deadline);
  Stop resume(int request, int signal, Deadline deadline);
  // From any stop or from running to the stop after PTRACE_INTERRUPT.
  bool interrupt(Deadline deadline);
  // A thread that runs its own program; a call that only the stop broke off goes on.
  bool interrupt_running(Deadline deadline);
  bool stop_before_call(const SafeCalls& calls);
  void set_registers_for_return(const SafeCalls& calls, const SystemCall& entered);
  void prepare_way_back(const SafeCalls& calls);
  bool read(Registers& registers) const;
  bool write(const Registers& registers) const;
  void undo_spurious_eintr(const SystemCall& before) const;
  bool is_caught(int signal) const;
  void keep_signal();

  pid_t process_;
  pid_t thread_;
  bool seized_ = false;
  bool stopped_ = false;
  bool in_call_ = false;  // the last stop was a call's entry
  int signal_ = 0;        // of a signal-delivery stop
  bool saved_ = false;
  Registers registers_{};   // to be restored
  Registers for_return_{};  // what rt_sigreturn restores
  bool knows_call_ = true;  // which call those begin anew
  uint64_t mask_ = 0;
  bool masked_ = false;
  std::vector<RegisterSet> vectors_;
  ReturnPath way_back_;    // its frame is 0 where there is none
  std::vector<int> kept_;  // signals somebody sent, to be sent again at the end
};

}  // namespace tidemark::inject
