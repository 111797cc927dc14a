#include "injector/capture/capture.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string_view>

#include "injector/capture/task_rounds.h"
#include "injector/cupti/callbacks.h"
#include "injector/cupti/kernels.h"
#include "injector/cupti/loader.h"
#include "injector/driver/objects.h"
#include "injector/marks/step_levels.h"
#include "injector/nccl/operations.h"
#include "injector/nccl/wiring.h"
#include "injector/process/complain.h"
#include "injector/process/own_scope.h"
#include "injector/process/process_facts.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/task_thread.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/nvml_sampler.h"
#include "injector/stacks/modules.h"
#include "injector/stacks/unwinder.h"
#include "injector/torch/events.h"
#include "injector/torch/hooks.h"

namespace tidemark::injector {
namespace {

CuptiLibrary g_cupti;  // filled once, then constant
std::atomic<uint32_t> g_captures{0};
pid_t g_pid = 0;  // of the process that recorded last
std::atomic_flag g_said_no_cupti;
std::atomic_flag g_said_still_busy;

void say_no_cupti(const char* reason) {
  complain(g_said_no_cupti,
           "%s; driver allocations and kernels are not recorded, only device totals", reason);
  char detail[kMaxLibraryPath + 16];
  std::snprintf(detail, sizeof detail, "cupti: %s", reason);
  recorder().report(HealthKind::kSourceMissing, 0, detail);
}

bool start_cupti(const Options& options) {
  if (!options.cupti) {
    recorder().report(HealthKind::kSourceDisabled, 0, "cupti: TIDEMARK_CUPTI=0");
    return false;
  }
  if (!g_cupti.found) {
    say_no_cupti(g_cupti.reason);
    return false;
  }
  record_tool_setting("cupti", g_cupti.path);
  char version[16];
  std::snprintf(version, sizeof version, "%u", g_cupti.functions.version);
  record_tool_setting("cupti_version", version);
  if (!start_callbacks(g_cupti.functions, options)) return false;
  record_tool_setting("cupti_subscription",
                      cupti_subscription().way() == CuptiSubscription::Way::kShared
                          ? "shared with other tools"
                          : "alone; other tools cannot use CUPTI meanwhile");
  start_kernels(cupti_subscription(), options);
  return true;
}

// ---- starting the sources -----------------------------------------------------------------------

// CUPTI, the driver and NVML may hang: they are called on the task thread only.
constexpr uint32_t kStartTimeoutMs = 2000;
constexpr uint32_t kSourceTimeoutMs = 1000;

std::atomic<bool> g_sources_held{false};

void release_sources(void*) noexcept {
  g_sources_held.store(false);
  stop_callbacks();
  stop_kernels();
  stop_nvml();
}

// Written before the task thread gets it. One that hangs has copied it.
struct SourceStart {
  Options options;
  bool late = false;
  uint32_t capture = 0;
};
SourceStart g_source_start;
std::atomic<bool> g_callbacks_on{false};

void start_sources(void*) noexcept {
  const SourceStart start = g_source_start;
  // The end of the last capture did not wait for a call that hung.
  if (g_sources_held.load()) release_sources(nullptr);
  g_sources_held.store(true);
  const OwnScope own;
  if (start.late && driver_is_initialised()) {
    driver_objects().driver_ready.store(true, std::memory_order_release);
    record_existing_contexts();
  }
  g_callbacks_on.store(start_cupti(start.options));
  // CUPTI answered only after the recording had ended: another tool may want it now.
  if (!recorder().on() || g_captures.load() != start.capture) release_sources(nullptr);
}

// True if driver callbacks are on. If CUPTI answers after the deadline, they come later.
bool start_sources_in_time(const Options& options, bool late) {
  g_source_start = {options, late, g_captures.load()};
  g_callbacks_on.store(false);
  const Errand start{start_sources, nullptr};
  if (run_on_task_thread({&start, 1}, kStartTimeoutMs)) return g_callbacks_on.load();
  recorder().report(HealthKind::kSourceMissing, 0,
                    "cupti: it or the driver did not answer within 2 s; the beginning has no "
                    "driver allocations and no kernels");
  return false;
}

// What the parent knew does not hold here: ids belong to its recording, handles to its threads.
void forget_parent() {
  reset_modules();
  reset_unwinder();
  reset_nvml();
  reset_torch();
  reset_nccl();
  g_captures.store(0);
  g_sources_held.store(false);
}

// The ids and handles of an earlier recording mean nothing in this one.
void reset_for_recording(Beginning beginning) {
  const pid_t pid = ::getpid();
  if (g_pid != 0 && g_pid != pid) forget_parent();
  g_pid = pid;
  driver_objects().clear();
  step_levels().clear();
  reset_driver_queries();
  capture_session.fetch_add(1);
  if (beginning == Beginning::kLate) await_torch_state();
}

// A call of the last capture that its end did not wait for still uses what a new one resets, and
// still holds CUPTI.
bool last_capture_is_over() {
  if (g_pid != ::getpid() || wait_for_idle_tasks(kSourceTimeoutMs)) return true;
  complain(g_said_still_busy,
           "the driver, CUPTI or NVML has not answered since the last capture; a new one cannot be "
           "started yet");
  return false;
}

}  // namespace

bool start_capture(const Options& options, Beginning beginning) noexcept {
  const bool late = beginning == Beginning::kLate;
  if (!last_capture_is_over()) return false;
  // CUPTI is loaded before the recorder starts, because exit handlers run in reverse order: the
  // last round of the recorder asks CUPTI for the records it still holds, so CUPTI must still be
  // there.
  if (options.cupti && !g_cupti.found) load_cupti(g_cupti);
  const int64_t start_ns = now_ns();
  reset_for_recording(beginning);
  RecorderOptions recording;
  recording.directory = options.out;
  recording.ring_directory = options.ring_directory;
  recording.rank = find_job_place(process_environment).rank;
  recording.buffer_mb = options.buffer_mb;
  recording.again = late;
  recording.keep_bytes = options.keep.bytes;
  recording.keep_ns = options.keep.ns;
  recording.seal_above_bytes = options.seal_above_bytes;
  recording.seal_signal = options.seal_signal;
  char job[256];
  const std::string_view id = find_job_id(process_environment, job, sizeof job - 1);
  char id_text[256];
  std::snprintf(id_text, sizeof id_text, "%.*s", static_cast<int>(id.size()), id.data());
  recording.job = id_text;
  if (!recorder().start(recording)) {
    end_torch_state(nullptr);
    return false;
  }
  g_captures.fetch_add(1);
  record_process(options, start_ns);
  if (late) record_tool_setting("attached", "late");
  start_nccl(options, late);
  const bool callbacks_on = start_sources_in_time(options, late);
  start_torch(options, late);
  start_task_rounds(options, callbacks_on, late);
  return true;
}

RecordingEnd stop_capture() noexcept {
  enable_nccl(false);
  stop_torch();
  const Errand pause{[](void*) noexcept { pause_kernels(); }, nullptr};
  const Errand release{release_sources, nullptr};
  run_on_task_thread({&pause, 1}, kSourceTimeoutMs);
  const RecordingEnd end = recorder().stop();  // its last round collects what CUPTI still holds
  // If the driver hangs, the sources stay; their callbacks find the recorder off.
  run_on_task_thread({&release, 1}, kSourceTimeoutMs);
  return end;
}

uint32_t capture_count() noexcept {
  return g_captures.load();
}

}  // namespace tidemark::injector
