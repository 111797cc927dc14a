// What differs between x86-64 and aarch64 when one process drives a thread of another: registers,
// the instruction of a system call, and the few instructions that run inside the target.
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

// One of the kernel's sets of registers, as it was read.
struct RegisterSet {
  int type = 0;  // NT_…
  std::vector<uint8_t> bytes;
};

// Besides the general registers: those that a called function may change.
std::span<const int> vector_register_sets();

uint64_t program_counter(const Registers& registers);
uint64_t stack_pointer(const Registers& registers);
// What a function or a system call returned.
uint64_t result_of(const Registers& registers);

// At the stop before the kernel carries it out.
SystemCall entered_call(const Registers& registers);
// The instruction that enters the kernel lies right before the program counter there.
inline constexpr size_t kSystemCallBytes = sizeof(uint32_t);
bool ends_with_system_call(std::span<const uint8_t, kSystemCallBytes> bytes_before_pc);
// Its address, when the program counter is behind it.
uint64_t system_call_address(uint64_t pc_behind);

// The number that the code right before that instruction loads; -1: it lies elsewhere.
inline constexpr size_t kLoadBytes = 5;
int64_t loaded_number(std::span<const uint8_t, kLoadBytes> bytes_before_instruction);

// As at the instruction itself, about to enter the kernel.
void set_before_call(Registers& registers, uint64_t instruction, const SystemCall& call);
// Makes the kernel pass over the call that the thread is entering, once set_before_call()'s
// registers have been written. False: see errno.
bool skip_entered_call(int thread);

// Behind a system call that a stop broke off: as if it had not been entered yet. `before`: what it
// was, since aarch64 has overwritten its first argument. False when that was another call.
bool begin_anew(Registers& registers, const SystemCall& before);

// The instructions by which a signal handler goes back: in the C library or in the kernel's page.
std::span<const uint8_t> signal_return_code();
// A system call and a return right behind it; every C library has some.
std::span<const uint8_t> call_and_return_code();

// A way for the thread to become what it was without anybody's help: rt_sigreturn, with a signal
// frame on its own stack.
struct ReturnPath {
  uint64_t call_and_return = 0;  // addresses of the code above
  uint64_t signal_return = 0;
  uint64_t frame = 0;
};
// Straight back.
void set_return(Registers& registers, const ReturnPath& path);
// A system call, and back.
void set_returning_call(Registers& registers, const ReturnPath& path, const SystemCall& call);
// Whether a shadow stack watches over returns: that path would be a fault.
bool has_shadow_stack(std::span<const RegisterSet> vectors);
// Below the stack pointer, what a function may use without moving it.
inline constexpr uint64_t kRedZoneBytes = 128;

// --- Code that runs in the target. It knows no address but what it is given.

// What the second thread works with; lies in the target, read and written from outside as well.
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
  // Answers.
  uint64_t handle = 0;
  uint64_t returned = 0;
  uint64_t error = 0;  // the address of dlerror()'s text
  uint64_t stage = 0;  // a Stage
  // Set from outside once the answers have been read.
  uint64_t acknowledged = 0;
  // dlopen's flags; __libc_dlopen_mode wants one more.
  uint64_t flags = 0;
};
enum Stage : uint64_t { kNotBegun = 0, kLoading = 1, kDone = 2 };
static_assert(sizeof(LoaderBlock) == 17 * 8, "the code counts in words");

struct StubCode {
  std::span<const uint8_t> bytes;
  // Calls a function and comes back through a system call that the tracer stops; without a tracer
  // it goes on to rt_sigreturn, which puts the thread back where it was.
  size_t call_offset;
  // The start routine of the second thread; its argument is a LoaderBlock.
  size_t thread_offset;
};
StubCode stub_code();

// Registers for StubCode's call: `code` with a stack that grows down from `stack`, and the signal
// frame for the way back.
void set_stub_call(Registers& registers, uint64_t code, uint64_t function,
                   std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame);

// What rt_sigreturn reads at `address` (64-byte aligned) to restore registers, vectors and mask.
// `signal_return`: where a `ret` with the stack pointer there leads to.
std::vector<uint8_t> return_frame(const Registers& registers, std::span<const RegisterSet> vectors,
                                  uint64_t signal_mask, uint64_t address,
                                  uint64_t signal_return = 0);

// ELF's number of this machine.
uint16_t own_machine();

}  // namespace tidemark::inject
