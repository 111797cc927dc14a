#include "injector/sampling/live_reading.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "injector/driver/objects.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/nvml_library.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {
namespace {

bool find_handle(const NvmlLibrary& nvml, const DeviceFacts& facts, nvml::nvmlDevice_t& out) {
  for (const char* prefix : {"GPU-", "MIG-"}) {
    char uuid[nvml::kDeviceUuidBytes];
    std::snprintf(uuid, sizeof uuid, "%s%s", prefix, facts.uuid);
    if (nvml.find_device(uuid, out)) return true;
  }
  return facts.bus[0] != '\0' && nvml.find_device_on_bus(facts.bus, out);
}

void ask_nvml(const NvmlLibrary& nvml, const DeviceFacts& facts, LiveDevice& device) {
  nvml::nvmlDevice_t handle = nullptr;
  if (!nvml.is_open() || !find_handle(nvml, facts, handle)) return;
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

}  // namespace

size_t read_live(std::span<LiveDevice> out) noexcept {
  const uint64_t devices = driver_is_initialised() ? devices_with_context() : 0;
  if (devices == 0) return 0;
  NvmlLibrary nvml;
  nvml.open();
  size_t count = 0;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    DeviceFacts facts;
    if ((devices >> device & 1) == 0 || count == out.size() || !ask_device(device, facts)) continue;
    LiveDevice& live = out[count++];
    live = LiveDevice();
    live.ordinal = device;
    std::snprintf(live.name, sizeof live.name, "%s", facts.name);
    live.total_bytes = facts.total_bytes;
    ask_nvml(nvml, facts, live);
  }
  nvml.close();
  return count;
}

}  // namespace tidemark::injector
