#include "cli/live_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/steps/level_growth.h"

namespace tidemark::cli {

namespace {

using Type = Metric::Type;

// ---- of a process -------------------------------------------------------------------------------

constexpr Metric kUp = {"tidemark_process_up", Type::kGauge, "",
                        "Whether the process answered; it may be stopped, or its card may hang."};
constexpr Metric kRecording = {"tidemark_recording", Type::kGauge, "",
                               "Whether the process is being recorded."};
constexpr Metric kPinned = {"tidemark_pinned_bytes", Type::kGauge, "bytes",
                            "Pinned host memory of the driver."};
constexpr Metric kTorchPinned = {"tidemark_torch_pinned_bytes", Type::kGauge, "bytes",
                                 "Blocks of PyTorch's allocator of pinned host memory."};
constexpr Metric kTorchPinnedInUse = {"tidemark_torch_pinned_in_use_bytes", Type::kGauge, "bytes",
                                      "The part of those blocks that is in use."};
constexpr Metric kSteps = {"tidemark_steps", Type::kCounter, "",
                           "Steps of the program: tidemark.step(), or else optimizer steps."};
constexpr Metric kLost = {"tidemark_events_lost", Type::kCounter, "",
                          "Events that are missing in the recording."};
constexpr Metric kCallbacks = {"tidemark_callback_seconds", Type::kCounter, "seconds",
                               "Time that driver calls of the program spent in tidemark."};
constexpr Metric kWriter = {"tidemark_writer_seconds", Type::kCounter, "seconds",
                            "CPU time of the thread that writes the recording."};
constexpr Metric kOwnBytes = {"tidemark_recorder_memory_bytes", Type::kGauge, "bytes",
                              "Host memory of the recorder."};
constexpr Metric kUncounted = {
    "tidemark_driver_uncounted_allocations", Type::kCounter, "",
    "Driver allocations that are missing in tidemark_driver_bytes, because its table was full."};

// ---- of one of its devices ----------------------------------------------------------------------

constexpr Metric kDevice = {"tidemark_device", Type::kLabels, "", "The name of the device."};
constexpr Metric kAllocated = {"tidemark_allocated_bytes", Type::kGauge, "bytes",
                               "Memory of PyTorch's allocator that is in use by tensors."};
constexpr Metric kRequested = {"tidemark_requested_bytes", Type::kGauge, "bytes",
                               "The part of it that the program asked for, before rounding."};
constexpr Metric kReserved = {"tidemark_reserved_bytes", Type::kGauge, "bytes",
                              "Segments of PyTorch's allocator: allocated and cached memory."};
constexpr Metric kHole = {"tidemark_largest_hole_bytes", Type::kGauge, "bytes",
                          "The largest free block in the segments."};
constexpr Metric kDriver = {
    "tidemark_driver_bytes", Type::kGauge, "bytes",
    "Memory on the device that the process got from the driver, by the library that asked for it."};
constexpr Metric kUsed = {"tidemark_device_used_bytes", Type::kGauge, "bytes",
                          "Memory of the device that is in use by any process."};
constexpr Metric kTotal = {"tidemark_device_total_bytes", Type::kGauge, "bytes",
                           "Memory of the device."};
constexpr Metric kProcess = {"tidemark_process_used_bytes", Type::kGauge, "bytes",
                             "Memory of the device that this process uses, as NVML sees it."};
constexpr Metric kOoms = {"tidemark_ooms", Type::kCounter, "",
                          "Out-of-memory errors of PyTorch, and of the driver in other code."};
constexpr Metric kRetries = {
    "tidemark_alloc_retries", Type::kCounter, "",
    "Allocations for which PyTorch had to give its cache back to the driver first."};
constexpr Metric kGrowth = {
    "tidemark_step_growth_bytes", Type::kGauge, "bytes",
    "Steady growth of the lowest allocated memory per step, over the last 64 steps; 0: none."};

// Writes the keys of a reply that are there.
class Samples {
 public:
  Samples(MetricPage& page, const ControlReply& numbers, MetricLabels labels, std::string prefix)
      : page_(page), numbers_(numbers), labels_(std::move(labels)), prefix_(std::move(prefix)) {}

  std::optional<uint64_t> number(std::string_view key) const {
    return numbers_.number(fmt::format("{}{}", prefix_, key));
  }
  const std::string& text(std::string_view key) const {
    return numbers_.text(fmt::format("{}{}", prefix_, key));
  }
  void put(const Metric& metric, std::string_view key) {
    if (const auto value = number(key)) page_.add(metric, labels_, *value);
  }
  void put_seconds(const Metric& metric, std::string_view key) {
    if (const auto ns = number(key)) page_.add(metric, labels_, static_cast<double>(*ns) * 1e-9);
  }
  template <typename Value>
  void put_value(const Metric& metric, Value value) {
    page_.add(metric, labels_, value);
  }
  template <typename Value>
  void put_value(const Metric& metric, const char* label, std::string_view of, Value value) {
    MetricLabels more = labels_;
    more.emplace_back(label, of);
    page_.add(metric, more, value);
  }

 private:
  MetricPage& page_;
  const ControlReply& numbers_;
  MetricLabels labels_;
  std::string prefix_;
};

MetricLabels labels_of(const LiveProcess& process) {
  MetricLabels labels;
  if (!process.job.empty()) labels.emplace_back("job", process.job);
  if (process.rank >= 0) labels.emplace_back("rank", std::to_string(process.rank));
  labels.emplace_back("host", process.host);
  labels.emplace_back("pid", std::to_string(process.pid));
  return labels;
}

std::vector<uint64_t> numbers_in(std::string_view text) {
  std::vector<uint64_t> numbers;
  while (!text.empty()) {
    uint64_t number = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
    numbers.push_back(number);
    text.remove_prefix(std::min(text.size(), static_cast<size_t>(end - text.data()) + 1));
  }
  return numbers;
}

// PyTorch also counts the attempt before an error as a retry.
void put_errors(Samples& samples) {
  const auto torch = samples.number("_ooms");
  const auto driver = samples.number("_refusals");
  if (torch || driver) samples.put_value(kOoms, torch.value_or(0) + driver.value_or(0));
  if (const auto tries = samples.number("_retries")) {
    samples.put_value(kRetries, *tries - std::min(*tries, torch.value_or(0)));
  }
}

void put_owners(Samples& samples) {
  constexpr std::string_view kOwners[] = {
      "torch",    "nccl",     "nccl.user",  "cublas",      "cublasLt", "cudnn",   "cufft",
      "cusolver", "cusparse", "cusparseLt", "curand",      "cutensor", "triton",  "jax",
      "cupy",     "tensorrt", "tensorflow", "onnxruntime", "nvshmem",  "program", "unknown"};
  for (const std::string_view owner : kOwners) {
    if (const auto bytes = samples.number(fmt::format("_by_{}", owner))) {
      samples.put_value(kDriver, "owner", owner, *bytes);
    }
  }
}

void put_device(Samples samples) {
  samples.put_value(kDevice, "name", samples.text("_name"), uint64_t{1});
  samples.put(kAllocated, "_allocated");
  samples.put(kRequested, "_requested");
  samples.put(kReserved, "_reserved");
  samples.put(kHole, "_largest_hole");
  put_owners(samples);
  samples.put(kUsed, "_used");
  samples.put(kTotal, "_total");
  samples.put(kProcess, "_process");
  put_errors(samples);
  if (const std::vector<uint64_t> lows = numbers_in(samples.text("_lows")); !lows.empty()) {
    const auto growth = find_growth(lows);
    samples.put_value(kGrowth, growth ? growth->bytes_per_step : 0.0);
  }
}

}  // namespace

void add_metrics(MetricPage& page, const std::vector<LiveProcess>& processes) {
  constexpr uint64_t kMostDevices = 64;
  for (const LiveProcess& process : processes) {
    const MetricLabels labels = labels_of(process);
    Samples samples(page, process.numbers, labels, "");
    samples.put_value(kUp, uint64_t{process.answered});
    if (!process.answered) continue;
    samples.put_value(kRecording, uint64_t{process.recording});
    samples.put(kSteps, "steps");
    samples.put(kLost, "lost");
    samples.put_seconds(kCallbacks, "callbacks_ns");
    samples.put_seconds(kWriter, "writer_ns");
    samples.put(kOwnBytes, "host_bytes");
    samples.put(kPinned, "pinned");
    samples.put(kTorchPinned, "torch_pinned");
    samples.put(kTorchPinnedInUse, "torch_pinned_in_use");
    samples.put(kUncounted, "uncounted");
    const uint64_t devices = samples.number("devices").value_or(0);
    for (uint64_t i = 0; i < std::min(devices, kMostDevices); ++i) {
      const std::string prefix = fmt::format("d{}", i);
      MetricLabels more = labels;
      more.emplace_back("device", process.numbers.text(prefix));
      more.emplace_back("uuid", process.numbers.text(prefix + "_uuid"));
      put_device(Samples(page, process.numbers, std::move(more), prefix));
    }
  }
}

}  // namespace tidemark::cli
