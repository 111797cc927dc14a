// Uses every kind of memory the driver can allocate, all at the same time and with sizes known in
// advance, then frees everything.
//
// tidemark should find: on each device, for each kind, exactly the peak this program prints (one
// line of JSON); nothing left at the end; one IPC mapping of 6 MiB in the child process, marked as
// another process's bytes; a VMM handle that lived on in its mapping after its release.
//
// Usage: all_kinds [MILLISECONDS to stay at the peak]
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "samples/cuda/driver.h"

extern char** environ;  // NOLINT: POSIX

namespace tidemark::samples {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

constexpr size_t kDeviceBytes = 48 * kMiB;
constexpr size_t kSecondDeviceBytes = 24 * kMiB;
constexpr size_t kManagedBytes = 12 * kMiB;
constexpr size_t kHostAllocBytes = 5 * kMiB;
constexpr size_t kAllocHostBytes = 3 * kMiB;
constexpr size_t kRegisteredBytes = 2 * kMiB;
constexpr size_t kOrderedBytes = 10 * kMiB;
constexpr size_t kOwnPoolBytes = 7 * kMiB;
constexpr size_t kVirtualBytes = 8 * kMiB;
constexpr size_t kGraphBytes = 4 * kMiB;
constexpr size_t kSharedBytes = 6 * kMiB;

// What is live at the peak, by kind.
using Peak = std::map<std::string, size_t>;

class AllKinds {
 public:
  explicit AllKinds(const char* program) : program_(program) {}

  void allocate() {
    check(cu_.cuInit(0), "cuInit");
    cu_.use_device(0);
    check(cu_.cuStreamCreate(&stream_, 1), "cuStreamCreate");
    linear();
    host();
    ordered();
    virtual_memory();
    arrays();
    graph();
    kernel();
    shared_with_child();
    second_device();
    check(cu_.cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void release() {
    check(cu_.cuCtxSetCurrent(nullptr), "cuCtxSetCurrent");
    if (second_ != 0) {
      cu_.use_device(1);
      check(cu_.cuMemFree_v2(second_), "cuMemFree");
      check(cu_.cuDevicePrimaryCtxRelease_v2(1), "cuDevicePrimaryCtxRelease");
      check(cu_.cuDevicePrimaryCtxRelease_v2(1), "cuDevicePrimaryCtxRelease");
    }
    cu_.use_device(0);
    for (CUdeviceptr p : {device_, pitched_, managed_, shared_}) {
      check(cu_.cuMemFree_v2(p), "cuMemFree");
    }
    release_host();
    for (CUdeviceptr p : {ordered_, pooled_, graph_memory_}) {
      check(cu_.cuMemFreeAsync(p, stream_), "cuMemFreeAsync");
    }
    check(cu_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    check(cu_.cuMemPoolDestroy(pool_), "cuMemPoolDestroy");
    release_virtual();
    check(cu_.cuArrayDestroy(flat_), "cuArrayDestroy");
    check(cu_.cuArrayDestroy(cube_), "cuArrayDestroy");
    check(cu_.cuMipmappedArrayDestroy(levels_), "cuMipmappedArrayDestroy");
    check(cu_.cuGraphExecDestroy(exec_), "cuGraphExecDestroy");
    check(cu_.cuGraphDestroy(graph_), "cuGraphDestroy");
    check(cu_.cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
    check(cu_.cuModuleUnload(module_), "cuModuleUnload");
    check(cu_.cuStreamDestroy_v2(stream_), "cuStreamDestroy");
    check(cu_.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
    check(cu_.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
  }

  void print() const {
    std::printf("{\"sample\":\"all_kinds\",\"devices\":[");
    for (size_t d = 0; d < peaks_.size(); ++d) {
      std::printf("%s{\"device\":%zu,\"expected_peak\":{", d == 0 ? "" : ",", d);
      const char* comma = "";
      for (const auto& [kind, bytes] : peaks_[d]) {
        std::printf("%s\"%s\":%zu", comma, kind.c_str(), bytes);
        comma = ",";
      }
      std::printf("}}");
    }
    std::printf("]}\n");
    std::fflush(stdout);
  }

 private:
  void check(CUresult result, const char* what) const { cu_.check(result, what); }

  void linear() {
    check(cu_.cuMemAlloc_v2(&device_, kDeviceBytes), "cuMemAlloc");
    peaks_[0]["device"] += kDeviceBytes;
    size_t pitch = 0;
    constexpr size_t kRows = 1000;
    check(cu_.cuMemAllocPitch_v2(&pitched_, &pitch, 5000, kRows, 4), "cuMemAllocPitch");
    peaks_[0]["pitched"] += pitch * kRows;
    check(cu_.cuMemAllocManaged(&managed_, kManagedBytes, kMemAttachGlobal), "cuMemAllocManaged");
    peaks_[0]["managed"] += kManagedBytes;
    check(cu_.cuMemsetD8_v2(device_, 0, kDeviceBytes), "cuMemsetD8");
  }

  void host() {
    check(cu_.cuMemHostAlloc(&host_alloc_, kHostAllocBytes, kMemHostAllocPortable),
          "cuMemHostAlloc");
    check(cu_.cuMemAllocHost_v2(&alloc_host_, kAllocHostBytes), "cuMemAllocHost");
    registered_.resize(kRegisteredBytes);
    check(cu_.cuMemHostRegister_v2(registered_.data(), kRegisteredBytes, 0), "cuMemHostRegister");
    peaks_[0]["pinned"] += kHostAllocBytes + kAllocHostBytes + kRegisteredBytes;
    std::memset(host_alloc_, 1, kHostAllocBytes);
    check(cu_.cuMemcpyHtoD_v2(device_, host_alloc_, kHostAllocBytes), "cuMemcpyHtoD");
  }

  void release_host() {
    check(cu_.cuMemFreeHost(host_alloc_), "cuMemFreeHost");
    check(cu_.cuMemFreeHost(alloc_host_), "cuMemFreeHost");
    check(cu_.cuMemHostUnregister(registered_.data()), "cuMemHostUnregister");
  }

  void ordered() {
    check(cu_.cuMemAllocAsync(&ordered_, kOrderedBytes, stream_), "cuMemAllocAsync");
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    check(cu_.cuMemPoolCreate(&pool_, &props), "cuMemPoolCreate");
    check(cu_.cuMemAllocFromPoolAsync(&pooled_, kOwnPoolBytes, pool_, stream_),
          "cuMemAllocFromPoolAsync");
    peaks_[0]["stream_ordered"] += kOrderedBytes + kOwnPoolBytes;
  }

  // One handle, mapped twice: directly, and as imported from its own export. The handle is released
  // immediately; the mappings keep the memory.
  void virtual_memory() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle imported = 0;
    check(cu_.cuMemCreate(&handle, kVirtualBytes, &prop, 0), "cuMemCreate");
    check(cu_.cuMemAddressReserve(&range_, 2 * kVirtualBytes, 0, 0, 0), "cuMemAddressReserve");
    check(cu_.cuMemMap(range_, kVirtualBytes, 0, handle, 0), "cuMemMap");
    int fd = -1;
    check(
        cu_.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
    check(cu_.cuMemImportFromShareableHandle(&imported,
                                             reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    close(fd);
    check(cu_.cuMemMap(range_ + kVirtualBytes, kVirtualBytes, 0, imported, 0), "cuMemMap");
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(cu_.cuMemSetAccess(range_, 2 * kVirtualBytes, &access, 1), "cuMemSetAccess");
    check(cu_.cuMemRelease(handle), "cuMemRelease");
    check(cu_.cuMemRelease(imported), "cuMemRelease");
    peaks_[0]["virtual"] += kVirtualBytes;
  }

  void release_virtual() {
    check(cu_.cuMemUnmap(range_, 2 * kVirtualBytes), "cuMemUnmap");
    check(cu_.cuMemAddressFree(range_, 2 * kVirtualBytes), "cuMemAddressFree");
  }

  void arrays() {
    const CUDA_ARRAY_DESCRIPTOR flat{1024, 512, CU_AD_FORMAT_FLOAT, 1};
    check(cu_.cuArrayCreate_v2(&flat_, &flat), "cuArrayCreate");
    const CUDA_ARRAY3D_DESCRIPTOR cube{64, 64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    check(cu_.cuArray3DCreate_v2(&cube_, &cube), "cuArray3DCreate");
    const CUDA_ARRAY3D_DESCRIPTOR levels{256, 256, 0, CU_AD_FORMAT_HALF, 2, 0};
    check(cu_.cuMipmappedArrayCreate(&levels_, &levels, 3), "cuMipmappedArrayCreate");
    peaks_[0]["array"] += 1024 * 512 * 4 + 64 * 64 * 64 * 4;
    peaks_[0]["array"] += (256 * 256 + 128 * 128 + 64 * 64) * 4;
  }

  // An allocation that the graph leaves for the program to free.
  void graph() {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = kGraphBytes;
    CUgraphNode node = nullptr;
    check(cu_.cuGraphCreate(&graph_, 0), "cuGraphCreate");
    check(cu_.cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params), "cuGraphAddMemAllocNode");
    check(cu_.cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiate");
    check(cu_.cuGraphLaunch(exec_, stream_), "cuGraphLaunch");
    graph_memory_ = params.dptr;
    peaks_[0]["graph"] += kGraphBytes;
  }

  void kernel() {
    CUfunction idle = nullptr;
    check(cu_.cuModuleLoadData(&module_, kIdlePtx), "cuModuleLoadData");
    check(cu_.cuModuleGetFunction(&idle, module_, "idle"), "cuModuleGetFunction");
    check(cu_.cuLaunchKernel(idle, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, nullptr),
          "cuLaunchKernel");
  }

  // The child maps this memory; the bytes belong to us.
  void shared_with_child() {
    check(cu_.cuMemAlloc_v2(&shared_, kSharedBytes), "cuMemAlloc");
    peaks_[0]["device"] += kSharedBytes;
    CUipcMemHandle handle{};
    check(cu_.cuIpcGetMemHandle(&handle, shared_), "cuIpcGetMemHandle");
    std::string hex;
    for (char byte : handle.reserved) {
      char text[3];
      std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(byte));
      hex += text;
    }
    char option[] = "--open-ipc";
    std::string program(program_);
    char* arguments[] = {program.data(), option, hex.data(), nullptr};
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) {
      fail("all_kinds", "cannot start the child process");
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail("all_kinds", "the child process failed");
  }

  void second_device() {
    int count = 0;
    check(cu_.cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count < 2) return;
    CUcontext first = cu_.use_device(0);
    cu_.use_device(1);
    check(cu_.cuMemAlloc_v2(&second_, kSecondDeviceBytes), "cuMemAlloc");
    peaks_.push_back({{"device", kSecondDeviceBytes}});
    check(cu_.cuCtxSetCurrent(first), "cuCtxSetCurrent");
    check(cu_.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
  }

  Driver cu_;
  const char* program_;
  std::vector<Peak> peaks_{1};
  CUstream stream_ = nullptr;
  CUdeviceptr device_ = 0;
  CUdeviceptr pitched_ = 0;
  CUdeviceptr managed_ = 0;
  CUdeviceptr shared_ = 0;
  CUdeviceptr second_ = 0;
  CUdeviceptr ordered_ = 0;
  CUdeviceptr pooled_ = 0;
  CUdeviceptr graph_memory_ = 0;
  CUdeviceptr range_ = 0;
  void* host_alloc_ = nullptr;
  void* alloc_host_ = nullptr;
  std::vector<char> registered_;
  CUmemoryPool pool_ = nullptr;
  CUarray flat_ = nullptr;
  CUarray cube_ = nullptr;
  CUmipmappedArray levels_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUmodule module_ = nullptr;
};

// The child: maps and unmaps the parent's memory.
int open_ipc(const char* hex) {
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof(handle.reserved) && hex[2 * i] != '\0'; ++i) {
    const char byte[] = {hex[2 * i], hex[2 * i + 1], '\0'};
    handle.reserved[i] = static_cast<char>(std::strtoul(byte, nullptr, 16));
  }
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  cu.use_device(0);
  CUdeviceptr mapped = 0;
  constexpr unsigned int kLazyPeerAccess = 1;
  cu.check(cu.cuIpcOpenMemHandle_v2(&mapped, handle, kLazyPeerAccess), "cuIpcOpenMemHandle");
  cu.check(cu.cuIpcCloseMemHandle(mapped), "cuIpcCloseMemHandle");
  cu.check(cu.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
  return 0;
}

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  using namespace tidemark::samples;
  if (argc == 3 && std::strcmp(argv[1], "--open-ipc") == 0) return open_ipc(argv[2]);
  AllKinds all(argv[0]);
  all.allocate();
  all.print();
  if (argc == 2) usleep(static_cast<useconds_t>(std::atoi(argv[1])) * 1000);
  all.release();
  return 0;
}
