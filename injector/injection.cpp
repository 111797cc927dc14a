// The entry point: the CUDA driver loads this library (CUDA_INJECTION64_PATH) during its first
// initialisation and calls InitializeInjection on the host's thread.
//
// The driver is only partly initialised and may hold its locks, and in Python that thread holds the
// GIL. So nothing here calls CUDA, NVML or Python, or waits for a thread that might: it starts the
// recorder, waits at most 2 s until the task thread has subscribed to CUPTI, leaves the rest to
// that thread, and returns. With TIDEMARK_ARM=1 it only starts the control thread. Whatever fails,
// the job goes on: one line on stderr, and tidemark is off. Merely loading the library does nothing
// at all.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "injector/capture/capture.h"
#include "injector/control/server.h"
#include "injector/nccl/wiring.h"
#include "injector/process/complain.h"
#include "injector/process/options.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {
namespace {

PidLock g_initialising{PidLock::Use::kForeignCalls};
constexpr uint32_t kInitialisePatienceMs = 2000;
int g_initialised_in = 0;  // pid: a forked child starts over; under g_initialising

std::atomic_flag g_said_option;
std::atomic_flag g_said_keep;
std::atomic_flag g_said_no_chain;

// The variable that loads us can name only one library. A tool that was there before is started
// here, first, so that it finds the same conditions as without us.
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

void initialise() {
  keep_environment();
  const Options options = read_options(process_environment);
  if (options.complaint != nullptr) {
    complain(g_said_option, "%s has an invalid value; the default is used", options.complaint);
  }
  if (!keeps_enough(options.keep)) {
    complain(g_said_keep, "TIDEMARK_KEEP is too little; %s is kept", kLeastKeepText);
  }
  if (options.chain != nullptr) start_chained(options.chain);
  if (options.arm) {
    if (options.nccl) wire_nccl();
    start_control_server();
    return;
  }
  // Not on a thread of ours: constructors of libraries read the environment, which the program may
  // be changing by then.
  if (options.nvml_hz > 0) load_nvml();
  start_capture(options, Beginning::kFirst);
  if (options.control) start_control_server();
}

}  // namespace
}  // namespace tidemark::injector

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  using namespace tidemark::injector;
  if (capture_thread.initialising) return 1;
  const int host_errno = errno;
  capture_thread.initialising = true;
  // A second thread goes on when the first one takes long: it may hold what the first one waits
  // for.
  if (g_initialising.lock_for(kInitialisePatienceMs)) {
    const int pid = getpid();
    if (g_initialised_in != pid) {
      g_initialised_in = pid;
      initialise();
    }
    g_initialising.unlock();
  }
  capture_thread.initialising = false;
  errno = host_errno;
  return 1;
}

// For tools that load the library into a running process: like InitializeInjection with
// TIDEMARK_ARM=1, whatever the environment says. The calling thread may have been stopped anywhere,
// even inside malloc, so all it does is start a thread. Returns 1 if that thread runs.
extern "C" __attribute__((visibility("default"))) int tidemark_arm(void) {
  const int host_errno = errno;
  const bool armed = tidemark::injector::start_control_server();
  errno = host_errno;
  return armed ? 1 : 0;
}
