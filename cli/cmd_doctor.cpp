#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "analysis/names/source_lines.h"
#include "cli/command.h"
#include "cli/self_test.h"
#include "cli/terminal.h"
#include "collector/launch/program_path.h"

namespace tidemark::cli {

namespace {

namespace fs = std::filesystem;

struct Check {
  bool good;
  std::string what;
  std::string fix;  // when the check fails
};

bool loads(const char* library) {
  return ::dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr;  // not every one can be unloaded
}

std::string cupti_place() {
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    if (loads(name)) return name;
  }
  for (const char* root : {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"}) {
    const std::string path = std::string(root) + "/libcupti.so";
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  return {};
}

Check check_driver(bool driver) {
  if (driver) return {true, "CUDA driver: libcuda.so.1 loads", {}};
  return {false, "CUDA driver: libcuda.so.1 not found",
          "install NVIDIA's driver; traces and snapshots can be read without it"};
}

Check check_nvml() {
  if (loads("libnvidia-ml.so.1")) return {true, "NVML: libnvidia-ml.so.1 loads", {}};
  return {false, "NVML: libnvidia-ml.so.1 not found",
          "it comes with NVIDIA's driver; without it, the total memory use of the card is unknown"};
}

Check check_cupti() {
  const std::string place = cupti_place();
  if (!place.empty()) return {true, "CUPTI: " + place, {}};
  return {false, "CUPTI: not found",
          "install the CUDA toolkit's CUPTI, or use a Python that has the nvidia-cuda-cupti wheel"};
}

Check check_compiler() {
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (!find_program(name).empty()) return {true, fmt::format("C++ compiler: {}", name), {}};
  }
  return {false, "C++ compiler: none on PATH",
          "install g++; without it, PyTorch's requested sizes and streams are not recorded"};
}

Check check_source_lines() {
  if (reads_source_lines()) return {true, "native stacks: functions, files and lines", {}};
  return {false, "native stacks: functions only; this tidemark was built without elfutils",
          "install libdw-dev and rebuild tidemark"};
}

Check check_viewer() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!fs::exists(self / "tidemark-view", error)) {
    return {false, "viewer: not part of this tidemark", "see docs/viewer.md for how to build it"};
  }
  if (loads("libEGL.so.1") && (loads("libOpenGL.so.0") || loads("libGL.so.1"))) {
    return {true, "viewer: OpenGL and EGL load", {}};
  }
  return {false, "viewer: OpenGL or EGL not found",
          "install libegl1, libopengl0 and libgl1-mesa-dri (Debian, Ubuntu); reports need none"};
}

// The whole way: the library in a program, its recording on disk, and the report of it.
Check check_recording(bool driver) {
  const char* const gpu = driver ? "on this machine's GPU" : "on a simulated GPU";
  const Status recorded = record_sample(!driver);
  if (recorded) {
    return {true, fmt::format("recording: a test program was recorded {} and read back", gpu), {}};
  }
  return {false, fmt::format("recording {}: {}", gpu, recorded.error().message),
          driver && has_sample() ? "see whether nvidia-smi shows a usable GPU, and the lines above"
                 : "install tidemark again"};
}

Check check_output() {
  if (::access(".", W_OK) == 0) return {true, "this directory can be written to", {}};
  return {false, "this directory cannot be written to",
          "change to another directory, or choose one with -o"};
}

const char* next_command(bool driver, bool records) {
  if (driver && records) return "tidemark run -- python train.py";
  if (records) return "tidemark report SNAPSHOT.pickle (recording needs a machine with a GPU)";
  return "install what is missing, then run tidemark doctor again";
}

}  // namespace

void add_doctor(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "check what this machine has for recording, and what is missing");
  command->footer(
      "Records a test program, on a simulated GPU if there is no other. Exits with 1 if something is\n"
      "missing.\n"
      "Example:\n  tidemark doctor");
  command->callback([&code] {
    const bool colour = stdout_has_colour();
    const bool driver = loads("libcuda.so.1");
    bool records = false;
    for (const Check& check :
         {check_driver(driver), check_nvml(), check_cupti(), check_compiler(), check_source_lines(),
          check_viewer(), check_output(), check_recording(driver)}) {
      const char* sign = check.good ? (colour ? "\x1b[32mok\x1b[0m     " : "ok     ")
                                    : (colour ? "\x1b[33mmissing\x1b[0m" : "missing");
      fmt::print("{}  {}\n", sign, check.what);
      if (!check.good) fmt::print("         {}\n", check.fix);
      if (!check.good) code = kNo;
      records = check.good;
    }
    fmt::print("\nNext: {}\n", next_command(driver, records));
  });
}

}  // namespace tidemark::cli
