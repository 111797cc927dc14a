#include "injector/torch/hooks.h"

#include <dlfcn.h>
#include <limits.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "injector/process/complain.h"
#include "injector/process/tool_thread.h"
#include "injector/python/optimizer_hook.h"
#include "injector/python/stack.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/stacks/autograd_node.h"
#include "injector/stacks/got_slot.h"
#include "injector/stacks/torch_version.h"
#include "injector/torch/bridge_loader.h"
#include "injector/torch/events.h"
#include "injector/torch/pinned.h"

namespace tidemark::injector {
namespace {

constexpr char kLibrary[] = "libc10_cuda.so";
constexpr char kAnyLibrary[] = "libc10_cuda";  // however a package has renamed it
// The same in every release from 2.0 to 2.13.
constexpr char kReportUsage[] = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constexpr char kReportOutOfMemory[] = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
// The last function that an allocation calls before it takes the device lock.
//
// Mangled names do not contain the type of the result. This one's is known up to kNewestKnown;
// later versions are observed without it.
constexpr int kNewestKnownMajor = 2;
constexpr int kNewestKnownMinor = 15;
constexpr char kCurrentStream[] = "_ZN3c104cuda20getCurrentCUDAStreamEa";

// c10::cuda::CUDAStream, as it is returned: in two registers.
struct TwoWords {
  uint64_t first;
  uint64_t second;
};

using ReportUsage = void (*)(void*, int64_t, size_t, size_t, TorchDevice);
using ReportOutOfMemory = void (*)(int64_t, size_t, size_t, TorchDevice);
using CurrentStream = TwoWords (*)(int8_t);

// Constant once the slots point to our hooks.
std::atomic<ReportUsage> g_report_usage{nullptr};
std::atomic<ReportOutOfMemory> g_report_out_of_memory{nullptr};
std::atomic<CurrentStream> g_current_stream{nullptr};

// The function behind a hook. It is stored before the hook is reachable, but a weakly ordered
// processor may show the hook first. No deadline is needed: the thread that stored it need not run
// again for it to arrive, only its processor has to finish a store that it has begun. Stores are
// made visible in finite time, in practice within a microsecond, and never undone: function stays
// set once it was.
template <typename Function>
Function real(const std::atomic<Function>& function) {
  Function found = nullptr;
  do {
    found = function.load(std::memory_order_acquire);
  } while (found == nullptr);
  return found;
}

// A redirected call.
struct Redirection {
  GotSlot slot;
  void* real = nullptr;
};
Redirection g_redirections[3];
size_t g_redirection_count = 0;  // under g_looking

// How long the end of a recording waits for a thread that is inside the loader.
constexpr uint32_t kStopTimeoutMs = 1000;

Options g_options;
std::atomic<bool> g_wanted{false};
std::atomic<bool> g_hooked{false};
PidLock g_looking{PidLock::Use::kForeignCalls};
std::atomic_flag g_said_no_hook;
std::atomic<bool> g_said_unknown_name{false};  // to this recording

void usage_hook(void* address, int64_t bytes, size_t allocated, size_t reserved,
                TorchDevice device) {
  real(g_report_usage)(address, bytes, allocated, reserved, device);
  on_torch_usage(reinterpret_cast<uintptr_t>(address), bytes, allocated, reserved, device);
}

void out_of_memory_hook(int64_t bytes, size_t allocated, size_t reserved, TorchDevice device) {
  real(g_report_out_of_memory)(bytes, allocated, reserved, device);
  on_torch_out_of_memory(bytes, allocated, reserved, device);
}

TwoWords current_stream_hook(int8_t device) {
  if (bridge_waits()) [[unlikely]]
    attach_bridge();
  begin_torch_allocation();
  return real(g_current_stream)(device);
}

// The real function is looked up by name: the slot may still point to the loader, which would
// overwrite it with the function's address.
template <typename Function>
bool redirect(void* library, const char* symbol, std::atomic<Function>& function, Function hook) {
  GotSlot slot;
  void* const found = dlsym(library, symbol);
  if (found == nullptr || !find_got_slot(kLibrary, symbol, slot)) return false;
  function.store(reinterpret_cast<Function>(found), std::memory_order_release);
  if (!write_got_slot(slot, reinterpret_cast<void*>(hook))) return false;
  if (g_redirection_count < std::size(g_redirections)) {
    g_redirections[g_redirection_count++] = {slot, found};
  }
  return true;
}

void say_too_new(const TorchVersion& version) {
  complain(
      g_said_no_hook,
      "PyTorch %d.%d is newer than this version of tidemark knows: allocated and reserved bytes "
      "are recorded; stacks, requested sizes, streams and pools are not",
      version.major, version.minor);
  recorder().report(HealthKind::kSourceMissing, 0,
                    "torch: this version is newer than tidemark knows; no stacks and no bridge");
}

void say_unknown_name() {
  if (g_said_unknown_name.exchange(true)) return;
  complain(
      g_said_no_hook,
      "PyTorch's libc10_cuda.so is loaded under another name: its allocations are not recorded");
  recorder().report(
      HealthKind::kSourceMissing, 0,
      "torch: libc10_cuda.so is loaded under another name; its allocations are not recorded");
}

void install_hooks(void* library, const char* path) {
  const TorchVersion version = read_torch_version(path);
  const bool known = !version.at_least(kNewestKnownMajor, kNewestKnownMinor + 1);
  const bool usage = redirect(library, kReportUsage, g_report_usage, usage_hook);
  redirect(library, kReportOutOfMemory, g_report_out_of_memory, out_of_memory_hook);
  const bool stream =
      known && redirect(library, kCurrentStream, g_current_stream, current_stream_hook);
  record_tool_setting("torch_hooks", usage ? "usage" : "none");
  if (usage && !known) return say_too_new(version);
  if (usage && stream) return;
  complain(g_said_no_hook, "this version of PyTorch is not supported: %s",
           usage ? "the bridge cannot be attached" : "its allocations are not recorded");
  recorder().report(HealthKind::kSourceMissing, 0,
                    "torch: libc10_cuda.so does not make the expected calls");
}

bool look_locked(char (&path)[PATH_MAX]) {
  if (!loaded_path(kLibrary, path, sizeof path)) {
    if (is_loaded(kAnyLibrary)) say_unknown_name();
    return false;
  }
  void* const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;  // it is being loaded right now
  g_hooked.store(true);
  start_torch_events(
      {g_options.stacks != StackMode::kNone,
       g_options.stacks == StackMode::kNative || g_options.stacks == StackMode::kAll});
  find_autograd();
  // The bridge comes first: then it is there for the very first allocation.
  if (!torch_state_awaited()) start_bridge(path, g_options);
  install_hooks(library, path);
  return true;
}

void remove_hooks_locked() {
  for (size_t i = 0; i < g_redirection_count; ++i) {
    write_got_slot(g_redirections[i].slot, g_redirections[i].real);
  }
  g_redirection_count = 0;
}

// Nobody waits for g_looking: it is held while the loader is called, and the loader's lock may be
// held by a thread whose library allocates in its constructor and comes here from a callback.
//
// If the state has to be read, the bridge is started after the redirections, so that events after
// the state have both reports; and outside of the lock, because reading the state waits for locks
// of the allocator, whose holder may be waiting for ours.
void look() {
  char path[PATH_MAX];
  if (!g_looking.try_lock()) return;  // another thread is looking
  const bool found = g_wanted.load() && !g_hooked.load() && look_locked(path);
  g_looking.unlock();
  if (!g_wanted.load()) {
    // The recording ended meanwhile, and stop_torch() may not have waited.
    if (g_looking.try_lock()) {
      remove_hooks_locked();
      g_looking.unlock();
    }
    return;
  }
  if (found && torch_state_awaited()) start_bridge(path, g_options);
}

}  // namespace

void start_torch(const Options& options, bool late) noexcept {
  if (!options.torch) {
    end_torch_state(nullptr);
    recorder().report(HealthKind::kSourceDisabled, 0, "torch: TIDEMARK_TORCH=0");
    return;
  }
  g_options = options;
  g_said_unknown_name.store(false);
  clear_python_stacks();
  restart_optimizer_hook();
  reset_torch_pinned();
  g_wanted.store(true);
  look();
  look_for_torch();
  // No torch yet: everything will be seen.
  if (late && !g_hooked.load()) end_torch_state(nullptr);
}

void stop_torch() noexcept {
  g_wanted.store(false);
  // A thread that holds it for longer removes the redirections itself.
  if (g_looking.lock_for(kStopTimeoutMs)) {
    remove_hooks_locked();
    g_looking.unlock();
  }
  const bool found = g_hooked.exchange(false);
  if (found && torch_state_awaited()) {
    recorder().report(HealthKind::kSourceMissing, 0,
                      "torch: allocator events are missing: the bridge was not ready before the "
                      "recording ended");
  }
  end_torch_state(nullptr);
}

void look_for_torch() noexcept {
  if (!g_wanted.load(std::memory_order_acquire)) return;
  if (g_options.stacks == StackMode::kPython || g_options.stacks == StackMode::kAll) {
    find_python_stacks(g_options);
  }
  if (!g_hooked.load(std::memory_order_acquire)) look();
}

void look_for_torch_phases() noexcept {
  if (!g_hooked.load(std::memory_order_acquire)) return;
  look_for_optimizers(g_options);
  sample_torch_pinned();
}

void reset_torch() noexcept {
  reset_optimizer_hook();
  g_wanted.store(false);
  g_hooked.store(false);
  g_redirection_count = 0;
  reset_torch_events();
  reset_bridge();
  reset_python_stacks();
}

}  // namespace tidemark::injector
