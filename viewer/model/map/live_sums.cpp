#include "viewer/model/map/live_sums.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tidemark::view {

LiveSums sums_of_live(const AllocationHistory& memory, const Dictionary& names,
                      const MemoryState& state) {
  LiveSums out;
  const AllocationColumns& blocks = memory.allocations;
  // Indexed by stack id: with millions of live blocks a map would cost more than all the rest. The
  // last row is for blocks that are older than the recording.
  std::vector<StackRow> stacks(names.stack_count() + 2);
  std::array<CategoryRow, 256> categories{};
  for (const uint32_t i : state.live) {
    const uint64_t bytes = blocks.block_bytes(i);
    if (state.is_pending(memory, i)) {
      out.pending_bytes += bytes;
      out.pending_requested_bytes += blocks.requested_bytes(i);
      ++out.pending_count;
      continue;
    }
    const uint32_t stack = blocks.stack(i);
    const bool before = stack == 0 && blocks.seeded(i);
    StackRow& row = stacks[before ? stacks.size() - 1 : std::min<size_t>(stack, stacks.size() - 2)];
    row.stack = stack;
    row.before_recording = before;
    row.bytes += bytes;
    row.largest = std::max(row.largest, bytes);
    ++row.count;
    const Category category = blocks.category(i);
    CategoryRow& kind = categories[static_cast<uint8_t>(category)];
    kind.category = category;
    kind.bytes += bytes;
    ++kind.count;
  }
  const auto used = [](const auto& row) { return row.count != 0; };
  std::copy_if(stacks.begin(), stacks.end(), std::back_inserter(out.stacks), used);
  std::copy_if(categories.begin(), categories.end(), std::back_inserter(out.categories), used);
  const auto larger = [](const auto& a, const auto& b) { return a.bytes > b.bytes; };
  std::stable_sort(out.stacks.begin(), out.stacks.end(), larger);
  std::stable_sort(out.categories.begin(), out.categories.end(), larger);
  return out;
}

}  // namespace tidemark::view
