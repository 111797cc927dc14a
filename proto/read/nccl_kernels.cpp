#include "proto/read/nccl_kernels.h"

#include <algorithm>
#include <utility>

namespace tidemark {

bool is_nccl_kernel(std::string_view name) {
  for (size_t at = name.find("nccl"); at != std::string_view::npos;
       at = name.find("nccl", at + 1)) {
    std::string_view rest = name.substr(at + 4);
    for (const std::string_view part : {"Symk", "Sym"}) {
      if (rest.starts_with(part)) {
        rest.remove_prefix(part.size());
        break;
      }
    }
    if (rest.starts_with("Dev")) rest.remove_prefix(3);
    if (rest.starts_with("Kernel")) return true;
  }
  return false;
}

namespace {

bool earlier(const NcclOperation& a, const NcclOperation& b) {
  return a.group != b.group ? a.group < b.group : a.start_ns < b.start_ns;
}

// Correlation numbers are 32 bits wide and wrap around: each is taken as the value closest to the
// one before it in time.
void sort_by_launch(std::vector<Kernel>& kernels) {
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.start_ns < b.start_ns; });
  std::vector<std::pair<int64_t, Kernel>> numbered;
  numbered.reserve(kernels.size());
  int64_t number = 0;
  uint32_t before = kernels.empty() ? 0 : kernels.front().correlation;
  for (const Kernel& kernel : kernels) {
    number += static_cast<int32_t>(kernel.correlation - before);
    before = kernel.correlation;
    numbered.emplace_back(number, kernel);
  }
  std::stable_sort(numbered.begin(), numbered.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i] = numbered[i].second;
}

}  // namespace

NcclJoin join_nccl_kernels(std::vector<NcclOperation>& operations, std::vector<Kernel>& kernels) {
  std::stable_sort(operations.begin(), operations.end(), earlier);
  sort_by_launch(kernels);

  NcclJoin join;
  join.exact = !kernels.empty();
  size_t next = 0;
  for (size_t i = 0; i < operations.size();) {
    size_t end = i + 1;
    while (end < operations.size() && operations[end].group == operations[i].group) ++end;
    const bool enqueued = operations[i].group != 0 && operations[i].kind != NcclKind::kCopyEngine;
    if (enqueued) ++join.groups;
    if (enqueued && next == kernels.size()) ++join.without_kernel;
    if (enqueued && next < kernels.size()) {
      const Kernel& kernel = kernels[next++];
      // A kernel cannot begin before it was requested: if it does, one is missing or one is extra.
      join.exact &= kernel.start_ns >= operations[i].start_ns;
      for (size_t k = i; k < end; ++k) {
        operations[k].gpu_start_ns = kernel.start_ns;
        operations[k].gpu_duration_ns = kernel.duration_ns;
        operations[k].device = kernel.device;
      }
    }
    i = end;
  }
  join.exact &= next == kernels.size();
  return join;
}

}  // namespace tidemark
