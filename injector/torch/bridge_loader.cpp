#include "injector/torch/bridge_loader.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "bridge/bridge_build.h"
#include "bridge/torch_bridge_abi.h"
#include "injector/process/complain.h"
#include "injector/process/environment.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/stacks/autograd_node.h"
#include "injector/stacks/got_slot.h"
#include "injector/torch/events.h"
#include "injector/torch/exit_gate.h"
#include "injector/torch/pinned.h"

namespace tidemark::injector {

std::atomic<bool> bridge_loaded_not_attached{false};

namespace {

constexpr size_t kBuilderStackBytes = 256 << 10;

struct Bridge {
  TidemarkTorchAttach attach = nullptr;
  TidemarkTorchReadState read_state = nullptr;
  TorchQuestions questions;
};
Bridge g_bridge;  // constant once bridge_loaded_not_attached is set
constexpr bridge::Environment kEnvironment = {process_environment, each_variable};
char g_library[PATH_MAX];
char g_refused[PATH_MAX];   // a bridge that does not load; set before the thread that builds starts
bool g_annotations = true;  // set before the bridge is loaded
std::atomic<bool> g_attaching{false};
std::atomic<bool> g_attached{false};  // for good
std::atomic<bool> g_building{false};
bool g_annotating = false;
std::atomic<TidemarkTorchAskNumbers> g_numbers{nullptr};
std::atomic_flag g_said_no_bridge;

void on_event(const TidemarkTorchEvent* event) {
  on_torch_event(*event);
}

// The state may have more blocks than the ring can hold. No lock is held here, so we can wait for
// the writer.
void on_state(const TidemarkTorchState* state) {
  constexpr uint32_t kPause = 8192;
  constexpr uint32_t kPatienceMs = 5000;
  static std::atomic<uint32_t> rows{0};
  on_torch_state(*state);
  if (rows.fetch_add(1, std::memory_order_relaxed) % kPause == kPause - 1) {
    recorder().flush_now(kPatienceMs);
  }
}

void on_setting(const char* key, const char* value) {
  Recorder& out = recorder();
  out.record(Setting{out.intern_string(key), out.intern_string(value), SettingScope::kAllocator});
}

void on_annotation(const char* name, int begins) {
  if (!recorder().on()) return;
  Mark mark{};
  mark.time_ns = now_ns();
  mark.device = -1;
  mark.name = recorder().intern_string(name);
  mark.thread = current_thread();
  mark.phase = begins != 0 ? MarkPhase::kBegin : MarkPhase::kEnd;
  mark.kind = MarkKind::kAnnotation;
  recorder().record(mark);
}

constexpr TidemarkBridgeHost kHost = {TIDEMARK_BRIDGE_VERSION, on_event, on_state, on_setting,
                                      on_annotation};

void continue_without_bridge(const char* version, const char* reason) {
  complain(
      g_said_no_bridge,
      "PyTorch %s: the bridge is not available: %s. Allocated and reserved bytes are recorded; "
      "requested sizes, streams and pools are not",
      version[0] != '\0' ? version : "(version unknown)", reason);
  char detail[600];
  std::snprintf(detail, sizeof detail, "torch bridge: %s", reason);
  recorder().report(HealthKind::kSourceMissing, 0, detail);
  end_torch_state(detail);
}

void find_questions(void* library) {
  watch_torch_exit();
  set_torch_pinned(reinterpret_cast<TidemarkTorchPinned>(dlsym(library, "tidemark_torch_pinned")));
  g_numbers.store(
      reinterpret_cast<TidemarkTorchAskNumbers>(dlsym(library, "tidemark_torch_numbers")));
}

// False with a reason if the file does not load.
bool load(const bridge::Outcome& outcome, const char** reason) {
  void* const library = dlopen(outcome.path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *reason = dlerror();
    if (*reason == nullptr) *reason = "it cannot be loaded";
    return false;
  }
  g_bridge.attach = reinterpret_cast<TidemarkTorchAttach>(dlsym(library, "tidemark_torch_attach"));
  g_bridge.read_state =
      reinterpret_cast<TidemarkTorchReadState>(dlsym(library, "tidemark_torch_read_state"));
  g_bridge.questions = {
      reinterpret_cast<TidemarkTorchLargestFree>(dlsym(library, "tidemark_torch_largest_free")),
      reinterpret_cast<TidemarkTorchFraction>(dlsym(library, "tidemark_torch_fraction"))};
  find_questions(library);
  find_autograd_in_bridge(
      reinterpret_cast<TidemarkTorchNode>(dlsym(library, "tidemark_torch_node")));
  if (g_bridge.attach == nullptr || g_bridge.read_state == nullptr) {
    continue_without_bridge(outcome.torch_version, "its entry points are missing");
    return true;
  }
  const auto annotate =
      reinterpret_cast<TidemarkTorchAnnotate>(dlsym(library, "tidemark_torch_annotate"));
  if (annotate != nullptr && g_annotations && !std::exchange(g_annotating, true)) annotate(&kHost);
  bridge_loaded_not_attached.store(true, std::memory_order_release);
  if (torch_state_awaited()) attach_bridge();
  return true;
}

// A bridge from the cache may not load: it was built on another machine, or is damaged.
void build(void*) noexcept {
  static bridge::Outcome outcome;  // too large for the stack; only one thread builds
  const char* reason = outcome.reason;
  bool loaded = false;
  bool refused = g_refused[0] != '\0';
  if (refused) {
    std::memcpy(outcome.path, g_refused, sizeof outcome.path);
  } else {
    bridge::build_bridge(kEnvironment, g_library, outcome);
    loaded = outcome.ready && load(outcome, &reason);
    refused = outcome.ready && !loaded && !outcome.compiled;
  }
  if (refused) {
    reason = outcome.reason;
    bridge::rebuild_bridge(kEnvironment, g_library, outcome);
    loaded = outcome.ready && load(outcome, &reason);
  }
  if (!loaded) continue_without_bridge(outcome.torch_version, reason);
  g_building.store(false);
}

// From this mark on readers use the allocator's own events for its segments.
void mark_attached() {
  Recorder& out = recorder();
  Mark mark{};
  mark.time_ns = now_ns();
  mark.device = -1;
  mark.name = out.intern_string("torch bridge");
  mark.domain = out.intern_string("tidemark");
  mark.thread = current_thread();
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kUser;
  out.record(mark);
}

// Reads everything that exists, as of one instant per device.
void read_whole_state() {
  begin_torch_state();
  const int answer = g_bridge.read_state(1);
  end_torch_state(answer > 0 ? nullptr : "reading the state of the allocator failed");
}

}  // namespace

void start_bridge(const char* libc10_cuda, const Options& options) noexcept {
  static bridge::Outcome outcome;
  bridge::find_bridge(kEnvironment, libc10_cuda, outcome);
  if (outcome.torch_version[0] != '\0') record_tool_setting("torch", outcome.torch_version);
  if (!options.torch_bridge) {
    recorder().report(HealthKind::kSourceDisabled, 0, "torch bridge: TIDEMARK_BRIDGE=0");
    end_torch_state("the bridge is off (TIDEMARK_BRIDGE=0)");
    return;
  }
  if (g_attached.load()) {  // by an earlier recording
    mark_attached();
    record_tool_setting("torch_bridge", "attached");
    if (torch_state_awaited()) return read_whole_state();
    g_bridge.read_state(0);
    return;
  }
  if (bridge_waits()) {  // an earlier recording ended before the bridge was attached
    if (torch_state_awaited()) attach_bridge();
    return;
  }
  g_annotations = options.annotations;
  const char* reason =
      "it is not built, and TIDEMARK_BRIDGE=prebuilt forbids compiling it here (run 'tidemark "
      "bridge build')";
  if (outcome.ready && load(outcome, &reason)) return;
  if (!options.compile_bridge) return continue_without_bridge(outcome.torch_version, reason);
  if (g_building.exchange(true)) return;  // started by an earlier recording
  std::snprintf(g_refused, sizeof g_refused, "%s", outcome.ready ? outcome.path : "");
  std::snprintf(g_library, sizeof g_library, "%s", libc10_cuda);
  if (!start_tool_thread("tidemark-build", kBuilderStackBytes, build, nullptr)) {
    g_building.store(false);
    continue_without_bridge(outcome.torch_version,
                            "the thread that compiles it could not be started");
  }
}

bool ask_torch_numbers(int64_t device, bool may_load, TidemarkTorchNumbers& out) noexcept {
  char path[PATH_MAX];
  if (g_numbers.load() == nullptr && may_load && loaded_path("libc10_cuda.so", path, sizeof path)) {
    static bridge::Outcome outcome;
    bridge::find_bridge(kEnvironment, path, outcome);
    void* const library = outcome.ready ? dlopen(outcome.path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library != nullptr) find_questions(library);
  }
  const TidemarkTorchAskNumbers ask = g_numbers.load();
  const ForeignCall foreign;
  const TorchQuestion question;
  return question && ask != nullptr && ask(static_cast<int>(device), &out) == 1;
}

void reset_bridge() noexcept {
  // An attached bridge stays attached in a forked child.
  bridge_loaded_not_attached.store(false);
  g_attaching.store(false);
  g_building.store(false);
}

void attach_bridge() noexcept {
  if (g_attaching.exchange(true)) return;                             // another thread is doing it
  if (!bridge_loaded_not_attached.load(std::memory_order_acquire)) {  // or has just done it
    g_attaching.store(false);
    return;
  }
  // If nothing was allocated yet, the mark comes first and no event is missed. Otherwise it comes
  // last: an event may then be recorded twice, but none is lost.
  const bool late = torch_state_awaited();
  const bool before_all = !late && !torch_was_seen();
  if (before_all) mark_attached();
  const int answer = g_bridge.attach(&kHost);
  if (answer > 0 && !before_all) mark_attached();
  if (answer != 0) {
    bridge_loaded_not_attached.store(false, std::memory_order_release);
    record_tool_setting("torch_bridge", answer > 0                           ? "attached"
                                        : answer == TIDEMARK_TORCH_IS_DRIVER ? "not needed"
                                                                             : "refused");
  }
  if (answer > 0) {
    g_attached.store(true);
    answer_at_errors(g_bridge.questions);
    if (late) {
      read_whole_state();
    } else {
      g_bridge.read_state(torch_began_late() ? 1 : 0);
    }
  } else if (answer == 0 || answer == TIDEMARK_TORCH_IS_DRIVER) {
    end_torch_state(
        nullptr);  // nothing is in use yet, or the driver's calls tell: all will be seen
  } else {
    continue_without_bridge("", "the allocator backend does not support it");
  }
  g_attaching.store(false);
}

}  // namespace tidemark::injector
