// The entry point: the CUDA driver loads this library (CUDA_INJECTION64_PATH) during its first
// initialisation and calls InitializeInjection on the host's thread.
//
// The driver is half awake and may hold its locks, and in Python that thread holds the GIL. So
// nothing here calls CUDA, NVML or Python, or waits for a thread that might: it starts the
// recorder, subscribes to CUPTI, leaves the rest to the task thread, and returns. Whatever fails,
// the job goes on: one line on stderr, and tidemark is off. Merely loading the library does nothing
// at all.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "injector/complain.h"
#include "injector/cupti_callbacks.h"
#include "injector/cupti_kernels.h"
#include "injector/cupti_loader.h"
#include "injector/driver_objects.h"
#include "injector/driver_queries.h"
#include "injector/modules.h"
#include "injector/nccl/operations.h"
#include "injector/nccl/wiring.h"
#include "injector/nvml_sampler.h"
#include "injector/options.h"
#include "injector/own_scope.h"
#include "injector/process_info.h"
#include "injector/recorder.h"
#include "injector/sampling.h"
#include "injector/tool_thread.h"
#include "injector/torch/torch_hooks.h"
#include "injector/unwinder.h"

namespace tidemark::injector {
namespace {

PidLock g_initialising;
int g_initialised_in = 0;  // pid: a forked child begins anew; under g_initialising
CuptiLibrary g_cupti;      // filled once, then constant

std::atomic_flag g_said_option;
std::atomic_flag g_said_no_cupti;
std::atomic_flag g_said_no_chain;

// The variable that loads us can name one library only. A tool that was there before is started
// here, first, so that it finds what it would have found without us.
void start_chained(const char* path) {
  using Entry = int (*)();
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char* reason = library == nullptr ? dlerror() : "it has no InitializeInjection";
  const auto entry =
      library != nullptr ? reinterpret_cast<Entry>(dlsym(library, "InitializeInjection")) : nullptr;
  if (entry == nullptr) {
    complain(g_said_no_chain, "TIDEMARK_CHAIN: cannot start %s: %s", path,
             reason != nullptr ? reason : "unknown reason");
    return;
  }
  entry();
}

// What a parent process knew is not true here: ids belong to its recording, handles to its threads.
void forget_parent() {
  driver_objects().clear();
  reset_modules();
  reset_unwinder();
  reset_nvml();
  reset_driver_queries();
  reset_torch();
  reset_nccl();
}

void say_no_cupti(const char* reason) {
  complain(g_said_no_cupti,
           "%s; driver allocations and kernels are not recorded, device totals still are", reason);
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
  start_kernels(g_cupti.functions, options);
  return true;
}

void initialise() {
  const Options options = read_options(process_environment);
  if (options.complaint != nullptr) {
    complain(g_said_option, "%s has a value that is not understood; its default is used",
             options.complaint);
  }
  if (options.chain != nullptr) start_chained(options.chain);
  // Loaded before the recorder starts, because exit handlers run in reverse order: the recorder's
  // last round asks CUPTI for what it still holds, so CUPTI must still be there.
  if (options.cupti && !g_cupti.found) load_cupti(g_cupti);
  const int64_t start_ns = now_ns();
  RecorderOptions recording;
  recording.directory = options.out;
  recording.rank = find_job_place(process_environment).rank;
  recording.buffer_mb = options.buffer_mb;
  if (!recorder().start(recording)) return;
  capture_session.fetch_add(1);
  record_process(options, start_ns);
  start_nccl(options);
  const OwnScope own;
  const bool callbacks_on = start_cupti(options);
  start_torch(options);
  start_sampling(options, callbacks_on);
}

}  // namespace
}  // namespace tidemark::injector

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  using namespace tidemark::injector;
  if (capture_thread.initialising) return 1;
  const int host_errno = errno;
  capture_thread.initialising = true;
  g_initialising.lock();
  const int pid = getpid();
  if (g_initialised_in != pid) {
    if (g_initialised_in != 0) forget_parent();
    g_initialised_in = pid;
    initialise();
  }
  g_initialising.unlock();
  capture_thread.initialising = false;
  errno = host_errno;
  return 1;
}
