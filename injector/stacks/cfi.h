// Call frame information: how to step from a function to its caller, read from .eh_frame.
//
// Why not libgcc's _Unwind_Backtrace: inside a guest it has three faults. It reads whatever address
// broken unwind tables lead it to, and faults; it calls abort() on an opcode it does not know; and
// since GCC 12 its static copy needs _dl_find_object of glibc 2.35. This reader checks every
// address, gives up on what it does not understand, allocates nothing and takes no lock. Tables:
// LSB Core "Exception Frames", DWARF 5 §6.4, and the DWARF ABI supplements of the two processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

// Registers have their DWARF numbers.
#if defined(__x86_64__)
inline constexpr uint32_t kRegisterCount = 17;
inline constexpr uint32_t kReturnRegister = 16;  // a column of the tables only: the return address
inline constexpr uint32_t kStackRegister = 7;
#elif defined(__aarch64__)
inline constexpr uint32_t kRegisterCount = 32;
inline constexpr uint32_t kReturnRegister = 30;  // x30, lr
inline constexpr uint32_t kStackRegister = 31;
#else
#error "tidemark unwinds x86-64 and aarch64 only"
#endif

// Where a module keeps its tables. `table_begin..table_end` is the loaded segment that holds them:
// nothing outside of it is read.
struct UnwindTables {
  const uint8_t* header = nullptr;  // .eh_frame_hdr (PT_GNU_EH_FRAME)
  const uint8_t* segment_begin = nullptr;
  const uint8_t* segment_end = nullptr;
};

enum class RuleKind : uint8_t {
  kSame,             // the callee has not touched it
  kUndefined,        // lost; for the return address: the outermost frame
  kAtCfa,            // saved at CFA + value
  kCfaPlus,          // is CFA + value
  kRegister,         // in register `value`
  kAtExpression,     // saved where the expression at `expression` says
  kExpressionValue,  // is what the expression says
};

struct Rule {
  RuleKind kind = RuleKind::kSame;
  int32_t value = 0;
  const uint8_t* expression = nullptr;  // its ULEB128 length, then its bytes
};

// The rules that hold at one program counter.
struct FrameRules {
  // kRegister here: register + offset. kExpressionValue: computed.
  Rule cfa;
  uint32_t cfa_register = 0;
  Rule registers[kRegisterCount];
  bool signal_frame = false;  // the caller was interrupted, it did not make a call

  bool has_expressions() const noexcept;
};

// False when the module has no (usable) description of the function at `pc`.
bool find_frame_rules(const UnwindTables& tables, uintptr_t pc, FrameRules& out) noexcept;

struct Registers {
  uint64_t value[kRegisterCount] = {};
  uintptr_t pc = 0;
};

// Reads words of the stack that is being unwound, and nothing that could fault: each 4 KiB piece
// is probed with a system call before its first use. `rt_sigprocmask` with an impossible `how`
// reads its argument and changes nothing (EFAULT: not readable); unlike process_vm_readv it is
// allowed under every seccomp profile. Works on any stack: threads, fibers, signal stacks.
class StackMemory {
 public:
  explicit StackMemory(uintptr_t stack_pointer) noexcept;
  bool read(uintptr_t address, uint64_t& out) noexcept;

 private:
  bool probe(uintptr_t piece) noexcept;

  uintptr_t lowest_;         // addresses below belong to nobody's frame
  uintptr_t highest_;        // a bound on how far wrong tables may lead
  uintptr_t readable_from_;  // probed pieces in one run
  uintptr_t readable_to_;
};

// Replaces the callee's registers by the caller's. False: the end of the stack, or nonsense.
bool step(const UnwindTables& tables, const FrameRules& rules, StackMemory& memory,
          Registers& registers) noexcept;

}  // namespace tidemark::injector
