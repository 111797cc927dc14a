// The shared objects of the process, as the unwinder needs them: who owns an address, where its
// unwind tables are, under which id the trace knows it.
//
// A reader pins an immutable snapshot. When the loader has added or removed an object since, the
// next reader makes a new one under a lock; readers of the old one are not disturbed, and a
// snapshot is reused only when nobody reads it. No allocation: snapshots live in static memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/stacks/cfi.h"
#include "injector/stacks/owner.h"

namespace tidemark::injector {

struct LoadedModule {
  uintptr_t begin = 0;  // of its loaded segments
  uintptr_t end = 0;
  uintptr_t base = 0;  // what the loader added to the addresses in the file
  UnwindTables tables;
  uintptr_t nccl_begin = 0;  // the part that is NCCL, linked into another library
  uintptr_t nccl_end = 0;
  uintptr_t nccl_user_begin = 0;  // ncclMemAlloc, where this module has it
  uintptr_t nccl_user_end = 0;
  uint32_t id = 0;  // of the Module row
  ModuleVerdict verdict{ModuleRole::kSilent, Owner::kUnknown};
  bool tool_side = false;  // tidemark, CUPTI, the driver: below the caller that is looked for

  bool torch_allocator = false;  // libc10_cuda: what it asks for is torch's, whoever called it

  ModuleVerdict verdict_at(uintptr_t pc) const noexcept {
    if (pc >= nccl_user_begin && pc < nccl_user_end) {
      return {ModuleRole::kOwner, Owner::kNcclUser};
    }
    if (pc >= nccl_begin && pc < nccl_end) return {ModuleRole::kOwner, Owner::kNccl};
    return verdict;
  }
};

// More modules than this are not known to the unwinder (and said so once in the trace).
inline constexpr size_t kMaxModules = 2048;

struct ModuleSnapshot {
  std::atomic<uint32_t> readers{0};
  uint64_t generation = 0;  // changes with every dlopen and dlclose that did something
  uint32_t count = 0;
  LoadedModule modules[kMaxModules];  // in order of their addresses
};

// Pins a snapshot while it lives. Short-lived, on the stack.
class ModuleView {
 public:
  ModuleView() noexcept;
  ~ModuleView();
  ModuleView(const ModuleView&) = delete;
  ModuleView& operator=(const ModuleView&) = delete;

  const LoadedModule* find(uintptr_t pc) const noexcept;
  const LoadedModule* at(size_t index) const noexcept;
  size_t index_of(const LoadedModule& module) const noexcept;
  uint64_t generation() const noexcept { return snapshot_->generation; }
  size_t size() const noexcept { return snapshot_->count; }

 private:
  ModuleSnapshot* snapshot_;
};

// Forgets everything: the ids belong to one recording. Only while no other thread records.
void reset_modules() noexcept;

}  // namespace tidemark::injector
