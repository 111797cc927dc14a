// Cards shared by processes, and what NVML reports about them.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/simgpu/fixture.h"

extern char** environ;  // NOLINT: POSIX

namespace tidemark {
namespace {

using namespace nvml;  // NOLINT

// A hold_memory process; its memory is freed when it ends.
class Holder {
 public:
  Holder(int device, size_t mebibytes, std::string ipc = {}) {
    int in[2];
    int out[2];
    EXPECT_EQ(pipe(in), 0);
    EXPECT_EQ(pipe(out), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    // The child must not keep its own input open, or it would never end.
    for (int fd : {in[0], in[1], out[0], out[1]}) {
      posix_spawn_file_actions_addclose(&actions, fd);
    }
    std::string program = TIDEMARK_HOLD_MEMORY;
    std::string ordinal = std::to_string(device);
    std::string amount = std::to_string(mebibytes);
    char* arguments[] = {program.data(), ordinal.data(), amount.data(),
                         ipc.empty() ? nullptr : ipc.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = fdopen(out[0], "r");
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::string line() {
    char text[64] = {};
    if (std::fgets(text, sizeof(text), output_) == nullptr) return {};
    return std::string(text).substr(0, std::string(text).find('\n'));
  }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait_without_reaping();
  }
  void end() {
    if (pid_ == 0) return;
    close(input_);
    std::fclose(output_);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  // A zombie must not hold memory either.
  void wait_without_reaping() const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  pid_t pid_ = 0;
  int input_ = -1;
  FILE* output_ = nullptr;
};

class Sharing : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "simgpu.XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = path;
    setenv("SIMGPU_DIR", dir_.c_str(), 1);
    unsetenv("CUDA_INJECTION64_PATH");
    ASSERT_EQ(NVML(nvmlInit_v2)(), NVML_SUCCESS);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static nvmlDevice_t card(unsigned int index) {
    nvmlDevice_t device = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(index, &device), NVML_SUCCESS);
    return device;
  }
  static uint64_t used(unsigned int index) {
    nvmlMemory_v2_t memory{};
    memory.version = kMemoryV2;
    EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(card(index), &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, memory.reserved + memory.used + memory.free);
    return memory.used;
  }
  std::string dir_;
};

TEST_F(Sharing, ProcessesShareACardAndKilledOnesHoldNothing) {
  {
    Holder a(0, 200);
    Holder b(0, 100);
    ASSERT_EQ(a.line(), "ready");
    ASSERT_EQ(b.line(), "ready");
    EXPECT_EQ(used(0), (200 + 100 + 2 * 100) * kMiB) << "two contexts of 100 MiB";
    EXPECT_EQ(used(1), 0U);

    unsigned int count = 0;
    const auto list = find_in<nvmlDeviceGetComputeRunningProcesses_fn>(
        "libnvidia-ml.so.1", "nvmlDeviceGetComputeRunningProcesses_v3");
    EXPECT_EQ(list(card(0), &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
    ASSERT_EQ(count, 2U);
    nvmlProcessInfo_v2_t infos[2]{};
    ASSERT_EQ(list(card(0), &count, infos), NVML_SUCCESS);
    const int first = infos[0].pid == a.pid() ? 0 : 1;
    EXPECT_EQ(infos[first].pid, a.pid());
    EXPECT_EQ(infos[first].usedGpuMemory, 300 * kMiB);
    EXPECT_EQ(infos[1 - first].pid, b.pid());
    EXPECT_EQ(infos[1 - first].gpuInstanceId, kNoInstance);

    nvmlProcessDetail_v1_t details[4]{};
    nvmlProcessDetailList_v1_t query{kProcessDetailListV1, 0, 4, details};
    ASSERT_EQ(NVML(nvmlDeviceGetRunningProcessDetailList)(card(0), &query), NVML_SUCCESS);
    EXPECT_EQ(query.numProcArrayEntries, 2U);

    Holder too_much(0, 600);
    EXPECT_EQ(too_much.line(), "failed 2") << "600 + 100 of 1024 MiB when 500 are in use";
    too_much.end();
    a.kill();
    EXPECT_EQ(used(0), 200 * kMiB);
    Holder fits(0, 600);
    EXPECT_EQ(fits.line(), "ready");
  }
  EXPECT_EQ(used(0), 0U);
}

TEST_F(Sharing, VisibleDevicesChooseTheCard) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  Holder a(0, 50);
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(a.line(), "ready");
  EXPECT_EQ(used(0), 0U);
  EXPECT_EQ(used(1), 150 * kMiB);
  char uuid[kDeviceUuidBytes];
  ASSERT_EQ(NVML(nvmlDeviceGetUUID)(card(1), uuid, sizeof(uuid)), NVML_SUCCESS);
  nvmlDevice_t same = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByUUID)(uuid, &same), NVML_SUCCESS);
  EXPECT_EQ(same, card(1));
  setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
  Holder b(0, 10);
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(b.line(), "ready");
  EXPECT_EQ(used(1), 260 * kMiB);
}

TEST_F(Sharing, IpcMemoryCountsInItsOwnerOnly) {
  CUcontext context = nullptr;
  CUdeviceptr p = 0;
  CUipcMemHandle handle{};
  OK(CU(cuInit)(0));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
  OK(CU(cuMemAlloc_v2)(&p, 64 * kMiB));
  OK(CU(cuIpcGetMemHandle)(&handle, p));
  std::string hex;
  for (char byte : handle.reserved) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(byte));
    hex += text;
  }
  EXPECT_EQ(used(0), 164 * kMiB) << "this process, seen by NVML in this process";
  Holder other(0, 0, hex);
  EXPECT_EQ(other.line(), "mapped " + std::to_string(64 * kMiB));
  EXPECT_EQ(other.line(), "ready");
  EXPECT_EQ(used(0), 264 * kMiB) << "one more context, no more memory";
  size_t free = 0;
  size_t total = 0;
  OK(CU(cuMemGetInfo_v2)(&free, &total));
  EXPECT_EQ(total - free, 264 * kMiB) << "the driver agrees with NVML";
}

// Without a shared folder, NVML queries the driver of its own process.
// The driver reads the environment when it is first used.
class SimGpuInContainer : public SimGpu {
 protected:
  void SetUp() override {
    setenv("SIMGPU_PID_OFFSET", "1000000", 1);
    SimGpu::SetUp();
  }
};

TEST_F(SimGpuInContainer, NvmlSeesThisProcess) {
  ASSERT_EQ(NVML(nvmlInit_v2)(), NVML_SUCCESS);
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 64 * kMiB));
  nvmlProcessDetail_v1_t details[4]{};
  nvmlProcessDetailList_v1_t query{kProcessDetailListV1, 0, 4, details};
  ASSERT_EQ(NVML(nvmlDeviceGetRunningProcessDetailList)(device, &query), NVML_SUCCESS);
  ASSERT_EQ(query.numProcArrayEntries, 1U);
  EXPECT_EQ(details[0].pid, static_cast<unsigned int>(getpid()) + 1000000) << "as in a container";
  EXPECT_EQ(details[0].usedGpuMemory, 164 * kMiB);
  nvmlMemory_t memory{};
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.free, free_bytes());
  OK(CU(cuMemFree_v2)(p));
}

TEST_F(Sharing, NvmlChecksItsArguments) {
  nvmlMemory_v2_t memory{};
  memory.version = 1;
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(card(0), &memory),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlMemory_t v1{};
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo)(card(0), &v1), NVML_SUCCESS);
  EXPECT_EQ(v1.total, v1.used + v1.free);
  EXPECT_EQ(v1.used, 256 * kMiB) << "the first version counts what the driver keeps";
  nvmlDevice_t none = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(2, &none), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)("GPU-none", &none), NVML_ERROR_NOT_FOUND);
  char version[kDriverVersionBytes];
  EXPECT_EQ(NVML(nvmlSystemGetDriverVersion)(version, sizeof(version)), NVML_SUCCESS);
  EXPECT_EQ(NVML(nvmlSystemGetDriverVersion)(version, 3), NVML_ERROR_INSUFFICIENT_SIZE);
  using AskLink = nvmlReturn_t (*)(nvmlDevice_t, unsigned int, void*);
  for (const char* name :
       {"nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2"}) {
    EXPECT_EQ(find_in<AskLink>("libnvidia-ml.so.1", name)(card(0), 0, nullptr),
              NVML_ERROR_NOT_SUPPORTED);
  }
}

}  // namespace
}  // namespace tidemark
