// The shared objects of the process, as the unwinder needs them: which one contains an address,
// where its unwind tables are, and its id in the trace.
//
// A reader pins an immutable snapshot. If the loader has added or removed an object since, the next
// reader makes a new snapshot under a lock; readers of the old one are not disturbed, and a
// snapshot is reused only when it has no readers. A reader that cannot get a new one in time sees
// no modules at all: an old one may describe a library that another one has replaced. No
// allocation: snapshots are in static memory.
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
  uintptr_t base = 0;  // load address, added to the addresses in the file
  UnwindTables tables;
  uintptr_t nccl_begin = 0;  // the code of NCCL, if it is linked into this module
  uintptr_t nccl_end = 0;
  uintptr_t nccl_user_begin = 0;  // ncclMemAlloc, if this module has it
  uintptr_t nccl_user_end = 0;
  uint32_t id = 0;  // of the Module row
  ModuleVerdict verdict{ModuleRole::kSilent, Owner::kUnknown};
  bool tool_side = false;  // tidemark, CUPTI, the driver: not the caller we look for

  bool torch_allocator = false;  // libc10_cuda: its allocations belong to torch

  ModuleVerdict verdict_at(uintptr_t pc) const noexcept {
    if (pc >= nccl_user_begin && pc < nccl_user_end) {
      return {ModuleRole::kOwner, Owner::kNcclUser};
    }
    if (pc >= nccl_begin && pc < nccl_end) return {ModuleRole::kOwner, Owner::kNccl};
    return verdict;
  }
};

// Further modules are unknown to the unwinder (reported once in the trace).
inline constexpr size_t kMaxModules = 2048;

struct ModuleSnapshot {
  std::atomic<uint32_t> readers{0};
  uint64_t generation = 0;  // changes with every effective dlopen and dlclose
  uint32_t count = 0;
  LoadedModule modules[kMaxModules];  // sorted by address
};

// Pins a snapshot while in scope. Short-lived, on the stack.
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
  size_t size() const noexcept { return stale_ ? 0 : snapshot_->count; }

 private:
  ModuleSnapshot* snapshot_;
  bool stale_ = false;
};

// How many views could not be brought up to date in time.
uint64_t stale_module_views() noexcept;

// Clears everything: the ids belong to one recording. Only while no other thread records.
void reset_modules() noexcept;

}  // namespace tidemark::injector
