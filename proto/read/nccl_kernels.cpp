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

// NCCL may launch the kernel a little after it reports the operation as enqueued.
constexpr int64_t kLaunchDelayNs = 1'000'000;

// Forged times must not overflow.
int64_t sane(int64_t time_ns) {
  constexpr int64_t kLatestNs = int64_t{1} << 61;
  return std::clamp(time_ns, -kLatestNs, kLatestNs);
}

// The operations of one kernel: a range of indices, and the time of the calls.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // launched by then
};

std::vector<Group> groups_of(const std::vector<NcclOperation>& operations) {
  std::vector<Group> groups;
  for (size_t i = 0; i < operations.size();) {
    Group group{i, i + 1, operations[i].start_ns, sane(operations[i].start_ns)};
    while (group.end < operations.size() && operations[group.end].group == operations[i].group) {
      ++group.end;
    }
    for (size_t k = i; k < group.end; ++k) {
      const auto length = std::min<uint64_t>(operations[k].duration_ns, INT64_MAX / 4);
      group.end_ns =
          std::max(group.end_ns, sane(operations[k].start_ns) + static_cast<int64_t>(length));
    }
    group.end_ns += kLaunchDelayNs;
    if (operations[i].group != 0 && operations[i].kind != NcclKind::kCopyEngine) {
      groups.push_back(group);
    }
    i = group.end;
  }
  return groups;
}

void assign(std::vector<NcclOperation>& operations, const Group& group, const Kernel& kernel) {
  for (size_t k = group.begin; k < group.end; ++k) {
    operations[k].gpu_start_ns = kernel.start_ns;
    operations[k].gpu_duration_ns = kernel.duration_ns;
    operations[k].device = kernel.device;
  }
}

void join_all(std::vector<NcclOperation>& operations, const std::vector<Group>& groups,
              const std::vector<Kernel>& kernels, NcclJoin& join) {
  const size_t count = std::min(groups.size(), kernels.size());
  for (size_t i = 0; i < count; ++i) {
    // A kernel cannot begin before it was requested: if it does, one is missing or one is extra.
    join.exact &= kernels[i].start_ns >= groups[i].start_ns;
    assign(operations, groups[i], kernels[i]);
  }
  join.without_kernel = groups.size() - count;
  join.exact &= count == kernels.size();
}

// Joins what was launched between two stretches. `groups` may have had a kernel recorded there, the
// first `unsure_first` and the last `unsure_last` of them perhaps not. `last`: nothing was left out
// afterwards, so the groups at the end may not have run.
bool join_between(std::vector<NcclOperation>& operations, std::span<const Group> groups,
                  size_t unsure_first, size_t unsure_last, bool last,
                  std::span<const Kernel> kernels) {
  if (kernels.size() > groups.size()) return false;
  size_t offset = 0;
  if (unsure_first != 0) {
    // Only if all that are missing must be missing at one end.
    const size_t missing = groups.size() - kernels.size();
    if (unsure_last != 0 || last || missing > unsure_first) {
      if (missing != 0) return false;
    } else {
      offset = missing;
    }
  } else if (!last && groups.size() - kernels.size() > unsure_last) {
    return false;
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].start_ns < groups[offset + i].start_ns) return false;
  }
  for (size_t i = 0; i < kernels.size(); ++i) assign(operations, groups[offset + i], kernels[i]);
  return true;
}

void join_in_parts(std::vector<NcclOperation>& operations, const std::vector<Group>& groups,
                   const std::vector<Kernel>& kernels, std::span<const Stretch> unrecorded,
                   NcclJoin& join) {
  size_t next_group = 0;
  size_t next_kernel = 0;
  int64_t from_ns = INT64_MIN;  // the recorded part
  for (size_t part = 0; part <= unrecorded.size(); ++part) {
    const bool last = part == unrecorded.size();
    const int64_t to_ns = last ? INT64_MAX : unrecorded[part].begin_ns;
    const int64_t next_ns = last ? INT64_MAX : unrecorded[part].end_ns;
    while (next_group < groups.size() && groups[next_group].end_ns < from_ns) ++next_group;
    size_t end = next_group;
    size_t unsure_first = 0;
    size_t unsure_last = 0;
    for (; end < groups.size() && groups[end].start_ns <= to_ns; ++end) {
      if (groups[end].start_ns < from_ns) {
        ++unsure_first;
      } else if (groups[end].end_ns > to_ns) {
        ++unsure_last;
      }
    }
    // What was launched in this part began to run before the next part, or it is not told from what
    // was launched there: then the times contradict each other, and nothing is joined.
    size_t kernel_end = next_kernel;
    while (kernel_end < kernels.size() && kernels[kernel_end].start_ns < next_ns) ++kernel_end;
    const std::span<const Group> here(groups.data() + next_group, end - next_group);
    const std::span<const Kernel> ran(kernels.data() + next_kernel, kernel_end - next_kernel);
    if (!join_between(operations, here, unsure_first, unsure_last, last, ran)) {
      join.in_doubt += here.size();
      join.exact &= ran.size() <= here.size();
    }
    next_group = end > next_group && unsure_last != 0 ? end - unsure_last : end;
    next_kernel = kernel_end;
    from_ns = next_ns;
  }
  for (const Group& group : groups) {
    if (operations[group.begin].gpu_start_ns == 0) ++join.without_kernel;
  }
}

}  // namespace

NcclJoin join_nccl_kernels(std::vector<NcclOperation>& operations, std::vector<Kernel>& kernels,
                           std::span<const Stretch> unrecorded) {
  std::stable_sort(operations.begin(), operations.end(), earlier);
  sort_by_launch(kernels);
  const std::vector<Group> groups = groups_of(operations);
  NcclJoin join;
  join.groups = groups.size();
  join.exact = !kernels.empty();
  if (unrecorded.empty()) {
    join_all(operations, groups, kernels, join);
  } else {
    join_in_parts(operations, groups, kernels, unrecorded, join);
  }
  return join;
}

}  // namespace tidemark
