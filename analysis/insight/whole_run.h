// The curve that a recording with a limited window keeps of the whole run (proto/rows.h: Summary),
// its peaks, and whether memory grows over it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark {

// A part of the run: what one point of the recorder or several of them say.
struct RunPart {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t lowest_bytes = UINT64_MAX;  // allocated by PyTorch; where it is not used, by the driver
  uint64_t highest_bytes = 0;
  uint64_t reserved_bytes = 0;     // the most
  uint64_t device_used_bytes = 0;  // the most; whole card
  uint64_t steps = 0;              // up to its end
};

struct WholeRun {
  int64_t kept_from_ns = 0;    // where the window begins; 0: everything was kept
  std::vector<RunPart> parts;  // of equal length; those without a point are left out
  uint64_t points = 0;

  // The end of the second in which they were reached; 0 bytes: not known.
  Peak allocated_peak;  // only with PyTorch
  Peak reserved_peak;
  Peak driver_peak;
  Peak device_used_peak;        // of NVML's readings: between them, more may have been used
  uint64_t earlier_errors = 0;  // out of memory, before the window

  // Growth of the lowest level, up to now, without what the program created before it was steady;
  // gained_bytes is 0 unless it is steady and matters.
  uint64_t gained_bytes = 0;
  int64_t grows_from_ns = 0;
  int64_t grows_until_ns = 0;
  uint64_t steps = 0;  // in between; 0: not known

  bool is_window() const { return kept_from_ns != 0; }
  bool empty() const { return parts.empty(); }
  int64_t begin_ns() const { return parts.front().begin_ns; }
  int64_t end_ns() const { return parts.back().end_ns; }
  bool grows() const { return gained_bytes != 0; }
  double bytes_per_ns() const;
};

// At most `most` parts, each made of several neighbours.
std::vector<RunPart> thinned(const std::vector<RunPart>& parts, size_t most);

// Empty if the recording kept everything. Growth is measured unless it kept nearly everything: then
// its events tell more. `until_ns`: what happens later, such as the end of a program that failed,
// says nothing about growth.
WholeRun whole_run(const ProcessModel& process, int64_t device, int64_t until_ns = INT64_MAX);

// Whether so many bytes or more were allocated for longer than `span_ns` before the window.
bool was_as_high(const ProcessModel& process, int64_t device, uint64_t bytes, int64_t span_ns);

}  // namespace tidemark
