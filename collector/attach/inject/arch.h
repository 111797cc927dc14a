// The differences between x86-64 and aarch64 when one process controls a thread of another:
// registers, the system call instruction, and the few instructions that run inside the target.
#pragma once

#include <sys/user.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "tidemark knows x86-64 and aarch64 only"
#endif

namespace tidemark::inject {

using Registers = user_regs_struct;

struct SystemCall {
  int64_t number = -1;
  std::array<uint64_t, 6> arguments{};
};

// One of the kernel's register sets, as read.
struct RegisterSet {
  int type = 0;  // NT_…
  std::vector<uint8_t> bytes;
};

// Those that a called function may change, apart from the general registers.
std::span<const int> vector_register_sets();

uint64_t program_counter(const Registers& registers);
uint64_t stack_pointer(const Registers& registers);
// The result of a function or a system call.
uint64_t result_of(const Registers& registers);

// At the stop before the kernel executes the call.
SystemCall entered_call(const Registers& registers);
// The instruction that enters the kernel is directly before the program counter there.
inline constexpr size_t kSystemCallBytes = sizeof(uint32_t);
bool ends_with_system_call(std::span<const uint8_t, kSystemCallBytes> bytes_before_pc);
// The address of that instruction, given the program counter after it.
uint64_t system_call_address(uint64_t pc_after);

// The call number that the code directly before that instruction loads; -1 if it does not.
inline constexpr size_t kLoadBytes = 5;
int64_t loaded_number(std::span<const uint8_t, kLoadBytes> bytes_before_instruction);

// Sets the registers as at the instruction itself, about to enter the kernel.
void set_before_call(Registers& registers, uint64_t instruction, const SystemCall& call);
// Whether these registers, written while the thread enters a call, make the kernel skip that call:
// on aarch64 that needs a second write, and a tracer that dies between the two spoils the call.
#if defined(__x86_64__)
inline constexpr bool kRegistersSkipCall = true;
#else
inline constexpr bool kRegistersSkipCall = false;
#endif

// After a system call that a stop has interrupted: sets the registers as if it had not been entered
// yet. `before` is that call: aarch64 has overwritten its first argument. False if it was another
// call.
bool restart_call(Registers& registers, const SystemCall& before);

// The instructions by which a signal handler returns: in the C library or in the kernel's page.
std::span<const uint8_t> signal_return_code();
// A system call directly followed by a return; every C library has some.
std::span<const uint8_t> call_and_return_code();

// Lets the thread restore its state without the tracer: rt_sigreturn, with a signal frame on its
// own stack.
struct ReturnPath {
  uint64_t call_and_return = 0;  // addresses of the code above
  uint64_t signal_return = 0;
  uint64_t frame = 0;
};
// Returns at once.
void set_return(Registers& registers, const ReturnPath& path);
// Executes a system call, then returns.
void set_returning_call(Registers& registers, const ReturnPath& path, const SystemCall& call);
// Whether a shadow stack checks returns: that path would then be a fault.
bool has_shadow_stack(std::span<const RegisterSet> vectors);
// Bytes below the stack pointer that a function may use without moving it.
inline constexpr uint64_t kRedZoneBytes = 128;

// --- Code that runs in the target. It knows no addresses except those it is given.

// Data of the second thread, in the target; this process reads and writes it too.
struct LoaderBlock {
  uint64_t dlopen = 0;
  uint64_t dlsym = 0;
  uint64_t dlerror = 0;
  uint64_t pthread_self = 0;
  uint64_t pthread_detach = 0;
  uint64_t usleep = 0;
  uint64_t munmap = 0;
  uint64_t mapping = 0;
  uint64_t mapping_bytes = 0;
  uint64_t path = 0;
  uint64_t function = 0;
  // Results.
  uint64_t handle = 0;
  uint64_t returned = 0;
  uint64_t error = 0;  // the address of dlerror()'s text
  uint64_t stage = 0;  // a Stage
  // Set by this process once it has read the results.
  uint64_t acknowledged = 0;
  // Flags for dlopen; __libc_dlopen_mode needs one more.
  uint64_t flags = 0;
};
enum Stage : uint64_t { kNotBegun = 0, kLoading = 1, kDone = 2 };
static_assert(sizeof(LoaderBlock) == 17 * 8, "the code counts in words");

struct StubCode {
  std::span<const uint8_t> bytes;
  // Calls a function, then makes a system call at which the tracer stops it; without a tracer it
  // continues to rt_sigreturn, which restores the thread.
  size_t call_offset;
  // The start routine of the second thread; its argument is a LoaderBlock.
  size_t thread_offset;
};
StubCode stub_code();

// Sets the registers for the call of StubCode: `code` with a stack that grows down from `stack`,
// and the signal frame for the return.
void set_stub_call(Registers& registers, uint64_t code, uint64_t function,
                   std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame);

// The frame that rt_sigreturn reads at `address` (64-byte aligned) to restore registers, vectors
// and mask. `signal_return`: where a `ret` with the stack pointer at `address` goes.
std::vector<uint8_t> return_frame(const Registers& registers, std::span<const RegisterSet> vectors,
                                  uint64_t signal_mask, uint64_t address,
                                  uint64_t signal_return = 0);

// The ELF machine number of this process.
uint16_t own_machine();

}  // namespace tidemark::inject
