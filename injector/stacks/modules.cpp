#include "injector/stacks/modules.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/recorder.h"
#include "injector/stacks/elf_facts.h"

namespace tidemark::injector {
namespace {

// One is current, one may be under construction, the others may still have readers.
constexpr size_t kSnapshots = 4;
ModuleSnapshot g_snapshots[kSnapshots];
std::atomic<ModuleSnapshot*> g_current{&g_snapshots[0]};
PidLock g_rebuild{PidLock::Use::kForeignCalls};
// A callback does not wait longer for another thread that reads the libraries.
constexpr uint32_t kRebuildPatienceMs = 50;
std::atomic<bool> g_overflow_said{false};
std::atomic<uint64_t> g_stale_views{0};

// Scanning the symbols of libtorch_cuda takes milliseconds, so it is done once per library.
struct NcclPart {
  uintptr_t base = 0;
  uint32_t id = 0;
  CodeRange range;
  CodeRange user;  // ncclMemAlloc
};
NcclPart g_nccl_parts[2];  // of libtorch_cuda and of libnccl; under g_rebuild

// Changes with the set of libraries and with the recording that gave them their ids.
uint64_t generation_of(const dl_phdr_info& info) noexcept {
  const uint64_t session = capture_session.load(std::memory_order_relaxed);
  return (session << 40) + info.dlpi_adds + info.dlpi_subs;
}

uint64_t loader_generation() noexcept {
  uint64_t generation = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uint64_t*>(out) = generation_of(*info);
        return 1;
      },
      &generation);
  return generation;
}

std::string_view path_of(const dl_phdr_info& info, char (&buffer)[PATH_MAX]) noexcept {
  if (info.dlpi_name != nullptr && info.dlpi_name[0] != '\0') return info.dlpi_name;
  const ssize_t length = readlink("/proc/self/exe", buffer, sizeof buffer);
  return length > 0 ? std::string_view(buffer, static_cast<size_t>(length)) : "(program)";
}

bool is_tool_side(std::string_view path) noexcept {
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return name.starts_with("libtidemark") || name.starts_with("libcupti") ||
         name.starts_with("libcuda.so");
}

// All of libnccl is NCCL: only ncclMemAlloc is treated differently.
NcclPart nccl_part(const ElfFacts& elf, std::string_view path, uint32_t id) noexcept {
  const bool linked_in = path.find("libtorch_cuda") != std::string_view::npos;
  if (!linked_in && path.find("libnccl") == std::string_view::npos) return {};
  NcclPart& known = g_nccl_parts[linked_in ? 0 : 1];
  if (known.id == id && known.base == elf.base()) return known;
  known = {elf.base(), id, {}, elf.function("ncclMemAlloc")};
  if (linked_in) known.range = elf.functions_named("nccl", "pnccl");
  return known;
}

struct Collection {
  ModuleSnapshot* snapshot;
  bool first;
  bool overflow;
  char path[PATH_MAX];
};

int add_module(dl_phdr_info* info, size_t, void* context) {
  auto& collection = *static_cast<Collection*>(context);
  ModuleSnapshot& snapshot = *collection.snapshot;
  if (std::exchange(collection.first, false)) {
    snapshot.generation = generation_of(*info);
  }
  const ElfFacts elf(*info);
  if (elf.begin() == elf.end()) return 0;
  if (snapshot.count == kMaxModules) {
    collection.overflow = true;
    return 1;
  }
  const std::string_view path = path_of(*info, collection.path);
  char build_id[kMaxBuildIdText];
  LoadedModule module;
  module.begin = elf.begin();
  module.end = elf.end();
  module.base = elf.base();
  module.tables = elf.unwind_tables();
  module.id =
      recorder().intern_module(elf.base(), elf.end() - elf.begin(), path, elf.build_id(build_id));
  module.verdict = verdict_of(path);
  module.tool_side = is_tool_side(path);
  module.torch_allocator = path.find("libc10_cuda") != std::string_view::npos;
  const NcclPart nccl = nccl_part(elf, path, module.id);
  module.nccl_begin = nccl.range.begin;
  module.nccl_end = nccl.range.end;
  module.nccl_user_begin = nccl.user.begin;
  module.nccl_user_end = nccl.user.end;
  snapshot.modules[snapshot.count++] = module;
  return 0;
}

// A slot without readers that is not current; null when all are in use.
ModuleSnapshot* free_snapshot() noexcept {
  for (ModuleSnapshot& snapshot : g_snapshots) {
    if (&snapshot != g_current.load() && snapshot.readers.load() == 0) return &snapshot;
  }
  return nullptr;
}

void rebuild(uint64_t wanted_generation) noexcept {
  if (!g_rebuild.lock_for(kRebuildPatienceMs)) return;
  ModuleSnapshot* fresh = nullptr;
  if (g_current.load()->generation != wanted_generation) fresh = free_snapshot();
  if (fresh != nullptr) {
    Collection collection;
    collection.snapshot = fresh;
    collection.first = true;
    collection.overflow = false;
    fresh->count = 0;
    dl_iterate_phdr(add_module, &collection);
    std::sort(fresh->modules, fresh->modules + fresh->count,
              [](const LoadedModule& a, const LoadedModule& b) { return a.begin < b.begin; });
    g_current.store(fresh);
    if (collection.overflow && !g_overflow_said.exchange(true)) {
      recorder().report(HealthKind::kSourceMissing, kMaxModules,
                        "stacks: too many shared objects; frames in some of them have no module");
    }
  }
  g_rebuild.unlock();
}

// A reader counts itself first and then checks again: a snapshot that was taken for reuse in
// between is no longer current, so its reader backs out without having read it.
ModuleSnapshot* pin_current() noexcept {
  for (;;) {
    ModuleSnapshot* snapshot = g_current.load();
    snapshot->readers.fetch_add(1);
    if (g_current.load() == snapshot) return snapshot;
    snapshot->readers.fetch_sub(1);
  }
}

}  // namespace

ModuleView::ModuleView() noexcept : snapshot_(pin_current()) {
  const uint64_t generation = loader_generation();
  if (snapshot_->generation == generation) return;
  snapshot_->readers.fetch_sub(1);
  rebuild(generation);
  snapshot_ = pin_current();
  stale_ = snapshot_->generation < generation;
  if (stale_) g_stale_views.fetch_add(1, std::memory_order_relaxed);
}

ModuleView::~ModuleView() {
  snapshot_->readers.fetch_sub(1);
}

const LoadedModule* ModuleView::find(uintptr_t pc) const noexcept {
  const LoadedModule* begin = snapshot_->modules;
  const LoadedModule* after =
      std::upper_bound(begin, begin + size(), pc,
                       [](uintptr_t address, const LoadedModule& m) { return address < m.begin; });
  if (after == begin) return nullptr;
  const LoadedModule* module = after - 1;
  return pc < module->end ? module : nullptr;
}

const LoadedModule* ModuleView::at(size_t index) const noexcept {
  return index < size() ? &snapshot_->modules[index] : nullptr;
}

size_t ModuleView::index_of(const LoadedModule& module) const noexcept {
  return static_cast<size_t>(&module - snapshot_->modules);
}

uint64_t stale_module_views() noexcept {
  return g_stale_views.load(std::memory_order_relaxed);
}

void reset_modules() noexcept {
  for (ModuleSnapshot& snapshot : g_snapshots) {
    snapshot.readers.store(0);
    snapshot.generation = 0;
    snapshot.count = 0;
  }
  for (NcclPart& part : g_nccl_parts) part = {};
  g_overflow_said.store(false);
}

}  // namespace tidemark::injector
