#if defined(__x86_64__)
#include <cpuid.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collector/attach/inject/arch.h"

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif
#ifndef NT_X86_SHSTK
#define NT_X86_SHSTK 0x204
#endif

// rdi … are the arguments, rax the function, r12 the signal frame. Calls and returns are paired, so
// that a shadow stack stays consistent.
asm(R"(
  .pushsection .rodata
  .balign 16
  .globl tidemark_stub_begin, tidemark_stub_thread, tidemark_stub_end
  .hidden tidemark_stub_begin, tidemark_stub_thread, tidemark_stub_end
tidemark_stub_begin:
  call *%rax
  mov %rax, %rdi           # the result, where the tracer looks for it
  mov $39, %eax            # getpid: where the tracer waits
  syscall
  mov %r12, %rsp
  mov $15, %eax            # rt_sigreturn
  syscall
  hlt

  .balign 16
tidemark_stub_thread:
  .byte 0xf3, 0x0f, 0x1e, 0xfa   # endbr64
  push %rbx
  push %r12
  sub $8, %rsp
  mov %rdi, %rbx
  movq $1, 112(%rbx)
  call *24(%rbx)           # pthread_self
  mov %rax, %rdi
  call *32(%rbx)           # pthread_detach
  mov 72(%rbx), %rdi
  mov 128(%rbx), %rsi
  call *0(%rbx)            # dlopen
  mov %rax, 88(%rbx)
  test %rax, %rax
  jz 1f
  mov %rax, %rdi
  mov 80(%rbx), %rsi
  call *8(%rbx)            # dlsym
  test %rax, %rax
  jz 1f
  call *%rax
  cltq
  mov %rax, 96(%rbx)
  jmp 2f
1:
  call *16(%rbx)           # dlerror
  mov %rax, 104(%rbx)
2:
  movq $2, 112(%rbx)
  mov $10000, %r12d        # of 1 ms, if there is no answer
3:
  cmpq $0, 120(%rbx)
  jne 4f
  dec %r12d
  jz 4f
  mov $1000, %edi
  call *40(%rbx)           # usleep
  jmp 3b
4:
  mov 48(%rbx), %rax       # munmap, which returns to our caller: this code is gone by then
  mov 56(%rbx), %rdi
  mov 64(%rbx), %rsi
  add $8, %rsp
  pop %r12
  pop %rbx
  jmp *%rax
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
  // Each fails if the machine or the kernel does not have it. The last is the pointer of the shadow
  // stack: it matters if a call is abandoned halfway.
  static constexpr int kSets[] = {NT_PRFPREG, NT_X86_XSTATE, NT_X86_SHSTK};
  return kSets;
}

uint64_t program_counter(const Registers& r) {
  return r.rip;
}

uint64_t stack_pointer(const Registers& r) {
  return r.rsp;
}

uint64_t result_of(const Registers& r) {
  return r.rax;
}

SystemCall entered_call(const Registers& r) {
  return {static_cast<int64_t>(r.orig_rax), {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9}};
}

bool ends_with_system_call(std::span<const uint8_t, kSystemCallBytes> bytes) {
  return bytes[2] == 0x0f && bytes[3] == 0x05;  // syscall; int 0x80 has other registers
}

uint64_t system_call_address(uint64_t pc_after) {
  return pc_after - 2;
}

int64_t loaded_number(std::span<const uint8_t, kLoadBytes> bytes) {
  if (bytes[0] != 0xb8) return -1;  // mov $…, %eax
  int32_t number = -1;
  std::memcpy(&number, &bytes[1], sizeof number);
  return number;
}

void set_before_call(Registers& r, uint64_t instruction, const SystemCall& call) {
  r.rip = instruction;
  r.rax = static_cast<uint64_t>(call.number);
  r.orig_rax = ~uint64_t{0};  // not in a system call: nothing for the kernel to restart
  r.rdi = call.arguments[0];
  r.rsi = call.arguments[1];
  r.rdx = call.arguments[2];
  r.r10 = call.arguments[3];
  r.r8 = call.arguments[4];
  r.r9 = call.arguments[5];
}

bool restart_call(Registers& r, const SystemCall& before) {
  const SystemCall call = entered_call(r);
  if (call.number != before.number || call.arguments != before.arguments) return false;
  r.rip -= 2;
  r.rax = static_cast<uint64_t>(before.number);
  r.orig_rax = ~uint64_t{0};
  return true;
}

std::span<const uint8_t> signal_return_code() {
  // mov $15, %rax; syscall
  static constexpr uint8_t kCode[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
  return kCode;
}

std::span<const uint8_t> call_and_return_code() {
  // syscall; ret
  static constexpr uint8_t kCode[] = {0x0f, 0x05, 0xc3};
  return kCode;
}

void set_return(Registers& r, const ReturnPath& path) {
  r.rip = path.signal_return;
  r.orig_rax = ~uint64_t{0};
  r.rsp = path.frame + 8;  // as after the return of the handler
}

void set_returning_call(Registers& r, const ReturnPath& path, const SystemCall& call) {
  set_before_call(r, path.call_and_return, call);
  r.rsp = path.frame;  // its first word is where `ret` goes
}

bool has_shadow_stack(std::span<const RegisterSet> vectors) {
  for (const RegisterSet& set : vectors) {
    if (set.type == NT_X86_SHSTK && !set.bytes.empty()) return true;
  }
  return false;
}

StubCode stub_code() {
  return {{tidemark_stub_begin, tidemark_stub_end},
          0,
          static_cast<size_t>(tidemark_stub_thread - tidemark_stub_begin)};
}

void set_stub_call(Registers& r, uint64_t code, uint64_t function,
                   std::span<const uint64_t> arguments, uint64_t stack, uint64_t frame) {
  unsigned long long* const places[] = {&r.rdi, &r.rsi, &r.rdx, &r.rcx, &r.r8, &r.r9};
  for (size_t i = 0; i < arguments.size(); ++i) *places[i] = arguments[i];
  r.rax = function;
  r.orig_rax = ~uint64_t{0};
  r.r12 = frame + 8;  // rt_sigreturn expects the frame 8 below: a return address is popped
  r.rbp = 0;          // stack unwinding ends here
  r.rsp = stack & ~uint64_t{15};
  r.eflags &= ~uint64_t{0x400};  // the direction flag is clear at every call
  r.rip = code;
}

namespace {

// The kernel's description of the vector state that follows (struct _fpx_sw_bytes).
struct VectorNote {
  uint32_t magic;
  uint32_t extended_bytes;
  uint64_t features;
  uint32_t state_bytes;
  uint32_t unused[7];
};
static_assert(sizeof(VectorNote) == 48);

constexpr size_t kNoteOffset = 464;
constexpr uint32_t kMagicAtStart = 0x46505853;
constexpr uint32_t kMagicAtEnd = 0x46505845;

constexpr size_t kHeaderOffset = 512;
constexpr size_t kHeaderEnd = 576;
constexpr uint64_t kTileData = uint64_t{1} << 18;

// The size up to the end of the last of these parts.
size_t state_bytes(uint64_t features) {
  size_t end = kHeaderEnd;
  for (unsigned part = 2; part < 63; ++part) {
    unsigned size = 0;
    unsigned offset = 0;
    unsigned more = 0;
    unsigned unused = 0;
    if ((features >> part & 1) == 0 ||
        __get_cpuid_count(0xd, part, &size, &offset, &more, &unused) == 0) {
      continue;
    }
    end = std::max<size_t>(end, offset + size);
  }
  return end;
}

// In the layout of a signal frame: with the note, and the magic word at the end.
std::vector<uint8_t> signal_state(std::span<const RegisterSet> vectors) {
  for (const RegisterSet& set : vectors) {
    if (set.type != NT_X86_XSTATE || set.bytes.size() < kHeaderEnd) continue;
    std::vector<uint8_t> bytes = set.bytes;
    VectorNote note{};
    std::memcpy(&note.features, bytes.data() + kNoteOffset, sizeof note.features);
    uint64_t used = 0;
    std::memcpy(&used, bytes.data() + kHeaderOffset, sizeof used);
    // A thread that never used the tiles has no space for them, and the kernel treats a frame that
    // is larger than its space as one of the oldest kind, without wide registers.
    if ((used & kTileData) == 0) note.features &= ~kTileData;
    bytes.resize(std::min(bytes.size(), state_bytes(note.features)));
    note.magic = kMagicAtStart;
    note.state_bytes = static_cast<uint32_t>(bytes.size());
    note.extended_bytes = note.state_bytes + 4;
    std::memcpy(bytes.data() + kNoteOffset, &note, sizeof note);
    bytes.resize(bytes.size() + 4);
    std::memcpy(bytes.data() + note.state_bytes, &kMagicAtEnd, 4);
    return bytes;
  }
  return {};
}

}  // namespace

std::vector<uint8_t> return_frame(const Registers& r, std::span<const RegisterSet> vectors,
                                  uint64_t signal_mask, uint64_t address, uint64_t signal_return) {
  constexpr size_t kContext = 8;      // after the return address of the handler
  constexpr size_t kVectors = 0x400;  // 64-byte aligned, after context and siginfo
  static_assert(kContext + sizeof(ucontext_t) <= kVectors);
  const std::vector<uint8_t> state = signal_state(vectors);
  ucontext_t context{};
  context.uc_flags = state.empty() ? 6 : 7;  // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
  // An invalid mode: the kernel rejects it and leaves the alternate stack unchanged.
  context.uc_stack.ss_flags = 7;
  greg_t* const g = context.uc_mcontext.gregs;
  const auto set = [&](int place, uint64_t value) { g[place] = static_cast<greg_t>(value); };
  set(REG_R8, r.r8), set(REG_R9, r.r9), set(REG_R10, r.r10), set(REG_R11, r.r11);
  set(REG_R12, r.r12), set(REG_R13, r.r13), set(REG_R14, r.r14), set(REG_R15, r.r15);
  set(REG_RDI, r.rdi), set(REG_RSI, r.rsi), set(REG_RBP, r.rbp), set(REG_RBX, r.rbx);
  set(REG_RDX, r.rdx), set(REG_RAX, r.rax), set(REG_RCX, r.rcx), set(REG_RSP, r.rsp);
  set(REG_RIP, r.rip), set(REG_EFL, r.eflags);
  set(REG_CSGSFS, r.cs | r.gs << 16 | r.fs << 32 | r.ss << 48);
  if (!state.empty()) {
    const uint64_t place = address + kVectors;
    std::memcpy(&context.uc_mcontext.fpregs, &place, sizeof place);
  }
  std::memcpy(&context.uc_sigmask, &signal_mask, sizeof signal_mask);
  std::vector<uint8_t> bytes(kVectors + state.size());
  std::memcpy(bytes.data(), &signal_return, sizeof signal_return);
  std::memcpy(bytes.data() + kContext, &context, sizeof context);
  std::copy(state.begin(), state.end(), bytes.begin() + kVectors);
  return bytes;
}

uint16_t own_machine() {
  return EM_X86_64;
}

}  // namespace tidemark::inject
#endif
