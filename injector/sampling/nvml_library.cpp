#include "injector/sampling/nvml_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {
namespace {

using namespace nvml;

// More processes on one card are ignored; includes space for processes that start meanwhile.
constexpr size_t kMaxListed = 256;

template <typename Function>
void find_function(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
}

ListedProcess listed(uint64_t pid, unsigned long long used) {
  const bool known = used != kValueNotAvailable;
  return {pid, known ? used : 0, known};
}

}  // namespace

void* NvmlLibrary::load() noexcept {
  const ForeignCall foreign;
  // The plain libnvidia-ml.so comes only with the development files.
  return dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
}

bool NvmlLibrary::open() noexcept {
  if (open_) return true;
  if (*reason_ != '\0') return false;
  const ForeignCall foreign;
  void* library = load();
  if (library == nullptr) {
    reason_ = "libnvidia-ml.so.1 was not found";
    return false;
  }
  nvmlInit_v2_fn init = nullptr;
  find_function(library, "nvmlInit_v2", init);
  find_function(library, "nvmlShutdown", shutdown_);
  find_function(library, "nvmlDeviceGetHandleByUUID", handle_by_uuid_);
  find_function(library, "nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus_);
  find_function(library, "nvmlDeviceGetMemoryInfo", memory_);
  find_function(library, "nvmlDeviceGetMemoryInfo_v2", memory_v2_);
  find_function(library, "nvmlSystemGetDriverVersion", driver_version_);
  choose_list(library);
  if (init == nullptr || handle_by_uuid_ == nullptr ||
      (memory_ == nullptr && memory_v2_ == nullptr)) {
    reason_ = "libnvidia-ml.so.1 is too old";
    return false;
  }
  if (init() != NVML_SUCCESS) {
    reason_ = "nvmlInit failed (no driver, or driver and library versions differ)";
    return false;
  }
  open_ = true;
  return true;
}

void NvmlLibrary::close() noexcept {
  const ForeignCall foreign;
  if (open_ && shutdown_ != nullptr) shutdown_();
  forget();
}

// The records of nvmlDeviceGetComputeRunningProcesses_v3 have 24 bytes, except with some drivers
// from the time when confidential computing was introduced, which write 32. Those drivers have
// nvmlDeviceGetConfComputeMemSizeInfo and lack nvmlDeviceGetRunningProcessDetailList (nvitop uses
// the same rule).
void NvmlLibrary::choose_list(void* library) noexcept {
  find_function(library, "nvmlDeviceGetRunningProcessDetailList", detail_list_);
  if (detail_list_ != nullptr) list_form_ = ListForm::kDetail;
  const bool confidential = dlsym(library, "nvmlDeviceGetConfComputeMemSizeInfo") != nullptr;
  if (confidential && detail_list_ == nullptr) {
    find_function(library, "nvmlDeviceGetComputeRunningProcesses_v3", record_list_);
    if (record_list_ != nullptr) {
      list_form_ = ListForm::kRecords32;
      return;
    }
  }
  ListForm form = ListForm::kRecords24;
  find_function(library, "nvmlDeviceGetComputeRunningProcesses_v2", record_list_);
  if (record_list_ == nullptr) {
    find_function(library, "nvmlDeviceGetComputeRunningProcesses_v3", record_list_);
  }
  if (record_list_ == nullptr) {
    find_function(library, "nvmlDeviceGetComputeRunningProcesses", record_list_);
    form = ListForm::kRecords16;
  }
  if (list_form_ == ListForm::kNone && record_list_ != nullptr) list_form_ = form;
}

bool NvmlLibrary::find_device(const char* uuid, nvmlDevice_t& out) const noexcept {
  const ForeignCall foreign;
  return handle_by_uuid_(uuid, &out) == NVML_SUCCESS;
}

bool NvmlLibrary::find_device_on_bus(const char* bus_id, nvmlDevice_t& out) const noexcept {
  return handle_by_bus_ != nullptr && handle_by_bus_(bus_id, &out) == NVML_SUCCESS;
}

bool NvmlLibrary::read_memory(nvmlDevice_t device, DeviceMemory& out) const noexcept {
  const ForeignCall foreign;
  if (memory_v2_ != nullptr) {
    nvmlMemory_v2_t memory{};
    memory.version = kMemoryV2;
    if (memory_v2_(device, &memory) == NVML_SUCCESS) {
      out = {memory.total, memory.reserved, memory.free, memory.used};
      return true;
    }
  }
  nvmlMemory_t memory{};
  if (memory_ == nullptr || memory_(device, &memory) != NVML_SUCCESS) return false;
  out = {memory.total, 0, memory.free, memory.used};
  return true;
}

bool NvmlLibrary::reports_memory(nvmlDevice_t device) const noexcept {
  const ForeignCall foreign;
  nvmlMemory_t memory{};
  return memory_ == nullptr || memory_(device, &memory) != NVML_ERROR_NOT_SUPPORTED;
}

bool NvmlLibrary::list_processes(nvmlDevice_t device, ListedProcess* out, size_t capacity,
                                 size_t& count) const noexcept {
  const ForeignCall foreign;
  if (list_form_ == ListForm::kDetail && list_by_detail(device, out, capacity, count)) return true;
  // Some drivers export the detail list but refuse it (MIG, vGPU).
  return record_list_ != nullptr && list_by_records(device, out, capacity, count);
}

bool NvmlLibrary::list_by_detail(nvmlDevice_t device, ListedProcess* out, size_t capacity,
                                 size_t& count) const noexcept {
  nvmlProcessDetail_v1_t
      entries[kMaxListed];  // 8 KiB; the threads that call this have 512 and more
  nvmlProcessDetailList_v1_t list{};
  list.version = kProcessDetailListV1;
  list.mode = 0;  // compute
  list.numProcArrayEntries = kMaxListed;
  list.procArray = entries;
  if (detail_list_(device, &list) != NVML_SUCCESS) return false;
  count = std::min<size_t>({list.numProcArrayEntries, kMaxListed, capacity});
  for (size_t i = 0; i < count; ++i) out[i] = listed(entries[i].pid, entries[i].usedGpuMemory);
  return true;
}

bool NvmlLibrary::list_by_records(nvmlDevice_t device, ListedProcess* out, size_t capacity,
                                  size_t& count) const noexcept {
  unsigned char bytes[(kMaxListed + 8) * sizeof(nvmlProcessDetail_v1_t)];
  const ListForm form = list_form_ == ListForm::kDetail ? ListForm::kRecords24 : list_form_;
  const size_t stride = form == ListForm::kRecords32   ? sizeof(nvmlProcessDetail_v1_t)
                        : form == ListForm::kRecords24 ? sizeof(nvmlProcessInfo_v2_t)
                                                       : sizeof(nvmlProcessInfo_v1_t);
  unsigned number = kMaxListed;
  if (record_list_(device, &number, bytes) != NVML_SUCCESS) return false;
  count = std::min<size_t>({number, kMaxListed, capacity});
  for (size_t i = 0; i < count; ++i) {
    nvmlProcessInfo_v1_t entry;  // common prefix of all three forms
    std::memcpy(&entry, bytes + i * stride, sizeof entry);
    out[i] = listed(entry.pid, entry.usedGpuMemory);
  }
  return true;
}

bool NvmlLibrary::driver_version(char* buffer, unsigned capacity) const noexcept {
  return driver_version_ != nullptr && driver_version_(buffer, capacity) == NVML_SUCCESS;
}

}  // namespace tidemark::injector
