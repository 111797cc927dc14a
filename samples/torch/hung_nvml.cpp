// A libnvidia-ml.so.1 whose readings never return, as on a card that fell off the bus. To be
// preloaded; hung_nvml.py compiles it. Everything else is left to the real library, whose path is
// in REAL_NVML.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace {

void* real(const char* name) {
  static void* const library = dlopen(std::getenv("REAL_NVML"), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

int hang() {
  while (true) pause();
}

}  // namespace

#define FORWARD(name, parameters, arguments)                            \
  extern "C" int name parameters {                                      \
    const auto call = reinterpret_cast<int(*) parameters>(real(#name)); \
    return call != nullptr ? call arguments : 13; /* not found */       \
  }
#define HANG(name)        \
  extern "C" int name() { \
    return hang();        \
  }

FORWARD(nvmlInit_v2, (), ())
FORWARD(nvmlInit, (), ())
FORWARD(nvmlShutdown, (), ())
FORWARD(nvmlDeviceGetCount_v2, (unsigned* count), (count))
FORWARD(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void** device), (index, device))
FORWARD(nvmlDeviceGetHandleByUUID, (const char* uuid, void** device), (uuid, device))
FORWARD(nvmlDeviceGetHandleByPciBusId_v2, (const char* bus, void** device), (bus, device))
FORWARD(nvmlDeviceGetUUID, (void* device, char* uuid, unsigned size), (device, uuid, size))
FORWARD(nvmlSystemGetDriverVersion, (char* version, unsigned size), (version, size))
HANG(nvmlDeviceGetMemoryInfo)
HANG(nvmlDeviceGetMemoryInfo_v2)
HANG(nvmlDeviceGetComputeRunningProcesses)
HANG(nvmlDeviceGetComputeRunningProcesses_v2)
HANG(nvmlDeviceGetComputeRunningProcesses_v3)
HANG(nvmlDeviceGetRunningProcessDetailList)
