// Matches NCCL operations with the kernels that ran them.
//
// NCCL runs the operations of one group in one kernel and launches groups in the order in which it
// enqueues them; CUPTI numbers launches in their order. So the n-th group of a process and device
// belongs to the n-th NCCL kernel, provided none is missing. A group that never ran (its peers are
// gone) has no kernel: such groups are at the end.
//
// Where kernels were not recorded for a while, this holds between two such stretches. A group that
// was enqueued at the edge of a stretch may have a kernel or not: if the numbers leave a doubt,
// none of the groups there gets one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/read/unrecorded.h"
#include "proto/rows.h"

namespace tidemark {

// By its name, mangled or not: ncclDevKernel_…, ncclKernel_… (up to 2.18), ncclSymDevKernel_…
// (2.27), ncclSymkDevKernel_… (from 2.28 on).
bool is_nccl_kernel(std::string_view name);

struct NcclJoin {
  uint64_t groups = 0;
  uint64_t without_kernel = 0;
  uint64_t in_doubt = 0;  // not joined, at or between stretches without kernels
  bool exact = false;  // every kernel can be the one of its group; false if some are missing
};

// Fills in gpu_start_ns, gpu_duration_ns and device of the operations that have none. `kernels` are
// those of NCCL that were not launched by a graph. Sorts both: operations by group, kernels by
// launch.
NcclJoin join_nccl_kernels(std::vector<NcclOperation>& operations, std::vector<Kernel>& kernels,
                           std::span<const Stretch> unrecorded = {});

}  // namespace tidemark
