// Rows of the tables of kernels and collectives in a range of time, made independently of drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viewer/model/tables/tables.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

enum class KernelColumn { kTotal, kCount, kMean, kLongest, kName };
enum class CollectiveColumn { kBegin, kWait, kLength, kSize, kSequence, kFunction };

// All kernels of one name.
struct KernelRow {
  uint32_t name = 0;  // string
  uint64_t count = 0;
  uint64_t total_ns = 0;
  uint64_t longest_ns = 0;
  ActivityRef longest;

  uint64_t mean_ns() const { return count == 0 ? 0 : total_ns / count; }
};

struct CollectiveRow {
  ActivityRef ref;
  uint32_t operation = 0;  // in ProcessModel::nccl
};

// Those of a process that overlap the time (of the trace's clock) and contain the text.
std::vector<KernelRow> kernel_rows(const Model& model, uint32_t process, int64_t begin_ns,
                                   int64_t end_ns, const std::string& filter, SortBy sort);
std::vector<CollectiveRow> collective_rows(const Model& model, uint32_t process, int64_t begin_ns,
                                           int64_t end_ns, const std::string& filter, SortBy sort);

}  // namespace tidemark::view
