#include "injector/nccl/wiring.h"

#include <dlfcn.h>
#include <limits.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "injector/nccl/operations.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

constexpr char kVariable[] = "NCCL_PROFILER_PLUGIN";
// Without it NCCL's own threads have the host's name, and their memory has no owner if NCCL is
// linked into another library.
constexpr char kThreadNames[] = "NCCL_SET_THREAD_NAME";
constexpr size_t kLongestPath = 255;  // limit of NCCL
constexpr uint32_t kLookPeriodMs = 1000;
constexpr int64_t kPatienceNs = 1'000'000'000;

bool g_wired = false;  // the variables were set before NCCL read them

// `tidemark run` has set the variables of its programs, so there nothing is changed here. In a
// process that was started with CUDA_INJECTION64_PATH alone they must be set before NCCL's first
// communicator, and only setenv() can do that. Another thread of the program may call getenv() at
// that moment, which before glibc 2.41 is a race. So it is done once, inside cuInit(), on the
// program's own thread, when few others run; never later, and never on a thread of ours.
void set_if_missing(const char* name, const char* value) {
  const char* const known = process_environment(name);
  if (known == nullptr || *known == '\0') setenv(name, value, 1);
}

void look_task(void*) noexcept {
  record_waiting_calls(kPatienceNs);
}
// The last check records every waiting call: there is no later one.
void last_look(void*) noexcept {
  record_waiting_calls(0);
}

bool own_path(char (&path)[PATH_MAX]) {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&start_nccl), &info) != 0 &&
         info.dli_fname != nullptr && realpath(info.dli_fname, path) != nullptr &&
         std::strlen(path) <= kLongestPath;
}

bool names_us(const char* value, const char* own) {
  char path[PATH_MAX];
  return std::strcmp(value, own) == 0 ||
         (realpath(value, path) != nullptr && std::strcmp(path, own) == 0);
}

}  // namespace

// Sets only what NCCL reads at its first communicator; prints and records nothing.
void wire_nccl() noexcept {
  char path[PATH_MAX];
  if (!own_path(path)) return;
  set_if_missing(kVariable, path);
  set_if_missing(kThreadNames, "1");
  g_wired = true;
}

void start_nccl(const Options& options, bool late) noexcept {
  enable_nccl(options.nccl);
  if (!options.nccl) {
    recorder().report(HealthKind::kSourceDisabled, 0, "nccl: TIDEMARK_NCCL=0");
    return;
  }
  char path[PATH_MAX];
  if (!own_path(path)) {
    recorder().report(
        HealthKind::kSourceMissing, 0,
        "nccl: the path of libtidemark.so is too long for NCCL; install tidemark in a shorter one");
    return;
  }
  const char* const named = process_environment(kVariable);
  if (named != nullptr && *named != '\0' && !names_us(named, path)) {
    char detail[PATH_MAX + 64];
    std::snprintf(detail, sizeof detail,
                  "nccl: %s names another plugin, %.200s; unset it to record NCCL", kVariable,
                  named);
    recorder().report(HealthKind::kSourceMissing, 0, detail);
    return;
  }
  const bool unnamed = named == nullptr || *named == '\0';
  if (unnamed && late && !g_wired) {
    recorder().report(
        HealthKind::kSourceMissing, 0,
        "nccl: operations are recorded only in processes started with 'tidemark run'");
  } else if (!late) {
    wire_nccl();
  }
  recorder().add_background_task(look_task, nullptr, kLookPeriodMs);
  recorder().add_finish_hook(last_look, nullptr);
}

}  // namespace tidemark::injector
