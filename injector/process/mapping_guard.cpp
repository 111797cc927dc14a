#include "injector/process/mapping_guard.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {
namespace {

// One recording, and earlier ones whose memory could not be freed yet.
constexpr size_t kMostMappings = 16;

enum class State : uint32_t { kIntact, kBeingReplaced, kReplaced };

// Read by the signal handler on any thread.
struct Mapping {
  std::atomic<uintptr_t> base{0};  // 0: unused; written last
  std::atomic<uint64_t> bytes{0};
  std::atomic<std::atomic<bool>*> lost{nullptr};
  std::atomic<State> state{State::kIntact};
};

constinit Mapping g_mappings[kMostMappings];
constinit PidLock g_lock;  // everything below
constinit uint32_t g_guarded = 0;
constinit bool g_installed = false;
struct sigaction g_before;  // constant while our handler is installed

bool replace(Mapping& mapping, uintptr_t base) {
  State intact = State::kIntact;
  if (mapping.state.compare_exchange_strong(intact, State::kBeingReplaced)) {
    const bool mapped =
        ::mmap(reinterpret_cast<void*>(base), mapping.bytes.load(), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    if (mapped) mapping.lost.load()->store(true);
    mapping.state.store(mapped ? State::kReplaced : State::kIntact);
    return mapped;
  }
  while (mapping.state.load() == State::kBeingReplaced) sched_yield();
  return mapping.state.load() == State::kReplaced;
}

bool is_ours(const siginfo_t& info) {
  if (info.si_code <= 0) return false;  // sent by kill() or raise()
  const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
  for (Mapping& mapping : g_mappings) {
    const uintptr_t base = mapping.base.load();
    if (base == 0 || address < base || address - base >= mapping.bytes.load()) continue;
    return replace(mapping, base);
  }
  return false;
}

// What would have happened without us.
void pass_on(int number, siginfo_t* info, void* context) {
  if ((g_before.sa_flags & SA_SIGINFO) != 0) return g_before.sa_sigaction(number, info, context);
  if (g_before.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    return g_before.sa_handler(number);
  }
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &usual, nullptr);
  // A fault comes again when this handler returns; a signal that was sent does not.
  if (info->si_code <= 0) ::raise(number);
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int host_errno = errno;
  const bool handled = is_ours(*info);
  errno = host_errno;
  if (!handled) pass_on(number, info, context);
}

void install() {
  struct sigaction ours {};
  if (::sigaction(SIGBUS, nullptr, &g_before) != 0) return;
  ours.sa_mask = g_before.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (g_before.sa_flags & SA_RESTART);
  ours.sa_sigaction = on_bus_error;
  g_installed = ::sigaction(SIGBUS, &ours, nullptr) == 0;
}

// Unless the host has put its own handler over ours, which it may call.
void uninstall() {
  struct sigaction now {};
  if (!g_installed || ::sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_bus_error) return;
  ::sigaction(SIGBUS, &g_before, nullptr);
  g_installed = false;
}

}  // namespace

bool guard_mapping(void* base, uint64_t bytes, std::atomic<bool>& lost) noexcept {
  g_lock.lock();
  bool found = false;
  for (Mapping& mapping : g_mappings) {
    if (mapping.base.load() != 0) continue;
    mapping.bytes.store(bytes);
    mapping.lost.store(&lost);
    mapping.state.store(State::kIntact);
    mapping.base.store(reinterpret_cast<uintptr_t>(base));
    if (g_guarded++ == 0 && !g_installed) install();
    found = true;
    break;
  }
  g_lock.unlock();
  return found;
}

void unguard_mapping(const void* base) noexcept {
  g_lock.lock();
  for (Mapping& mapping : g_mappings) {
    if (base == nullptr || mapping.base.load() != reinterpret_cast<uintptr_t>(base)) continue;
    mapping.base.store(0);
    if (--g_guarded == 0) uninstall();
    break;
  }
  g_lock.unlock();
}

}  // namespace tidemark::injector
