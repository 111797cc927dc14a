// A libnvidia-ml.so.1 in which two lists of processes are made at the same time: the list of device
// 1 is filled, and returned only after the list of device 2 was filled.
#include "abi/nvml.h"

#include <atomic>
#include <cstdint>
#include <thread>

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::nvml {
namespace {

std::atomic<int> g_filled{0};  // the last device whose list is complete

void fill(nvmlDevice_t device, unsigned& count, nvmlProcessDetail_v1_t* list) {
  const auto number = static_cast<int>(reinterpret_cast<uintptr_t>(device));
  while (g_filled.load() != number - 1) std::this_thread::yield();
  count = 3;
  for (unsigned i = 0; i < count; ++i) list[i] = {static_cast<unsigned>(number), i, 0, 0, 0};
  g_filled.store(number);
  while (g_filled.load() == 1) std::this_thread::yield();
}

}  // namespace

NVML_EXPORT nvmlReturn_t nvmlInit_v2() {
  return NVML_SUCCESS;
}
NVML_EXPORT nvmlReturn_t nvmlShutdown() {
  return NVML_SUCCESS;
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char*, nvmlDevice_t*) {
  return NVML_ERROR_NOT_FOUND;
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t*) {
  return NVML_ERROR_NOT_SUPPORTED;
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_v1_t* list) {
  fill(device, list->numProcArrayEntries, list->procArray);
  return NVML_SUCCESS;
}

}  // namespace tidemark::nvml
