// Counters of a Perfetto trace: the curves of the framework's allocator and sampled counters.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/stacked/category_curves.h"
#include "export/counter_samples.h"
#include "export/perfetto/tracks.h"

namespace tidemark {

// The curves of one device of one process, on their own sequence. Its clock counts from sample to
// sample: smaller numbers, a fifth fewer bytes.
class CounterCurves {
 public:
  CounterCurves(PerfettoPackets& packets, PerfettoTracks& tracks, const ExportProcess& process,
                const AllocationHistory& model, const TimeRange& range, int64_t clock_start_ns);

  // The bytes that all samples would take in the file.
  struct Size {
    uint64_t samples = 0;
    uint64_t bytes = 0;
  };
  // With `stretches` other than 0: of the samples kept when the time is cut into that many.
  Size measure(uint64_t stretches = 0) const;

  // An upper bound for all samples.
  uint64_t most_bytes() const;

  // Writes the samples that measure() counted with the same argument. Returns their number.
  uint64_t write(uint64_t stretches, const Progress& progress);

 private:
  // Calls use(CounterSample) for the samples that are kept.
  template <typename Use>
  void for_each_kept(uint64_t stretches, Use&& use) const;
  void begin_sequence();
  void put(const CounterSample& sample);

  PerfettoPackets& packets_;
  const AllocationHistory& model_;
  TimeRange range_;
  int64_t clock_start_ns_;
  int64_t clock_ns_;  // current time of the sequence's clock
  uint32_t sequence_;
  std::array<uint64_t, kFrameworkCounters.size()> tracks_{};
};

// The rows of the counters table: use of the whole card, pools, host memory.
void write_sampled_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                            const ExportProcess& process, const TimeRange& range);

// What each owner (torch, nccl, cublas …) holds on the card, by the driver's events.
void write_owner_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                          const ExportProcess& process, const TimeRange& range);

// What each category of blocks holds on a device, at the highest instant of each of a few thousand
// stretches of time.
void write_category_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                             const ExportProcess& process, const CategoryCurve& curve);

// The y axis that all counters of a device share.
std::string axis_of(const ExportProcess& process, int64_t device);

}  // namespace tidemark
