// The rows of the tables at one instant: made, filtered and sorted independently of drawing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/insight/module_tree.h"
#include "analysis/load/trace_model.h"
#include "analysis/steps/steps.h"
#include "viewer/model/frame_text.h"
#include "viewer/model/map/live_sums.h"
#include "viewer/model/map/map_layout.h"

namespace tidemark::view {

struct SortBy {
  int column = 0;
  bool descending = true;
};

// Sorts by a key; equal keys keep their order.
template <typename Rows, typename KeyOf>
void sort_rows(Rows& rows, bool descending, const KeyOf& key) {
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    return descending ? key(b) < key(a) : key(a) < key(b);
  });
}

// Columns of the tables, in the order they are shown.
enum class AllocationColumn { kSize, kRequested, kAge, kCategory, kWhere, kAddress };
enum class StackColumn { kSize, kShare, kCount, kLargest, kWhere };
enum class CategoryColumn { kSize, kShare, kCount, kName };
enum class SegmentColumn { kSize, kUsed, kFree, kBlocks, kHoles, kLargestHole, kStream, kAddress };

enum class OwnerColumn { kSize, kShare, kPeak, kName };

// A line of the ledger.
struct OwnerRow {
  std::string owner;
  int64_t bytes = 0;
  uint64_t peak_bytes = 0;  // 0: not known
};

// Everything a table needs to know of the instant.
struct TableSource {
  const AllocationHistory& memory;
  const MemoryState& state;
  const MapLayout& layout;
  const FrameText& text;
};

// Blocks that are in use at the end of the first step and are not freed before `until` live through
// all steps. The first step counts from its end, because it often includes the setup.
struct AllSteps {
  uint32_t first_end = 0;  // events
  uint32_t until = 0;

  friend bool operator==(const AllSteps&, const AllSteps&) = default;
};
// None: there are fewer than two steps.
std::optional<AllSteps> all_steps(const AllocationHistory& memory, const Steps& steps);
std::vector<uint32_t> blocks_through(const AllocationHistory& memory, const AllSteps& steps);

// Allocations whose stack, category or address (in hexadecimal) contains `filter`: of state.live,
// or of these blocks.
std::vector<uint32_t> allocation_rows(const TableSource& source, const std::string& filter,
                                      SortBy sort);
std::vector<uint32_t> allocation_rows(const TableSource& source,
                                      const std::vector<uint32_t>& blocks,
                                      const std::string& filter, SortBy sort);
// Those whose stack contains `filter`, most bytes first.
std::vector<StackRow> stack_rows(const TableSource& source, const std::string& filter);
// The tree of nn.Modules: those whose path contains `filter`, and those around them.
std::vector<ModuleRow> module_rows(const ProcessModel& process, const AllocationHistory& memory,
                                   const MemoryState& state, const std::string& filter);
// Of these blocks, most bytes first.
std::vector<CategoryRow> category_rows(const AllocationHistory& memory,
                                       const std::vector<uint32_t>& blocks);
void sort_categories(std::vector<CategoryRow>& rows, SortBy sort);
void sort_owners(std::vector<OwnerRow>& rows, SortBy sort);
// Indices in state.segments.
std::vector<uint32_t> segment_rows(const TableSource& source, SortBy sort);

}  // namespace tidemark::view
