#include "viewer/model/tables/activity_tables.h"

#include <algorithm>
#include <unordered_map>

namespace tidemark::view {

namespace {

// Calls use(ref, span row) for everything of one kind that overlaps the time.
template <typename Use>
void for_each_in(const Model& model, uint32_t process, ActivityKind kind, int64_t begin_ns,
                 int64_t end_ns, const Use& use) {
  const std::vector<ActivityRow>& rows = model.activity[process].rows;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    if (rows[r].kind != kind) continue;
    const SpanRow& spans = rows[r].spans;
    for (uint32_t i = spans.first_ending_after(begin_ns);
         i < spans.size() && spans.begin_ns(i) < end_ns; ++i) {
      use(ActivityRef{process, r, i}, spans);
    }
  }
}

}  // namespace

std::vector<KernelRow> kernel_rows(const Model& model, uint32_t process, int64_t begin_ns,
                                   int64_t end_ns, const std::string& filter, SortBy sort) {
  std::unordered_map<uint32_t, KernelRow> sums;
  for_each_in(model, process, ActivityKind::kKernels, begin_ns, end_ns,
              [&](const ActivityRef& ref, const SpanRow& spans) {
                KernelRow& row = sums[spans.item(ref.index)];
                const auto length =
                    static_cast<uint64_t>(spans.end_ns(ref.index) - spans.begin_ns(ref.index));
                if (row.count == 0 || length > row.longest_ns) {
                  row.longest_ns = length;
                  row.longest = ref;
                }
                row.name = spans.item(ref.index);
                row.total_ns += length;
                ++row.count;
              });
  const std::string wanted = folded(filter);
  const Dictionary& names = model.trace.processes[process].names;
  std::vector<KernelRow> rows;
  for (const auto& [name, row] : sums) {
    if (folded(names.string(name)).find(wanted) != std::string::npos) rows.push_back(row);
  }
  // The map has no defined order.
  std::sort(rows.begin(), rows.end(),
            [](const KernelRow& a, const KernelRow& b) { return a.name < b.name; });
  const bool down = sort.descending;
  switch (static_cast<KernelColumn>(sort.column)) {
    case KernelColumn::kTotal:
      sort_rows(rows, down, [](const KernelRow& r) { return r.total_ns; });
      break;
    case KernelColumn::kCount:
      sort_rows(rows, down, [](const KernelRow& r) { return r.count; });
      break;
    case KernelColumn::kMean:
      sort_rows(rows, down, [](const KernelRow& r) { return r.mean_ns(); });
      break;
    case KernelColumn::kLongest:
      sort_rows(rows, down, [](const KernelRow& r) { return r.longest_ns; });
      break;
    case KernelColumn::kName:
      sort_rows(rows, down, [&](const KernelRow& r) { return names.string(r.name); });
      break;
  }
  return rows;
}

std::vector<CollectiveRow> collective_rows(const Model& model, uint32_t process, int64_t begin_ns,
                                           int64_t end_ns, const std::string& filter, SortBy sort) {
  const ProcessModel& p = model.trace.processes[process];
  const std::string wanted = folded(filter);
  const int64_t end = model.trace.end_ns;
  std::vector<CollectiveRow> rows;
  for_each_in(model, process, ActivityKind::kCollectives, begin_ns, end_ns,
              [&](const ActivityRef& ref, const SpanRow& spans) {
                const uint32_t first = spans.item(ref.index);
                // Operations of one kernel are consecutive.
                for (uint32_t i = first; i < p.nccl.size(); ++i) {
                  const NcclOperation& op = p.nccl[i];
                  const bool together = op.group != 0 && op.group == p.nccl[first].group &&
                                        time_of(op, end).begin_ns == spans.begin_ns(ref.index);
                  if (i != first && !together) break;
                  const std::string name = folded(p.names.string(p.nccl[i].function));
                  if (name.find(wanted) != std::string::npos) rows.push_back({ref, i});
                }
              });
  const bool down = sort.descending;
  const auto by = [&](const auto& key) {
    sort_rows(rows, down, [&](const CollectiveRow& r) { return key(p.nccl[r.operation]); });
  };
  using Op = NcclOperation;
  switch (static_cast<CollectiveColumn>(sort.column)) {
    case CollectiveColumn::kBegin:
      by([](const Op& op) { return op.start_ns; });
      break;
    case CollectiveColumn::kWait:
      by([](const Op& op) { return op.gpu_start_ns == 0 ? -1 : op.gpu_start_ns - op.start_ns; });
      break;
    case CollectiveColumn::kLength:
      by([](const Op& op) { return op.gpu_duration_ns; });
      break;
    case CollectiveColumn::kSize:
      by([](const Op& op) { return op.size_bytes; });
      break;
    case CollectiveColumn::kSequence:
      by([](const Op& op) { return op.sequence; });
      break;
    case CollectiveColumn::kFunction:
      by([&](const Op& op) { return p.names.string(op.function); });
      break;
  }
  return rows;
}

}  // namespace tidemark::view
