// A stand-in for libnvidia-ml.so.1: what all processes hold of the simulated cards.
//
// Cards shared through SIMGPU_DIR are read from there. Otherwise only the driver in this process
// has the numbers, and is queried if it is loaded.
#include "abi/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "simgpu/cards.h"
#include "simgpu/config.h"
#include "simgpu/hang.h"
#include "simgpu/hooks.h"

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::simgpu {

using namespace nvml;  // NOLINT: the stand-in uses NVML's names throughout

namespace {

struct Machine {
  std::mutex mutex;
  Config config;
  std::vector<std::unique_ptr<Card>> cards;
  std::atomic<int> users{0};
};

Machine& machine() {
  static Machine& all = *new Machine;
  return all;
}

// A handle is the index of its card, counted from 1.
nvmlDevice_t handle_of(size_t card) {
  return reinterpret_cast<nvmlDevice_t>(card + 1);
}

// Constructors of C++ libraries read the environment, too.
__attribute__((constructor)) void load_slowly() {
  if (std::getenv("SIMGPU_NVML_LOADS_SLOWLY") == nullptr) return;
  ::usleep(300'000);
  if (std::getenv("SIMGPU_NVML_LOADS_SLOWLY") == nullptr) std::abort();
}

const TracingTable* loaded_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  using GetExportTable = cuda::CUresult (*)(const void**, const cuda::CUuuid*);
  const auto get = reinterpret_cast<GetExportTable>(dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  if (get == nullptr || get(&table, &kTracingTableId) != cuda::CUDA_SUCCESS) return nullptr;
  return static_cast<const TracingTable*>(table);
}

Lookup lookup() {
  const TracingTable* const driver = loaded_driver();
  if (driver != nullptr) return driver->variable;
  return [](const char* name) -> const char* { return std::getenv(name); };
}

void hang_if_asked() {
  static Hang& hang = *new Hang("nvml", lookup());
  hang.if_asked();
}

// The card of `device`, or an error.
nvmlReturn_t find_card(nvmlDevice_t device, const Card** out) {
  Machine& all = machine();
  if (all.users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  const auto number = reinterpret_cast<uintptr_t>(device);
  if (number == 0 || number > all.cards.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *out = all.cards[number - 1].get();
  if (!all.config.dir.empty()) return NVML_SUCCESS;
  const TracingTable* driver = loaded_driver();
  if (driver == nullptr) return NVML_SUCCESS;
  if (const Card* own = driver->card((*out)->index())) *out = own;
  return NVML_SUCCESS;
}

nvmlReturn_t copy_text(const std::string& text, char* out, unsigned int length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

std::vector<ProcessUse> processes_of(const Card& card) {
  std::vector<ProcessUse> list = card.processes();
  for (ProcessUse& process : list) {
    process.pid = static_cast<uint32_t>(process.pid + machine().config.pid_offset);
  }
  return list;
}

template <typename Info>
nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int* count, Info* infos) {
  const Card* card = nullptr;
  const nvmlReturn_t result = find_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::vector<ProcessUse> list = processes_of(*card);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(list.size());
  if (room < list.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (list.empty()) return NVML_SUCCESS;
  if (infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < list.size(); ++i) {
    infos[i] = {};
    infos[i].pid = list[i].pid;
    infos[i].usedGpuMemory = list[i].bytes;
    if constexpr (requires { infos[i].gpuInstanceId; }) {
      infos[i].gpuInstanceId = kNoInstance;
      infos[i].computeInstanceId = kNoInstance;
    }
  }
  return NVML_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT nvmlReturn_t nvmlInit_v2() {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (all.cards.empty()) {
    all.config = Config::from_environment(lookup());
    for (int card = 0; card < all.config.cards; ++card) {
      all.cards.push_back(std::make_unique<Card>(all.config, card));
    }
  }
  ++all.users;
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int /*flags*/) {
  return nvmlInit_v2();
}

SIMGPU_EXPORT nvmlReturn_t nvmlShutdown() {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (all.users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  --all.users;
  return NVML_SUCCESS;
}

SIMGPU_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

SIMGPU_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  if (machine().users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  return copy_text(kDriverVersionText, version, length);
}

SIMGPU_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = kDriverVersion;
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  if (machine().users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned int>(machine().cards.size());
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (machine().users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= machine().cards.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = handle_of(index);
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (machine().users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < machine().cards.size(); ++i) {
    if (card_uuid_text(static_cast<int>(i)) != uuid) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
  if (machine().users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  if (bus == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < machine().cards.size(); ++i) {
    // NVML itself writes eight digits for the domain, the driver four.
    const std::string own = card_bus_id(static_cast<int>(i));
    if (bus != own && bus != "0000" + own) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  const Card* card = nullptr;
  const nvmlReturn_t result = find_card(device, &card);
  return result != NVML_SUCCESS ? result : copy_text(card_uuid_text(card->index()), uuid, length);
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  const Card* card = nullptr;
  const nvmlReturn_t result = find_card(device, &card);
  return result != NVML_SUCCESS ? result : copy_text(kDeviceName, name, length);
}

// A card that uses the host's memory has none that NVML reports.
static bool shares_host_memory() {
  static const bool shares = lookup()("SIMGPU_SHARED_MEMORY") != nullptr;
  return shares;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  hang_if_asked();
  const Card* card = nullptr;
  const nvmlReturn_t result = find_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (shares_host_memory()) return NVML_ERROR_NOT_SUPPORTED;
  const uint64_t reserved = machine().config.reserved_bytes;
  const uint64_t used = card->used_bytes();
  *memory = {card->capacity_bytes() + reserved, card->capacity_bytes() - used, used + reserved};
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device,
                                                      nvmlMemory_v2_t* memory) {
  hang_if_asked();
  const Card* card = nullptr;
  const nvmlReturn_t result = find_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (shares_host_memory()) return NVML_ERROR_NOT_SUPPORTED;
  if (memory->version != kMemoryV2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const uint64_t used = card->used_bytes();
  memory->reserved = machine().config.reserved_bytes;
  memory->total = card->capacity_bytes() + memory->reserved;
  memory->used = used;
  memory->free = card->capacity_bytes() - used;
  return NVML_SUCCESS;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                                unsigned int* count,
                                                                nvmlProcessInfo_v1_t* infos) {
  return list_processes(device, count, infos);
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                   unsigned int* count,
                                                                   nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, count, infos);
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                   unsigned int* count,
                                                                   nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, count, infos);
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                                 nvmlProcessDetailList_v1_t* list) {
  if (list == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != kProcessDetailListV1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  constexpr unsigned int kCompute = 0;
  if (list->mode != kCompute) {  // there are no graphics or MPS processes
    list->numProcArrayEntries = 0;
    return NVML_SUCCESS;
  }
  return list_processes(device, &list->numProcArrayEntries, list->procArray);
}

// There are no NVLinks.
SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t /*device*/,
                                                               unsigned int /*link*/,
                                                               void* /*type*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t /*device*/,
                                                               unsigned int /*link*/,
                                                               void* /*info*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}

SIMGPU_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t /*device*/, unsigned int* /*current*/,
                                                unsigned int* /*pending*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace tidemark::simgpu
