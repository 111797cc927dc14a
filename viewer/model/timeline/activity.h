// What one process ran on its cards: kernels by stream, and NCCL operations with the kernels that
// executed them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "viewer/model/timeline/span_row.h"

namespace tidemark::view {

enum class ActivityKind : uint8_t {
  kKernels,      // items are names (strings)
  kCollectives,  // items are indices in ProcessModel::nccl, the first of those that ran together
};

struct ActivityRow {
  ActivityKind kind = ActivityKind::kKernels;
  int64_t device = 0;
  uint64_t stream = 0;
  uint32_t depth = 0;  // 1 and more: overlaps the previous row
  SpanRow spans;
};

// One kernel or operation.
struct ActivityRef {
  uint32_t process = 0;
  uint32_t row = 0;
  uint32_t index = 0;

  friend bool operator==(const ActivityRef&, const ActivityRef&) = default;
};

struct Activity {
  // Collectives first, then streams by how busy they were.
  std::vector<ActivityRow> rows;
  uint64_t kernels = 0;
  uint64_t left_out = 0;  // overlapped more than kMaxDepth others

  static constexpr size_t kMaxDepth = 16;

  // `reader` may be null: then there are no kernels.
  static Activity of(const ProcessModel& process, const TraceReader* reader, uint32_t id,
                     int64_t end_ns);

  size_t memory_bytes() const;
};

// When an NCCL operation ran on the card, or when it was called where that is not known. One that
// never ran lasts until the trace ends.
struct CollectiveTime {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool on_card = false;
  bool never_ran = false;
};
CollectiveTime time_of(const NcclOperation& operation, int64_t trace_end_ns);

// All columns of a kernel, read from the file again; false when the file no longer has it.
bool read_kernel(const TraceReader& reader, uint32_t id, int64_t start_ns, uint64_t stream,
                 Kernel& out);

}  // namespace tidemark::view
