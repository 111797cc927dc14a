#include "injector/sampling/live_reading.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "injector/driver/objects.h"
#include "injector/process/own_scope.h"
#include "injector/recorder/task_thread.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/nvml_library.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {
namespace {

// `uuid` becomes the one that NVML knows.
bool find_handle(const NvmlLibrary& nvml, const DeviceFacts& facts, char (&uuid)[48],
                 nvml::nvmlDevice_t& out) {
  for (const char* prefix : {"MIG-", "GPU-"}) {
    std::snprintf(uuid, sizeof uuid, "%s%s", prefix, facts.uuid);
    if (nvml.is_open() && nvml.find_device(uuid, out)) return true;
  }
  if (!nvml.is_open()) return false;
  return facts.bus[0] != '\0' && nvml.find_device_on_bus(facts.bus, out);
}

void ask_nvml(const NvmlLibrary& nvml, const DeviceFacts& facts, LiveDevice& device) {
  nvml::nvmlDevice_t handle = nullptr;
  if (!find_handle(nvml, facts, device.uuid, handle)) return;
  DeviceMemory memory;
  device.used_known = nvml.read_memory(handle, memory);
  device.used_bytes = memory.used_bytes;
  ListedProcess listed[256];
  size_t count = 0;
  if (!nvml.list_processes(handle, listed, std::size(listed), count)) return;
  const int own = find_own_process({listed, count}, static_cast<uint64_t>(::getpid()));
  if (own < 0 || !listed[own].used_known) return;
  device.process_known = true;
  device.process_bytes = listed[own].used_bytes;
}

// Written by the task thread. The control thread reads it only when that has finished.
LiveReading g_reading;

void read(void*) noexcept {
  g_reading.count = 0;
  if (!driver_is_initialised()) return;
  const uint64_t devices = devices_with_context();
  const OwnScope own;
  NvmlLibrary nvml;
  nvml.open();
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    DeviceFacts facts;
    if (g_reading.count == g_reading.devices.size() || !ask_device(device, facts)) continue;
    LiveDevice& live = g_reading.devices[g_reading.count];
    live = LiveDevice();
    live.ordinal = device;
    std::snprintf(live.name, sizeof live.name, "%s", facts.name);
    live.total_bytes = facts.total_bytes;
    ask_nvml(nvml, facts, live);
    // The driver knows of primary contexts only; a context of another kind shows in NVML's list of
    // processes, or when calls are recorded in it.
    const bool used =
        (devices >> device & 1) != 0 || live.process_known || driver_objects().devices.used(device);
    if (used) ++g_reading.count;
  }
  nvml.close();
}

}  // namespace

bool read_live(LiveReading& out) noexcept {
  constexpr uint32_t kPatienceMs = 2000;
  const Errand errand{read, nullptr};
  if (!run_on_task_thread({&errand, 1}, kPatienceMs)) return false;
  out = g_reading;
  return true;
}

}  // namespace tidemark::injector
