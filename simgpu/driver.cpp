#include "simgpu/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <ctime>

#include "simgpu/call.h"
#include "simgpu/environment.h"

namespace tidemark::simgpu {
namespace {

enum class Phase { kNew, kReady, kNoDevice };

std::atomic<Phase> g_phase{Phase::kNew};
std::atomic<bool> g_forked{false};

// A forked child has a copy of its parent's driver, but not its threads: every call fails.
void after_fork_in_child() {
  if (g_phase.load() == Phase::kNew) return;
  g_forked.store(true);
  tracing_table().set_hooks(nullptr);
}

// As CUDA_INJECTION64_PATH requires: load, call, and continue whatever happens.
void load_injection() {
  const char* path = variable("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  void* library = dlopen(path, RTLD_LAZY);
  if (library == nullptr) return;
  using Entry = int (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "InitializeInjection"));
  if (entry == nullptr) return;
  set_loading_injection(true);
  static_cast<void>(entry());
  set_loading_injection(false);
}

// Each device ordinal gets one TiB of addresses, far from those of programs and libraries.
constexpr uint64_t kDeviceAddresses = 1ULL << 40;

}  // namespace

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Device::Device(const Config& config, int ordinal_, int card_index)
    : ordinal(ordinal_),
      card(config, card_index),
      addresses(kDeviceAddresses * (static_cast<uint64_t>(ordinal_) + 1), kDeviceAddresses) {}

Driver::Driver() {
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

Driver& Driver::get() {
  static Driver& driver = *new Driver;
  return driver;
}

bool Driver::ready() const {
  return g_phase.load() == Phase::kReady && !g_forked.load();
}

CUresult Driver::initialise() {
  if (g_forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  static std::once_flag once;
  std::call_once(once, [this] {
    load_injection();
    const std::lock_guard lock(mutex);
    config = Config::from_environment(variable);
    for (size_t i = 0; i < config.visible.size(); ++i) {
      devices.push_back(std::make_unique<Device>(config, static_cast<int>(i), config.visible[i]));
    }
    g_phase.store(devices.empty() ? Phase::kNoDevice : Phase::kReady);
  });
  return devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Device* Driver::device(int ordinal) {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size()) return nullptr;
  return devices[static_cast<size_t>(ordinal)].get();
}

bool Driver::take(Device& device, uint64_t bytes) {
  if (bytes == 0 || device.card.take(bytes)) return true;
  trim_all(*this, device.ordinal);
  return device.card.take(bytes);
}

std::map<uint64_t, Allocation>::iterator Driver::find_range(uint64_t address) {
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return allocations.end();
  --it;
  return address - it->first < it->second.bytes ? it : allocations.end();
}

const char* Driver::intern(const std::string& name) {
  auto& slot = names_[name];
  if (slot == nullptr) slot = std::make_unique<std::string>(name);
  return slot->c_str();
}

}  // namespace tidemark::simgpu
