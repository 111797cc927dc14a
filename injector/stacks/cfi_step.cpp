// Applies the rules of a frame: computes the caller's registers from the callee's.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "injector/stacks/cfi.h"
#include "injector/stacks/cfi_reader.h"

// A stack contains words that the sanitizers forbid to read (redzones, other frames).
#define TIDEMARK_READS_STACK __attribute__((no_sanitize("address", "thread", "undefined")))

namespace tidemark::injector {
namespace {

constexpr uintptr_t kPieceBytes = 4096;            // no page is smaller
constexpr uintptr_t kRedZoneBytes = 128;           // x86-64 has live words below the stack pointer
constexpr uintptr_t kFarthestBytes = 256ul << 20;  // a stack is not larger than this

TIDEMARK_READS_STACK uint64_t load_word(uintptr_t address) noexcept {
  return *reinterpret_cast<const volatile uint64_t*>(address);
}

// The DWARF stack machine, as far as compilers use it in .eh_frame: PLT entries, functions that
// realign their stack, and signal trampolines.
class ExpressionMachine {
 public:
  ExpressionMachine(const UnwindTables& tables, StackMemory& memory, const Registers& registers)
      : tables_(tables), memory_(memory), registers_(registers) {}

  bool evaluate(const uint8_t* expression, const uint64_t* initial, uint64_t& out) {
    CfiReader whole(expression, tables_.segment_begin, tables_.segment_end);
    CfiReader program = whole.take(whole.uleb());
    if (initial != nullptr) push(*initial);
    while (!program.at_end() && ok_) {
      ok_ = operation(program.fixed<uint8_t>(), program) && program.ok() && ok_;
    }
    out = pop();
    return ok_ && whole.ok();
  }

 private:
  bool operation(uint8_t code, CfiReader& program) {
    if (code >= 0x30 && code <= 0x4f) return push(code - 0x30u);  // DW_OP_lit0…31
    if (code >= 0x70 && code <= 0x8f) return push_register(code - 0x70u, program.sleb());
    switch (code) {
      case 0x08:
        return push(program.fixed<uint8_t>());
      case 0x09:
        return push_signed(program.fixed<int8_t>());
      case 0x0a:
        return push(program.fixed<uint16_t>());
      case 0x0b:
        return push_signed(program.fixed<int16_t>());
      case 0x0c:
        return push(program.fixed<uint32_t>());
      case 0x0d:
        return push_signed(program.fixed<int32_t>());
      case 0x0e:
      case 0x0f:
        return push(program.fixed<uint64_t>());
      case 0x10:
        return push(program.uleb());
      case 0x11:
        return push_signed(program.sleb());
      case 0x92: {
        const uint64_t number = program.uleb();
        return push_register(number, program.sleb());
      }
      case 0x06:
        return dereference();
      case 0x12:
        return size_ > 0 && push(stack_[size_ - 1]);
      case 0x13:
        pop();
        return true;
      case 0x14:
        return size_ > 1 && push(stack_[size_ - 2]);
      case 0x16:
        return swap();
      case 0x23:
        return push(pop() + program.uleb());
      case 0x96:
        return true;  // nop
      default:
        return binary(code);
    }
  }

  bool binary(uint8_t code) {
    const uint64_t right = pop();
    const uint64_t left = pop();
    const auto signed_left = static_cast<int64_t>(left);
    const auto signed_right = static_cast<int64_t>(right);
    switch (code) {
      case 0x1a:
        return push(left & right);
      case 0x1c:
        return push(left - right);
      case 0x1e:
        return push(left * right);
      case 0x21:
        return push(left | right);
      case 0x22:
        return push(left + right);
      case 0x24:
        return push(right < 64 ? left << right : 0);
      case 0x25:
        return push(right < 64 ? left >> right : 0);
      case 0x26:
        return push_signed(signed_left >> (right < 64 ? right : 63));
      case 0x27:
        return push(left ^ right);
      case 0x29:
        return push(left == right ? 1 : 0);
      case 0x2a:
        return push(signed_left >= signed_right ? 1 : 0);
      case 0x2b:
        return push(signed_left > signed_right ? 1 : 0);
      case 0x2c:
        return push(signed_left <= signed_right ? 1 : 0);
      case 0x2d:
        return push(signed_left < signed_right ? 1 : 0);
      case 0x2e:
        return push(left != right ? 1 : 0);
      default:
        return false;
    }
  }

  bool push_register(uint64_t number, int64_t offset) {
    if (number >= kRegisterCount) return false;
    // On x86-64 column 16 is the program counter of the frame itself.
    const uint64_t base = number == kReturnRegister && kReturnRegister != 30
                              ? registers_.pc
                              : registers_.value[number];
    return push(base + static_cast<uint64_t>(offset));
  }

  bool dereference() {
    uint64_t word = 0;
    return memory_.read(pop(), word) && push(word);
  }

  bool swap() {
    const uint64_t upper = pop();
    const uint64_t lower = pop();
    return push(upper) && push(lower);
  }

  bool push(uint64_t value) {
    if (size_ == kDepth) return false;
    stack_[size_++] = value;
    return true;
  }
  bool push_signed(int64_t value) { return push(static_cast<uint64_t>(value)); }

  uint64_t pop() {
    if (size_ == 0) {
      ok_ = false;
      return 0;
    }
    return stack_[--size_];
  }

  static constexpr uint32_t kDepth = 16;
  const UnwindTables& tables_;
  StackMemory& memory_;
  const Registers& registers_;
  uint64_t stack_[kDepth] = {};
  uint32_t size_ = 0;
  bool ok_ = true;
};

class Stepper {
 public:
  Stepper(const UnwindTables& tables, StackMemory& memory, const Registers& callee)
      : tables_(tables), memory_(memory), callee_(callee) {}

  bool find_cfa(const FrameRules& rules) {
    if (rules.cfa.kind == RuleKind::kExpressionValue) {
      return ExpressionMachine(tables_, memory_, callee_)
          .evaluate(rules.cfa.expression, nullptr, cfa_);
    }
    cfa_ = callee_.value[rules.cfa_register] + static_cast<uint64_t>(int64_t{rules.cfa.value});
    return true;
  }

  uint64_t cfa() const { return cfa_; }

  bool apply(const Rule& rule, uint64_t& value) {
    const uint64_t moved = cfa_ + static_cast<uint64_t>(int64_t{rule.value});
    switch (rule.kind) {
      case RuleKind::kSame:
        return true;
      case RuleKind::kUndefined:
        value = 0;
        return true;
      case RuleKind::kAtCfa:
        return memory_.read(moved, value);
      case RuleKind::kCfaPlus:
        value = moved;
        return true;
      case RuleKind::kRegister:
        value = callee_.value[static_cast<uint32_t>(rule.value)];
        return true;
      case RuleKind::kAtExpression: {
        uint64_t address = 0;
        return ExpressionMachine(tables_, memory_, callee_)
                   .evaluate(rule.expression, &cfa_, address) &&
               memory_.read(address, value);
      }
      case RuleKind::kExpressionValue:
        return ExpressionMachine(tables_, memory_, callee_).evaluate(rule.expression, &cfa_, value);
    }
    return false;
  }

 private:
  const UnwindTables& tables_;
  StackMemory& memory_;
  const Registers& callee_;
  uint64_t cfa_ = 0;
};

// aarch64 keeps a signature above the address bits of return addresses (pointer authentication).
uintptr_t without_signature(uint64_t address) noexcept {
#if defined(__aarch64__)
  return address & ((uint64_t{1} << 48) - 1);
#else
  return address;
#endif
}

}  // namespace

StackMemory::StackMemory(uintptr_t stack_pointer) noexcept
    : lowest_(stack_pointer - kRedZoneBytes),
      highest_(stack_pointer + kFarthestBytes),
      readable_from_(stack_pointer & ~(kPieceBytes - 1)),
      readable_to_(readable_from_ + kPieceBytes) {}  // the piece that this code is running on

bool StackMemory::read(uintptr_t address, uint64_t& out) noexcept {
  if (address < lowest_ || address >= highest_ || address % sizeof(uint64_t) != 0) return false;
  if (address < readable_from_ || address >= readable_to_) {
    const uintptr_t piece = address & ~(kPieceBytes - 1);
    if (!probe(piece)) return false;
    if (piece == readable_to_) {
      readable_to_ += kPieceBytes;
    } else if (piece + kPieceBytes == readable_from_) {
      readable_from_ = piece;
    } else {
      // A large frame was skipped. The walk goes on from here and does not come back.
      readable_from_ = piece;
      readable_to_ = piece + kPieceBytes;
    }
  }
  out = load_word(address);
  return true;
}

bool StackMemory::probe(uintptr_t piece) noexcept {
  constexpr int kNoSuchOperation = ~0;
  constexpr size_t kKernelSetBytes = 8;
  ++probes_;
  const int saved_errno = errno;
  const long answer =
      syscall(SYS_rt_sigprocmask, kNoSuchOperation, piece, nullptr, kKernelSetBytes);
  const bool readable = answer == 0 || errno != EFAULT;
  errno = saved_errno;
  return readable;
}

bool step(const UnwindTables& tables, const FrameRules& rules, StackMemory& memory,
          Registers& registers) noexcept {
  if (rules.registers[kReturnRegister].kind == RuleKind::kUndefined) return false;
  const Registers callee = registers;
  Stepper stepper(tables, memory, callee);
  if (!stepper.find_cfa(rules)) return false;
  // The stack grows down: a caller's frame never lies below its callee's.
  if (stepper.cfa() < callee.value[kStackRegister]) return false;
  for (uint32_t i = 0; i < kRegisterCount; ++i) {
    if (!stepper.apply(rules.registers[i], registers.value[i])) return false;
  }
  if (rules.registers[kStackRegister].kind == RuleKind::kSame) {
    registers.value[kStackRegister] = stepper.cfa();
  }
  registers.pc = without_signature(registers.value[kReturnRegister]);
  // A frame that moves neither the stack nor the program counter would never end the walk.
  return registers.pc != 0 && (registers.pc != callee.pc ||
                               registers.value[kStackRegister] != callee.value[kStackRegister]);
}

}  // namespace tidemark::injector
