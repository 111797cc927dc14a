#if defined(__aarch64__)
#include <asm/sigcontext.h>
#include <elf.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cstring>

#include "collector/attach/inject/arch.h"

#ifndef NT_ARM_SVE
#define NT_ARM_SVE 0x405
#endif

// x0 … are the arguments, x9 the function, x19 the signal frame. The last jump uses x16:
// BTI-guarded code accepts it as a branch from a procedure linkage table.
asm(R"(
  .pushsection .rodata
  .balign 16
  .globl tidemark_stub_begin, tidemark_stub_thread, tidemark_stub_end
  .hidden tidemark_stub_begin, tidemark_stub_thread, tidemark_stub_end
tidemark_stub_begin:
  blr x9
  mov x8, #172             // getpid: where the tracer waits; x0 is the result
  svc #0
  mov sp, x19
  mov x8, #139             // rt_sigreturn
  svc #0
  brk #0

tidemark_stub_thread:
  stp x29, x30, [sp, #-48]!
  mov x29, sp
  stp x19, x20, [sp, #16]
  mov x19, x0
  mov x0, #1
  add x9, x19, #112
  stlr x0, [x9]
  ldr x9, [x19, #24]       // pthread_self
  blr x9
  ldr x9, [x19, #32]       // pthread_detach
  blr x9
  ldr x0, [x19, #72]
  ldr x1, [x19, #128]
  ldr x9, [x19, #0]        // dlopen
  blr x9
  str x0, [x19, #88]
  cbz x0, 1f
  ldr x1, [x19, #80]
  ldr x9, [x19, #8]        // dlsym
  blr x9
  cbz x0, 1f
  blr x0
  sxtw x0, w0
  str x0, [x19, #96]
  b 2f
1:
  ldr x9, [x19, #16]       // dlerror
  blr x9
  str x0, [x19, #104]
2:
  mov x0, #2
  add x9, x19, #112
  stlr x0, [x9]
  mov w20, #10000          // of 1 ms, if there is no answer
3:
  add x9, x19, #120
  ldar x0, [x9]
  cbnz x0, 4f
  subs w20, w20, #1
  b.eq 4f
  mov w0, #1000
  ldr x9, [x19, #40]       // usleep
  blr x9
  b 3b
4:
  ldr x16, [x19, #48]      // munmap, which returns to our caller: this code is gone by then
  ldr x0, [x19, #56]
  ldr x1, [x19, #64]
  ldp x19, x20, [sp, #16]
  ldp x29, x30, [sp], #48
  br x16
tidemark_stub_end:
  .popsection
)");
extern "C" {
extern const uint8_t tidemark_stub_begin[];
extern const uint8_t tidemark_stub_thread[];
extern const uint8_t tidemark_stub_end[];
}

namespace tidemark::inject {

std::span<const int> vector_register_sets() {
  // The second fails on machines without SVE. Where it exists it is written last, and its header
  // says whether it contains more than the first.
  static constexpr int kSets[] = {NT_PRFPREG, NT_ARM_SVE};
  return kSets;
}

uint64_t program_counter(const Registers& r) {
  return r.pc;
}

uint64_t stack_pointer(const Registers& r) {
  return r.sp;
}

uint64_t result_of(const Registers& r) {
  return r.regs[0];
}

SystemCall entered_call(const Registers& r) {
  SystemCall call;
  call.number = static_cast<int32_t>(r.regs[8]);
  for (size_t i = 0; i < call.arguments.size(); ++i) call.arguments[i] = r.regs[i];
  return call;
}

bool ends_with_system_call(std::span<const uint8_t, kSystemCallBytes> bytes) {
  constexpr uint32_t kSvc = 0xd4000001;
  return std::memcmp(bytes.data(), &kSvc, sizeof kSvc) == 0;
}

uint64_t system_call_address(uint64_t pc_after) {
  return pc_after - 4;
}

int64_t loaded_number(std::span<const uint8_t, kLoadBytes> bytes) {
  uint32_t code = 0;
  std::memcpy(&code, &bytes[kLoadBytes - sizeof code], sizeof code);
  if ((code & 0x7fe0001f) != 0x52800008) return -1;  // mov x8 or w8, #…
  return code >> 5 & 0xffff;
}

void set_before_call(Registers& r, uint64_t instruction, const SystemCall& call) {
  r.pc = instruction;
  r.regs[8] = static_cast<uint64_t>(call.number);
  for (size_t i = 0; i < call.arguments.size(); ++i) r.regs[i] = call.arguments[i];
}

bool restart_call(Registers& r, const SystemCall& before) {
  r.pc -= 4;
  r.regs[0] = before.arguments[0];
  const SystemCall call = entered_call(r);
  return call.number == before.number && call.arguments == before.arguments;
}

std::span<const uint8_t> signal_return_code() {
  // mov x8, #139; svc #0
  static constexpr uint8_t kCode[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};
  return kCode;
}

std::span<const uint8_t> call_and_return_code() {
  // svc #0; ret
  static constexpr uint8_t kCode[] = {0x01, 0x00, 0x00, 0xd4, 0xc0, 0x03, 0x5f, 0xd6};
  return kCode;
}

void set_return(Registers& r, const ReturnPath& path) {
  r.pc = path.signal_return;
  r.sp = path.frame;
}

void set_returning_call(Registers& r, const ReturnPath& path, const SystemCall& call) {
  set_before_call(r, path.call_and_return, call);
  r.regs[30] = path.signal_return;
  r.sp = path.frame;
}

bool has_shadow_stack(std::span<const RegisterSet>) {
  return false;
}

StubCode stub_code() {
  return {{tidemark_stub_begin, tidemark_stub_end},
          0,
          static_cast<size_t>(tidemark_stub_thread - tidemark_stub_begin)};
}

void set_stub_call(Registers& r, uint64_t code, uint64_t function,
                   std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame) {
  for (size_t i = 0; i < arguments.size(); ++i) r.regs[i] = arguments[i];
  r.regs[8] = 0;
  r.regs[9] = function;
  r.regs[19] = frame;
  r.regs[29] = 0;  // stack unwinding ends here
  r.regs[30] = 0;
  r.sp = stack & ~uint64_t{15};
  r.pc = code;
}

std::vector<uint8_t> return_frame(const Registers& r, std::span<const RegisterSet> vectors,
                                  uint64_t signal_mask, uint64_t, uint64_t) {
  constexpr size_t kSiginfoBytes = 128;
  ucontext_t context{};
  // An invalid mode: the kernel rejects it and leaves the alternate stack unchanged.
  context.uc_stack.ss_flags = 7;
  std::memcpy(&context.uc_sigmask, &signal_mask, sizeof signal_mask);
  std::memcpy(context.uc_mcontext.regs, r.regs, sizeof r.regs);
  context.uc_mcontext.sp = r.sp;
  context.uc_mcontext.pc = r.pc;
  context.uc_mcontext.pstate = r.pstate;
  fpsimd_context simd{};
  simd.head = {FPSIMD_MAGIC, sizeof simd};
  for (const RegisterSet& set : vectors) {
    if (set.type != NT_PRFPREG || set.bytes.size() < sizeof(user_fpsimd_struct)) continue;
    user_fpsimd_struct values;
    std::memcpy(&values, set.bytes.data(), sizeof values);
    simd.fpsr = values.fpsr;
    simd.fpcr = values.fpcr;
    std::memcpy(simd.vregs, values.vregs, sizeof simd.vregs);
  }
  std::memcpy(context.uc_mcontext.__reserved, &simd, sizeof simd);
  std::vector<uint8_t> bytes(kSiginfoBytes + sizeof context);
  std::memcpy(bytes.data() + kSiginfoBytes, &context, sizeof context);
  return bytes;
}

uint16_t own_machine() {
  return EM_AARCH64;
}

}  // namespace tidemark::inject
#endif
