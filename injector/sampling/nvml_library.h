// Loads libnvidia-ml at run time and hides the differences between versions of its structs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nvml.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {

// Keeps no state but its functions: the task thread and the control thread each have their own
// object and call NVML at the same time.
class NvmlLibrary {
 public:
  // Loads libnvidia-ml for the whole process, without initialising it; null if it is not there.
  static void* load() noexcept;
  // On failure `reason()` says why. Tries once: a missing driver does not appear later.
  bool open() noexcept;
  bool is_open() const noexcept { return open_; }
  const char* reason() const noexcept { return reason_; }

  bool find_device(const char* uuid, nvml::nvmlDevice_t& out) const noexcept;
  bool find_device_on_bus(const char* bus_id, nvml::nvmlDevice_t& out) const noexcept;
  bool read_memory(nvml::nvmlDevice_t device, DeviceMemory& out) const noexcept;
  // Whether the device has memory that NVML reports; not if it shares the host's.
  bool reports_memory(nvml::nvmlDevice_t device) const noexcept;
  // Compute processes on the device. False: not supported or not permitted.
  bool list_processes(nvml::nvmlDevice_t device, ListedProcess* out, size_t capacity,
                      size_t& count) const noexcept;
  bool driver_version(char* buffer, unsigned capacity) const noexcept;
  // Shuts NVML down; open() can be called again.
  void close() noexcept;
  // In a forked child, whose parent keeps using NVML.
  void forget() noexcept { *this = NvmlLibrary(); }

 private:
  enum class ListForm : uint8_t { kNone, kDetail, kRecords32, kRecords24, kRecords16 };
  void choose_list(void* library) noexcept;
  bool list_by_detail(nvml::nvmlDevice_t device, ListedProcess* out, size_t capacity,
                      size_t& count) const noexcept;
  bool list_by_records(nvml::nvmlDevice_t device, ListedProcess* out, size_t capacity,
                       size_t& count) const noexcept;

  bool open_ = false;
  nvml::nvmlShutdown_fn shutdown_ = nullptr;
  ListForm list_form_ = ListForm::kNone;
  const char* reason_ = "";
  nvml::nvmlDeviceGetHandleByUUID_fn handle_by_uuid_ = nullptr;
  nvml::nvmlDeviceGetHandleByPciBusId_v2_fn handle_by_bus_ = nullptr;
  nvml::nvmlDeviceGetMemoryInfo_fn memory_ = nullptr;
  nvml::nvmlDeviceGetMemoryInfo_v2_fn memory_v2_ = nullptr;
  nvml::nvmlDeviceGetRunningProcessDetailList_fn detail_list_ = nullptr;
  nvml::nvmlDeviceGetComputeRunningProcesses_fn record_list_ = nullptr;
  nvml::nvmlSystemGetDriverVersion_fn driver_version_ = nullptr;
};

}  // namespace tidemark::injector
