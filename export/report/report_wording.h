// How every form of the report says the same thing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/report/report.h"

namespace tidemark {

// In place of the stack of blocks that are older than the recording.
inline constexpr std::string_view kBeforeRecording = "(allocated before the recording began)";

// "+1.234 s" since the start, "-87 ms" before it.
std::string offset_text(int64_t ns);

// "at +1.234 s": the instant that a device's report describes.
std::string instant_text(const DeviceReport& device, int64_t start_ns);

// When a device's holes are described, with more digits if the instant above would read the same.
std::string holes_time_text(const DeviceReport& device, int64_t start_ns);

// The peaks of a device; of a snapshot without history, its state.
struct NamedPeak {
  std::string_view name;
  Peak peak;
  std::string note;  // what follows the number, or empty
};
std::vector<NamedPeak> peaks_of(const DeviceReport& device);

// Where a finding is: "rank 3", "cuda:1", "rank 3, cuda:1". A process is named if there are several
// processes, a device if its process has several; else empty.
std::string place_text(const Report& report, const Finding& finding);
// "rank 2: memory grows …"; the place once, if the summary begins with it.
std::string placed_summary(const Report& report, const Finding& finding);
// "rank 1"; if there are several processes, of one without a rank its file and pid, as far as they
// are known: "a.pickle", "pid 4711", "pid 4711 (a.tmk)"; else empty.
std::string process_text(const Report& report, int64_t rank, uint64_t pid, std::string_view file);
// The same of the process of one of `devices`, which have a rank, a pid and a file each.
template <typename Device>
std::string process_title(const std::vector<Device>& devices, const Device& device);
std::string process_text(int64_t rank, uint64_t pid, std::string_view file, bool is_restarted,
                         bool is_alone);
bool names_device(const Report& report, const Finding& finding);

// Whether some ranks of the report are not described in detail.
bool is_summarized(const Report& report);
// Of a job of very many ranks: which others have the same kind of finding; empty: none.
std::string also_text(const Report& report, const Finding& finding);
// The peaks of the ranks that are not described in detail; empty if all are.
std::string other_ranks_text(const Report& report);

// "10 memory events over 2.5 s", and from when on if the recording is longer.
std::string events_text(const Report& report);

// "cudnn asked the driver in vain for 512.0 MiB, and the program went on".
std::string refusals_text(const LibraryRefusals& refusals);

// Instead of findings, if there are none.
std::string no_findings_text(const Report& report);

// "60.0 MiB allocated, 30.0 MiB pending free, 100.0 MiB reserved" at the report's instant.
std::string totals_text(const MemoryTotals& totals);

// The memory when a request failed: "allocated 1.0 GiB, reserved 2.0 GiB, ...", or what the driver
// knew.
std::string oom_text(const OomReport& oom);

// Which lines of the ledger were recorded, and when the card was read for the others.
std::string reading_text(const Ledger& ledger);

// Why the ledger's sum is above the highest reading of the card; empty if it is not.
std::string above_readings_text(const DeviceReport& device, const Ledger& ledger);

// "Whole run: 47 h 12 min, 172,800 steps; events are kept of the last 10 min 3 s".
std::string whole_run_text(const DeviceReport& device, const Report& report);
// Which steps of the run those of a kept window are; empty if everything was kept.
std::string step_numbers_text(const StepReport& steps);
// "2 out-of-memory errors before the kept window".
std::string earlier_errors_text(const DeviceReport& device);

// Pinned host memory: what the driver pinned, and what PyTorch's allocator has of it.
bool is_worth_saying(const PinnedMemory& pinned);
std::string pinned_text(const PinnedMemory& pinned, int64_t start_ns);

template <typename Device>
std::string process_title(const std::vector<Device>& devices, const Device& device) {
  bool is_restarted = false;
  bool is_alone = true;
  for (const Device& other : devices) {
    const bool is_same = other.pid == device.pid && other.file == device.file;
    is_restarted |= !is_same && other.rank == device.rank;
    is_alone &= is_same && other.rank == device.rank;
  }
  return process_text(device.rank, device.pid, device.file, is_restarted, is_alone);
}

}  // namespace tidemark
