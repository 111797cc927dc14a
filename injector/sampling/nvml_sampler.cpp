#include "injector/sampling/nvml_sampler.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "injector/driver/objects.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/nvml_library.h"

namespace tidemark::injector {
namespace {

struct SampledDevice {
  nvml::nvmlDevice_t handle = nullptr;
  bool from_driver = false;       // NVML knows the device, but not its memory
  uint64_t used_when_listed = 0;  // of the card, when its processes were last listed
  bool lost_said = false;
  bool shared_said = false;
};

// Written by the task thread, read by callbacks that explain a failed allocation.
struct LatestMemory {
  std::atomic<uint64_t> total{0};
  std::atomic<uint64_t> reserved{0};
  std::atomic<uint64_t> free{0};
  std::atomic<uint64_t> used{0};
};

NvmlLibrary g_nvml;
bool g_missing_said = false;
std::array<SampledDevice, kMaxDevices> g_devices;
std::array<LatestMemory, kMaxDevices> g_latest;

std::atomic<bool> g_readings_expected{false};
std::atomic<uint32_t> g_readings{0};  // rounds over all devices; also a futex word

bool valid(int64_t device) {
  return device >= 0 && device < static_cast<int64_t>(kMaxDevices);
}

void record_counter(int64_t time, CounterKind kind, int64_t device, uint64_t value,
                    uint64_t subject = 0) {
  recorder().record(Counter{time, value, subject, device, kind});
}

bool read_memory(int64_t device, const SampledDevice& sampled, DeviceMemory& memory) {
  if (!sampled.from_driver) return g_nvml.read_memory(sampled.handle, memory);
  memory = {};
  if (!ask_device_memory(device, memory.free_bytes, memory.total_bytes)) return false;
  memory.used_bytes = memory.total_bytes - memory.free_bytes;
  return true;
}

// A card that shares the host's memory: NVML reports none.
void use_driver(int64_t device, SampledDevice& sampled) {
  sampled.from_driver = true;
  char detail[112];
  std::snprintf(detail, sizeof detail,
                "nvml: no memory use of device %d; that of cuMemGetInfo is recorded",
                static_cast<int>(device));
  recorder().report(HealthKind::kSourceMissing, 0, detail);
}

bool read_device(int64_t device, SampledDevice& sampled, DeviceMemory& memory) {
  if (read_memory(device, sampled, memory)) {
    LatestMemory& latest = g_latest[static_cast<size_t>(device)];
    latest.total.store(memory.total_bytes, std::memory_order_relaxed);
    latest.reserved.store(memory.reserved_bytes, std::memory_order_relaxed);
    latest.free.store(memory.free_bytes, std::memory_order_relaxed);
    latest.used.store(memory.used_bytes, std::memory_order_relaxed);
    return true;
  }
  if (!sampled.lost_said && !sampled.from_driver) {
    sampled.lost_said = true;
    char detail[80];
    std::snprintf(detail, sizeof detail, "nvml: device %d does not respond",
                  static_cast<int>(device));
    recorder().report(HealthKind::kSourceMissing, 0, detail);
  }
  return false;
}

// A reading during which the driver was at work may lack what was allocated just then. It is taken
// again, but not for ever. `at_rest`: no driver call of this process ran meanwhile.
bool read_at_rest(int64_t device, SampledDevice& sampled, DeviceMemory& memory, int64_t& time_ns,
                  bool& at_rest) {
  constexpr int kMostReadings = 3;
  const DriverCalls& calls = driver_objects().calls;
  at_rest = false;
  for (int i = 0; i < kMostReadings && !at_rest; ++i) {
    const DriverCalls::Count before = calls.now();
    if (!read_device(device, sampled, memory)) return false;
    time_ns = now_ns();
    at_rest = before.at_rest() && calls.now() == before;
  }
  return true;
}

void say_shared(int64_t device, SampledDevice& sampled, size_t processes) {
  if (sampled.shared_said) return;
  sampled.shared_said = true;
  char detail[112];
  std::snprintf(detail, sizeof detail,
                "nvml: shared card: cannot tell which process is ours (device %d)",
                static_cast<int>(device));
  recorder().report(HealthKind::kSourceMissing, processes, detail);
}

void sample_processes_of(int64_t device, SampledDevice& sampled) {
  constexpr size_t kCapacity = 256;
  ListedProcess listed[kCapacity];
  size_t count = 0;
  sampled.used_when_listed =
      g_latest[static_cast<size_t>(device)].used.load(std::memory_order_relaxed);
  if (!g_nvml.list_processes(sampled.handle, listed, kCapacity, count) || count == 0) return;
  const auto pid = static_cast<uint64_t>(getpid());
  const int own = find_own_process({listed, count}, pid);
  if (own < 0) return say_shared(device, sampled, count);
  const int64_t now = now_ns();
  for (size_t i = 0; i < count; ++i) {
    if (!listed[i].used_known) continue;
    // Use the pid that readers know this process by, even where NVML reports the host's pid.
    const uint64_t subject = static_cast<int>(i) == own ? pid : listed[i].pid;
    record_counter(now, CounterKind::kProcessUsed, device, listed[i].used_bytes, subject);
  }
}

}  // namespace

int find_own_process(std::span<const ListedProcess> listed, uint64_t own_pid) noexcept {
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i].pid == own_pid) return static_cast<int>(i);
  }
  return listed.size() == 1 ? 0 : -1;
}

void load_nvml() noexcept {
  NvmlLibrary::load();
}

bool start_nvml() noexcept {
  if (g_nvml.open()) {
    char version[nvml::kDriverVersionBytes];
    if (g_nvml.driver_version(version, sizeof version)) {
      record_tool_setting("driver_version", version);
    }
    return true;
  }
  expect_readings(false);
  if (!g_missing_said) {
    g_missing_said = true;
    char detail[128];
    std::snprintf(detail, sizeof detail, "nvml: %s", g_nvml.reason());
    recorder().report(HealthKind::kSourceMissing, 0, detail);
  }
  return false;
}

bool nvml_started() noexcept {
  return g_nvml.is_open();
}

const char* attach_nvml_device(int64_t device, std::string_view uuid_text,
                               const char* bus_id) noexcept {
  if (!valid(device) || !g_nvml.is_open()) return nullptr;
  SampledDevice& sampled = g_devices[static_cast<size_t>(device)];
  const char* known_as = nullptr;
  // CUDA returns the bare bytes; NVML needs to know whether they name a card or a part of one.
  for (const char* prefix : {"GPU-", "MIG-"}) {
    char uuid[nvml::kDeviceUuidBytes];
    std::snprintf(uuid, sizeof uuid, "%s%.*s", prefix, static_cast<int>(uuid_text.size()),
                  uuid_text.data());
    if (!g_nvml.find_device(uuid, sampled.handle)) continue;
    known_as = prefix;
    break;
  }
  if (known_as == nullptr && *bus_id != '\0' && g_nvml.find_device_on_bus(bus_id, sampled.handle)) {
    known_as = "GPU-";
  }
  DeviceMemory memory;
  if (known_as == nullptr) {
    sampled.handle = nullptr;
  } else if (!g_nvml.reports_memory(sampled.handle)) {
    use_driver(device, sampled);
  } else if (!read_device(device, sampled, memory)) {
    sampled.handle = nullptr;
  }
  return known_as;
}

DeviceMemory latest_device_memory(int64_t device) noexcept {
  if (!valid(device)) return {};
  const LatestMemory& latest = g_latest[static_cast<size_t>(device)];
  return {latest.total.load(std::memory_order_relaxed),
          latest.reserved.load(std::memory_order_relaxed),
          latest.free.load(std::memory_order_relaxed), latest.used.load(std::memory_order_relaxed)};
}

void expect_readings(bool expected) noexcept {
  g_readings_expected.store(expected, std::memory_order_relaxed);
}

bool readings_expected() noexcept {
  return g_readings_expected.load(std::memory_order_relaxed);
}

uint32_t readings_so_far() noexcept {
  return g_readings.load(std::memory_order_acquire);
}

void wait_for_reading(uint32_t seen, uint32_t timeout_ms) noexcept {
  const int64_t deadline = monotonic_ms() + timeout_ms;
  for (int64_t left = timeout_ms; left > 0; left = deadline - monotonic_ms()) {
    if (readings_so_far() != seen) return;
    wait_while(g_readings, seen, static_cast<uint32_t>(left));
  }
}

bool sample_device_memory() noexcept {
  if (!g_nvml.is_open()) return false;
  bool any = false;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    SampledDevice& sampled = g_devices[static_cast<size_t>(device)];
    DeviceMemory memory;
    int64_t now = 0;
    bool at_rest = false;
    if (sampled.handle == nullptr || !read_at_rest(device, sampled, memory, now, at_rest)) continue;
    any = true;
    if (at_rest) record_counter(now, CounterKind::kReadingAtRest, device, 1);
    record_counter(now, CounterKind::kDeviceUsed, device, memory.used_bytes);
    record_counter(now, CounterKind::kDeviceFree, device, memory.free_bytes);
    record_counter(now, CounterKind::kDeviceReserved, device, memory.reserved_bytes);
  }
  if (!any) return false;
  g_readings.fetch_add(1, std::memory_order_release);
  wake_all(g_readings);
  return true;
}

bool device_memory_moved() noexcept {
  constexpr uint64_t kMuch = uint64_t{32} << 20;
  for (size_t device = 0; device < kMaxDevices; ++device) {
    if (g_devices[device].handle == nullptr) continue;
    const uint64_t used = g_latest[device].used.load(std::memory_order_relaxed);
    const uint64_t then = g_devices[device].used_when_listed;
    if (std::max(used, then) - std::min(used, then) >= kMuch) return true;
  }
  return false;
}

void sample_process_memory() noexcept {
  if (!g_nvml.is_open()) return;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    SampledDevice& sampled = g_devices[static_cast<size_t>(device)];
    if (sampled.handle != nullptr) sample_processes_of(device, sampled);
  }
}

void stop_nvml() noexcept {
  g_nvml.close();
  reset_nvml();
}

void reset_nvml() noexcept {
  g_nvml.forget();
  g_missing_said = false;
  g_devices.fill({});
  expect_readings(false);
}

}  // namespace tidemark::injector
