// One thread of another process, seized by ptrace.
//
// Used only by the thread that created the object: for the kernel, the tracer is a thread. Call
// leave() on every path; the destructor does so in any case. If this process dies, the kernel lets
// the thread continue in its current state (no PTRACE_O_EXITKILL). While its registers or its
// signal mask are changed, the thread is on a path that ends in rt_sigreturn with a frame that
// restores them, so that it can restore itself.
//
// Kinds of stops, and the registers at them:
//   - at the entry and exit of a call: on aarch64 x7 shows the kind of stop and cannot be written;
//   - after PTRACE_INTERRUPT, on the way back to the program: all of them are valid.
// Therefore registers are saved and restored only at the latter.
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

  // Seizes and stops it. `errno_out`: errno of ptrace if it is refused.
  Status seize(int& errno_out);

  // Lets it run until it is about to enter a system call in which a thread only waits, and stops
  // it there, before the call or after it, with all signals blocked except those that a fault
  // raises. False if the deadline comes first; the thread is then released. `only_known`: not in a
  // wait of which it is unknown which call it continues.
  Result<bool> reach_safe_point(const SafeCalls& calls, Deadline deadline, bool only_known);

  // The following functions only at a safe point.

  // Makes the thread execute a system call. Returns the kernel's result, including negative errors;
  // an Error if a signal (SIGSYS of seccomp) or the end of the thread came instead.
  Result<int64_t> system_call(const SystemCall& call, Deadline deadline);

  // Runs the stub's call until it returns; its result. At the deadline the thread is taken out of
  // the function.
  Result<int64_t> stub_call(uint64_t code, size_t code_bytes, uint64_t function,
                            std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame,
                            Deadline deadline);

  // The frame by which the thread restores itself if this process dies meanwhile.
  std::vector<uint8_t> frame_for_return(uint64_t address) const;

  // Restores everything and detaches: the interrupted call is entered as if for the first time.
  void leave() { leave(0); }

 private:
  // kHalted: the whole process was stopped from outside (SIGSTOP).
  enum class Stop { kNone, kEntry, kExit, kInterrupted, kHalted, kSignal, kGone };

  // `signal`: the one that a signal-delivery stop was about.
  void leave(int signal);
  Stop wait(Deadline deadline);
  Stop resume(int request, int signal, Deadline deadline);
  // From any stop, or from running, to the stop after PTRACE_INTERRUPT.
  bool interrupt(Deadline deadline);
  // For a thread that runs its own program; a call interrupted only by the stop is restarted.
  bool interrupt_running(Deadline deadline);
  void note_call(const Registers& registers);
  // The number of the call that the thread continues, or is about to enter. -1: unknown.
  int64_t restarted_number(const SafeCalls& calls, uint64_t instruction, int64_t entered) const;
  bool stop_at_call(const SafeCalls& calls);
  bool save_registers(const SafeCalls& calls, uint64_t instruction, const SystemCall& call);
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
  int64_t call_ = -1;     // the last call entered, not counting restart_syscall
  bool saved_ = false;
  Registers registers_{};   // to be restored
  Registers for_return_{};  // what rt_sigreturn restores
  bool knows_call_ = true;  // whether it is known which call for_return_ restarts
  uint64_t mask_ = 0;
  bool masked_ = false;
  std::vector<RegisterSet> vectors_;
  ReturnPath way_back_;    // its frame is 0 if there is none
  std::vector<int> kept_;  // signals received meanwhile, to be sent again at the end
};

}  // namespace tidemark::inject
