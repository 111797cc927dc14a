#include "viewer/model/tables/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/insight/module_shares.h"
#include "analysis/wording.h"

namespace tidemark::view {

namespace {

std::string_view kind_of(const TableSource& source, uint32_t allocation) {
  if (source.state.is_pending(source.memory, allocation)) return kPendingText;
  return category_name(source.memory.allocations.category(allocation));
}

bool matches(const TableSource& source, uint32_t allocation, const std::string& filter) {
  const Allocation a = source.memory.allocations[allocation];
  if (filter.empty() || source.text.matches(a.stack, filter)) return true;
  if (kind_of(source, allocation).find(filter) != std::string_view::npos) return true;
  if (a.stack == 0 && source.text.headline(0, a.seeded).find(filter) != std::string_view::npos) {
    return true;
  }
  return fmt::format("{:#x}", a.address).find(filter) != std::string::npos;
}

}  // namespace

std::optional<AllSteps> all_steps(const AllocationHistory& memory, const Steps& steps) {
  if (steps.count() < 2) return std::nullopt;
  // Steps before the first use of the device end where they begin.
  const auto first_end = std::find_if(steps.boundaries.begin() + 1, steps.boundaries.end(),
                                      [](uint32_t e) { return e != 0; });
  // What is freed in a step that ends with the history may have been freed after the last step.
  const uint32_t count = steps.count();
  const bool ended =
      count < steps.boundaries.size() && steps.boundaries[count] < memory.event_count();
  const uint32_t until = steps.boundaries[ended ? count : count - 1];
  if (first_end == steps.boundaries.end() || *first_end > until) return std::nullopt;
  return AllSteps{*first_end, until};
}

std::vector<uint32_t> blocks_through(const AllocationHistory& memory, const AllSteps& steps) {
  std::vector<uint32_t> blocks = state_after(memory, steps.first_end - 1).live;
  std::erase_if(blocks, [&](uint32_t b) { return memory.allocations.release(b) < steps.until; });
  return blocks;
}

std::vector<uint32_t> allocation_rows(const TableSource& source, const std::string& filter,
                                      SortBy sort) {
  return allocation_rows(source, source.state.live, filter, sort);
}

std::vector<uint32_t> allocation_rows(const TableSource& source,
                                      const std::vector<uint32_t>& blocks,
                                      const std::string& filter, SortBy sort) {
  const auto& all = source.memory.allocations;
  const std::string wanted = folded(filter);
  std::vector<uint32_t> rows;
  std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(rows),
               [&](uint32_t i) { return matches(source, i, wanted); });
  const bool down = sort.descending;
  switch (static_cast<AllocationColumn>(sort.column)) {
    case AllocationColumn::kSize:
      sort_rows(rows, down, [&](uint32_t i) { return all[i].block_bytes; });
      break;
    case AllocationColumn::kRequested:
      sort_rows(rows, down, [&](uint32_t i) { return all[i].requested_bytes; });
      break;
    case AllocationColumn::kAge:  // the oldest was born first
      sort_rows(rows, !down, [&](uint32_t i) { return all[i].birth; });
      break;
    case AllocationColumn::kCategory:
      sort_rows(rows, down, [&](uint32_t i) { return kind_of(source, i); });
      break;
    case AllocationColumn::kWhere:
      sort_rows(rows, down,
                [&](uint32_t i) { return source.text.headline(all[i].stack, all[i].seeded); });
      break;
    case AllocationColumn::kAddress:
      sort_rows(rows, down, [&](uint32_t i) { return all[i].address; });
      break;
  }
  return rows;
}

std::vector<StackRow> stack_rows(const TableSource& source, const std::string& filter) {
  const std::string wanted = folded(filter);
  LiveSums sums = sums_of_live(source.memory, source.text.names(), source.state);
  std::erase_if(sums.stacks, [&](const StackRow& row) {
    if (source.text.matches(row.stack, wanted)) return false;
    const std::string_view head = source.text.headline(row.stack, row.before_recording);
    return head.find(wanted) == std::string_view::npos;
  });
  return std::move(sums.stacks);
}

std::vector<ModuleRow> module_rows(const ProcessModel& process, const AllocationHistory& memory,
                                   const MemoryState& state, const std::string& filter) {
  std::vector<ModuleRow> rows = layers_of(shares_by_module(process, memory, state, {}), process);
  const std::string wanted = folded(filter);
  if (wanted.empty()) return rows;
  std::vector<ModuleRow> left;
  for (size_t i = 0; i < rows.size(); ++i) {
    // With those around them.
    const bool found = std::any_of(rows.begin() + static_cast<std::ptrdiff_t>(i),
                                   rows.begin() + static_cast<std::ptrdiff_t>(rows[i].end),
                                   [&](const ModuleRow& row) {
                                     return folded(row.path).find(wanted) != std::string::npos;
                                   });
    if (found) left.push_back(rows[i]);
  }
  return left;
}

std::vector<CategoryRow> category_rows(const AllocationHistory& memory,
                                       const std::vector<uint32_t>& blocks) {
  std::map<Category, CategoryRow> sums;
  for (const uint32_t block : blocks) {
    const Category category = memory.allocations.category(block);
    CategoryRow& row = sums[category];
    row.category = category;
    row.bytes += memory.allocations.block_bytes(block);
    ++row.count;
  }
  std::vector<CategoryRow> rows;
  for (const auto& [category, row] : sums) rows.push_back(row);
  sort_categories(rows, {static_cast<int>(CategoryColumn::kSize), true});
  return rows;
}

void sort_categories(std::vector<CategoryRow>& rows, SortBy sort) {
  switch (static_cast<CategoryColumn>(sort.column)) {
    case CategoryColumn::kSize:
    case CategoryColumn::kShare:
      sort_rows(rows, sort.descending, [](const CategoryRow& r) { return r.bytes; });
      break;
    case CategoryColumn::kCount:
      sort_rows(rows, sort.descending, [](const CategoryRow& r) { return r.count; });
      break;
    case CategoryColumn::kName:
      sort_rows(rows, sort.descending,
                [](const CategoryRow& r) { return category_name(r.category); });
      break;
  }
}

void sort_owners(std::vector<OwnerRow>& rows, SortBy sort) {
  switch (static_cast<OwnerColumn>(sort.column)) {
    case OwnerColumn::kSize:
    case OwnerColumn::kShare:
      sort_rows(rows, sort.descending, [](const OwnerRow& r) { return r.bytes; });
      break;
    case OwnerColumn::kPeak:
      sort_rows(rows, sort.descending, [](const OwnerRow& r) { return r.peak_bytes; });
      break;
    case OwnerColumn::kName:
      sort_rows(rows, sort.descending, [](const OwnerRow& r) { return r.owner; });
      break;
  }
}

std::vector<uint32_t> segment_rows(const TableSource& source, SortBy sort) {
  const auto& all = source.state.segments;
  const MapLayout& layout = source.layout;
  std::vector<uint32_t> rows(all.size());
  std::iota(rows.begin(), rows.end(), 0U);
  const auto used = [&](uint32_t s) { return std::min(layout.used_bytes(s), all[s].size_bytes); };
  const auto by = [&](const auto& key) { sort_rows(rows, sort.descending, key); };
  switch (static_cast<SegmentColumn>(sort.column)) {
    case SegmentColumn::kSize:
      by([&](uint32_t s) { return all[s].size_bytes; });
      break;
    case SegmentColumn::kUsed:
      by(used);
      break;
    case SegmentColumn::kFree:
      by([&](uint32_t s) { return all[s].size_bytes - used(s); });
      break;
    case SegmentColumn::kBlocks:
      by([&](uint32_t s) { return layout.block_count(s); });
      break;
    case SegmentColumn::kHoles:
      by([&](uint32_t s) { return layout.hole_count(s); });
      break;
    case SegmentColumn::kLargestHole:
      by([&](uint32_t s) { return layout.largest_hole(s); });
      break;
    case SegmentColumn::kStream:
      by([&](uint32_t s) { return all[s].stream; });
      break;
    case SegmentColumn::kAddress:
      by([&](uint32_t s) { return all[s].address; });
      break;
  }
  return rows;
}

}  // namespace tidemark::view
