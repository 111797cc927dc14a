#include "injector/stacks/unwinder.h"

#include <sys/auxv.h>

#include <atomic>
#include <cstring>

#include "injector/stacks/cfi.h"
#include "injector/stacks/modules.h"
#include "injector/stacks/rule_cache.h"

namespace tidemark::injector {
namespace {

// Most frames of tidemark, CUPTI and the driver above the caller's frame.
constexpr size_t kMaxToolFrames = 32;

RuleCache g_cache;

// Stores the registers of the function that uses the macro. A macro, because that function's frame
// must stay alive while its callers are walked.
#if defined(__x86_64__)
#define TIDEMARK_CAPTURE(registers)                                          \
  asm volatile(                                                              \
      "movq %%rbx, 24(%1)\n\tmovq %%rbp, 48(%1)\n\tmovq %%rsp, 56(%1)\n\t"   \
      "movq %%r12, 96(%1)\n\tmovq %%r13, 104(%1)\n\tmovq %%r14, 112(%1)\n\t" \
      "movq %%r15, 120(%1)\n\tleaq 0(%%rip), %%rax\n\tmovq %%rax, %0"        \
      : "=m"((registers).pc)                                                 \
      : "r"((registers).value)                                               \
      : "rax", "memory")
#else
#define TIDEMARK_CAPTURE(registers)                                                          \
  asm volatile(                                                                              \
      "stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\tstp x23, x24, [%0, #184]\n\t" \
      "stp x25, x26, [%0, #200]\n\tstp x27, x28, [%0, #216]\n\tstp x29, x30, [%0, #232]\n\t" \
      "mov x9, sp\n\tstr x9, [%0, #248]\n\tadr x9, .\n\tstr x9, [%1]"                        \
      :                                                                                      \
      : "r"((registers).value), "r"(&(registers).pc)                                         \
      : "x9", "memory")
#endif

class Walker {
 public:
  Walker(const ModuleView& modules, const Registers& start)
      : modules_(modules), registers_(start), memory_(start.value[kStackRegister]) {}

  uintptr_t pc() const { return registers_.pc; }
  const LoadedModule* module() const { return module_; }

  // An address inside the instruction that is being executed: a return address may already belong
  // to the next function, if the call never returns.
  uintptr_t lookup_pc() const { return exact_ ? registers_.pc : registers_.pc - 1; }

  // Finds the module and the rules of the current frame.
  void look() {
    const uintptr_t pc = lookup_pc();
    size_t index = 0;
    const bool cached = g_cache.find(pc, modules_.generation(), index, rules_);
    module_ = cached ? modules_.at(index) : nullptr;  // none in a view that is out of date
    known_ = module_ != nullptr;
    if (known_) return;
    module_ = modules_.find(pc);
    if (module_ == nullptr || !find_frame_rules(module_->tables, pc, rules_)) return;
    known_ = true;
    g_cache.keep(pc, modules_.generation(), modules_.index_of(*module_), rules_);
  }

  // Moves to the caller. False at the end of the stack.
  bool up() {
    if (!known_) return up_from_signal() || up_by_frame_pointer();
    const bool interrupted = rules_.signal_frame;
    if (!step(module_->tables, rules_, memory_, registers_)) return false;
    exact_ = interrupted;
    return true;
  }

 private:
  // On aarch64 the kernel's code that ends a signal handler has no tables. The registers of what
  // was interrupted are in the frame below the handler's: siginfo, then ucontext.
  bool up_from_signal() {
#if defined(__aarch64__)
    constexpr uint32_t kEndOfHandler[] = {0xd2801168, 0xd4000001};  // mov x8, #139; svc #0
    constexpr uint64_t kFirstRegister = 312;                        // x0 to x30, sp, pc
    // Only in the kernel's own library: others may have gaps that cannot be read.
    const uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    if (module_ == nullptr || vdso == 0 || modules_.find(vdso) != module_ ||
        registers_.pc % sizeof(uint32_t) != 0 ||
        modules_.find(registers_.pc + sizeof kEndOfHandler - 1) != module_ ||
        std::memcmp(reinterpret_cast<const void*>(registers_.pc), kEndOfHandler,
                    sizeof kEndOfHandler) != 0) {
      return false;
    }
    const uint64_t first = registers_.value[kStackRegister] + kFirstRegister;
    Registers interrupted;
    for (uint32_t i = 0; i < kRegisterCount; ++i) {
      if (!memory_.read(first + 8 * i, interrupted.value[i])) return false;
    }
    if (!memory_.read(first + 8 * kRegisterCount, interrupted.pc)) return false;
    registers_ = interrupted;
    exact_ = true;
    return true;
#else
    return false;
#endif
  }

  // Code without tables (generated at run time, hand-written) often keeps a frame pointer. It is
  // trusted only if it leads up the stack and into a known module.
  bool up_by_frame_pointer() {
#if defined(__x86_64__)
    constexpr uint32_t kFrameRegister = 6;
#else
    constexpr uint32_t kFrameRegister = 29;
#endif
    const uint64_t frame = registers_.value[kFrameRegister];
    uint64_t saved_frame = 0;
    uint64_t return_address = 0;
    if (frame < registers_.value[kStackRegister] || !memory_.read(frame, saved_frame) ||
        !memory_.read(frame + 8, return_address)) {
      return false;
    }
#if defined(__aarch64__)
    return_address &= (uint64_t{1} << 48) - 1;
#endif
    if (return_address == 0 || modules_.find(return_address - 1) == nullptr) return false;
    registers_.value[kFrameRegister] = saved_frame;
    registers_.value[kStackRegister] = frame + 16;
    registers_.value[kReturnRegister] = return_address;
    registers_.pc = return_address;
    exact_ = false;
    return true;
  }

  const ModuleView& modules_;
  Registers registers_;
  StackMemory memory_;
  FrameRules rules_;
  const LoadedModule* module_ = nullptr;
  bool known_ = false;
  bool exact_ = true;
};

// The frame that called the driver decides the owner; see owner.h.
class OwnerSearch {
 public:
  void see(const ModuleVerdict& verdict, const LoadedModule& module) {
    // ncclMemAlloc may call the driver through other functions of NCCL.
    if (owner_ == Owner::kNccl && verdict.owner == Owner::kNcclUser) owner_ = verdict.owner;
    if (decided_) return;
    if (verdict.role == ModuleRole::kOwner) {
      owner_ = verdict.owner;
      decided_ = true;
      torch_allocator_ = module.torch_allocator;
    } else if (verdict.role == ModuleRole::kInterpreter) {
      owner_ = Owner::kProgram;
    }
  }
  Owner owner() const { return owner_; }
  bool torch_allocator() const { return torch_allocator_; }

 private:
  Owner owner_ = Owner::kUnknown;
  bool torch_allocator_ = false;
  bool decided_ = false;
};

}  // namespace

__attribute__((noinline)) void capture_native_stack(NativeStack& out) noexcept {
  out.count = 0;
  Registers here;
  TIDEMARK_CAPTURE(here);
  const ModuleView modules;
  Walker walker(modules, here);
  OwnerSearch owner;
  size_t skipped = 0;
  do {
    walker.look();
    const LoadedModule* module = walker.module();
    const uintptr_t pc = walker.lookup_pc();
    if (module != nullptr) owner.see(module->verdict_at(pc), *module);
    const bool on_top = out.count == 0;
    if (on_top && module != nullptr && module->tool_side && skipped < kMaxToolFrames) {
      ++skipped;
      continue;
    }
    FrameKey& frame = out.frames[out.count++];
    frame = FrameKey();
    frame.kind = FrameKind::kNative;
    frame.module = module != nullptr ? module->id : 0;
    frame.offset = module != nullptr ? pc - module->base : pc;
  } while (out.count < kMaxNativeFrames && walker.up());
  out.owner = owner.owner();
  out.torch_allocator = owner.torch_allocator();
}

__attribute__((noinline)) size_t unwind_here(uintptr_t* pcs, size_t capacity) noexcept {
  Registers here;
  TIDEMARK_CAPTURE(here);
  const ModuleView modules;
  Walker walker(modules, here);
  size_t count = 0;
  while (count < capacity) {
    walker.look();
    pcs[count++] = walker.pc();
    if (!walker.up()) break;
  }
  return count;
}

void reset_unwinder() noexcept {
  g_cache.clear();
}

}  // namespace tidemark::injector
