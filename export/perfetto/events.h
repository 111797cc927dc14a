// Single events of a Perfetto trace: out-of-memory errors and findings, with their evidence.
#pragma once

#include <span>

#include "analysis/report/report.h"
#include "export/perfetto/tracks.h"

namespace tidemark {

// How many of a device's last errors get a flame graph and a list of holes: both walk the whole
// history, and a program that retries can make thousands of errors.
inline constexpr size_t kMaxOomDumps = 16;

// Instants and flame graphs of one device: the peak, and each error.
void write_peak_and_ooms(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                         const ExportProcess& process, const AllocationHistory& model,
                         const TimeRange& range);

// The same for the driver's allocations, at their peak.
void write_driver_peaks(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                        const ExportProcess& process, const TimeRange& range);

// Errors that the recorder saw and that are not in the framework's history.
void write_recorded_ooms(PerfettoTracks& tracks, PerfettoNames& names, const ExportProcess& process,
                         const TimeRange& range);

// Findings, at the peak of their device; at `end_ns` when it has none.
void write_findings(PerfettoTracks& tracks, PerfettoNames& names, const ExportProcess& process,
                    std::span<const Finding* const> findings, int64_t end_ns,
                    const TimeRange& range);

// The program's iterations, one range per iteration and device.
void write_steps(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                 const Steps& steps, const AllocationHistory& model, const TimeRange& range);

}  // namespace tidemark
