// Call frame information: how to step from a function to its caller, read from .eh_frame.
//
// We do not use libgcc's _Unwind_Backtrace, because in somebody else's process it has three faults.
// It reads any address that broken unwind tables lead it to, and crashes. It calls abort() on an
// opcode it does not know. And since GCC 12 its static copy needs _dl_find_object of glibc 2.35.
// This reader checks every address, gives up on what it does not understand, allocates nothing and
// takes no lock. Sources for the tables: LSB Core "Exception Frames", DWARF 5 §6.4, and the DWARF
// ABI supplements of the two processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

// Registers have their DWARF numbers.
#if defined(__x86_64__)
inline constexpr uint32_t kRegisterCount = 17;
inline constexpr uint32_t kReturnRegister = 16;  // only a column of the tables: the return address
inline constexpr uint32_t kStackRegister = 7;
#elif defined(__aarch64__)
inline constexpr uint32_t kRegisterCount = 32;
inline constexpr uint32_t kReturnRegister = 30;  // x30, lr
inline constexpr uint32_t kStackRegister = 31;
#else
#error "tidemark unwinds x86-64 and aarch64 only"
#endif

// Where a module keeps its unwind tables. `segment_begin` … `segment_end` is the loaded segment
// that holds the header and the tables it points to: nothing outside of it is read.
struct UnwindTables {
  const uint8_t* header = nullptr;  // .eh_frame_hdr (PT_GNU_EH_FRAME)
  const uint8_t* segment_begin = nullptr;
  const uint8_t* segment_end = nullptr;
};

enum class RuleKind : uint8_t {
  kSame,             // unchanged by the callee
  kUndefined,        // lost; if it is the return address: outermost frame
  kAtCfa,            // saved at CFA + value
  kCfaPlus,          // is CFA + value
  kRegister,         // saved in register `value`
  kAtExpression,     // saved at the address that `expression` computes
  kExpressionValue,  // is the value that `expression` computes
};

struct Rule {
  RuleKind kind = RuleKind::kSame;
  int32_t value = 0;
  const uint8_t* expression = nullptr;  // points to a ULEB128 length, then the bytes
};

// The rules that apply at one program counter.
struct FrameRules {
  // kRegister: `cfa_register` + value. kExpressionValue: computed.
  Rule cfa;
  uint32_t cfa_register = 0;
  Rule registers[kRegisterCount];
  bool signal_frame = false;  // the caller was interrupted by a signal, it made no call

  bool has_expressions() const noexcept;
};

// False when the module has no usable description of the function at `pc`.
bool find_frame_rules(const UnwindTables& tables, uintptr_t pc, FrameRules& out) noexcept;

struct Registers {
  uint64_t value[kRegisterCount] = {};
  uintptr_t pc = 0;
};

// Reads words of the stack that is being unwound without ever faulting: each 4 KiB piece is probed
// with a system call before its first use. `rt_sigprocmask` with an invalid `how` reads its
// argument and changes nothing (EFAULT: not readable). Unlike process_vm_readv it is allowed under
// every seccomp profile. Works on any stack: threads, fibers, signal stacks.
class StackMemory {
 public:
  explicit StackMemory(uintptr_t stack_pointer) noexcept;
  bool read(uintptr_t address, uint64_t& out) noexcept;
  uint32_t probes() const noexcept { return probes_; }  // system calls so far

 private:
  bool probe(uintptr_t piece) noexcept;

  uintptr_t lowest_;         // addresses below belong to no frame
  uintptr_t highest_;        // how far broken tables may lead at most
  uintptr_t readable_from_;  // the contiguous range of probed pieces
  uintptr_t readable_to_;
  uint32_t probes_ = 0;
};

// Replaces the callee's registers with the caller's. False: end of the stack, or invalid tables.
bool step(const UnwindTables& tables, const FrameRules& rules, StackMemory& memory,
          Registers& registers) noexcept;

}  // namespace tidemark::injector
