#include "cli/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "analysis/report/report.h"
#include "collector/launch/launcher.h"
#include "collector/recover/recovery.h"
#include "collector/trace_source.h"

namespace tidemark::cli {

namespace {

namespace fs = std::filesystem;

// samples/cuda/leak keeps 1 MiB per step, beside 6 MiB that it frees again.
constexpr int kSteps = 8;
constexpr uint64_t kPeakBytes = (kSteps - 1 + 6) * uint64_t{1048576};

// Relative to this program, as installed and in the build tree.
std::string find_part(std::initializer_list<const char*> places) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : places) {
    if (fs::exists(self / place, error)) return (self / place).string();
  }
  return {};
}

struct Scratch {
  std::string path;
  Scratch() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "tidemark-doctor-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code error;
    if (!path.empty()) fs::remove_all(path, error);
  }
};

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line.empty() ? "it said nothing" : line;
}

Status check_recording(const std::string& directory) {
  static_cast<void>(recover_directory(directory, RecoveryBy::kReader));
  const Result<TraceSource> source = open_trace(directory);
  if (!source) return Error{"nothing was recorded: CUPTI or the library did not load"};
  const Result<TraceModel> model = load_trace(source->readers);
  if (!model) return model.error();
  const Result<Report> report = make_report(*model, {});
  if (!report) return report.error();
  uint64_t peak = 0;
  for (const RankReport& rank : report->ranks) {
    for (const DeviceReport& d : rank.devices) peak = std::max(peak, d.driver_peak.bytes);
  }
  if (peak >= kPeakBytes) return {};
  return Error{fmt::format("the recording has a peak of {} bytes, but the program allocated {}", peak,
                           kPeakBytes)};
}

std::string sample_program() {
  return find_part({"../lib/tidemark/leak", "samples/cuda/leak"});
}
std::string simulated_driver() {
  return find_part({"../lib/tidemark/simgpu", "simgpu/lib"});
}

}  // namespace

bool has_sample() {
  return !sample_program().empty() && !simulated_driver().empty();
}

Status record_sample(bool simulated) {
  const Result<std::string> injector = find_injector();
  if (!injector) return injector.error();
  const std::string program = sample_program();
  const std::string driver = simulated_driver();
  if (!has_sample()) {
    return Error{"lib/tidemark, which holds the test program, is missing from the installation"};
  }
  const Scratch scratch;
  if (scratch.path.empty()) return Error{"no directory for temporary files can be written to"};
  LaunchOptions launched;
  launched.injector = *injector;
  launched.directory = scratch.path + "/out";
  // Output of the library and of the program is shown only if something went wrong.
  const std::string said = scratch.path + "/said";
  launched.command = {"/bin/sh", "-c", "exec \"$0\" \"$1\" > \"$2\" 2>&1", program,
                      std::to_string(kSteps), said};
  if (simulated) {
    const char* const before = std::getenv("LD_LIBRARY_PATH");
    launched.environment = {
        {"LD_LIBRARY_PATH", before == nullptr || *before == 0 ? driver : driver + ":" + before},
        {"SIMGPU_DIR", scratch.path}};
  }
  const Result<LaunchResult> result = launch(launched);
  if (!result) return result.error();
  if (result->exit_code != 0 || result->signal != 0 || result->start_error != 0) {
    return Error{"the test program failed: " + first_line(said)};
  }
  return check_recording(launched.directory);
}

}  // namespace tidemark::cli
