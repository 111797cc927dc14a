// Rows of one table in time order, read block by block.
//
// Recorders close blocks as buffers fill, so blocks overlap a little in time. Blocks are read in
// the order of their first row. A row is held only until no later block can contain an earlier one,
// so memory use is bounded by the overlap, not by the file.
#pragma once

#include <algorithm>
#include <vector>

#include "proto/read/block_decoder.h"

namespace tidemark {

// Calls use(const Row&) for each row of the process; `before` also orders rows of equal time.
template <typename Row, typename Before, typename Use>
void for_each_sorted(const TraceReader& reader, uint32_t process, Before&& before, Use&& use) {
  std::vector<BlockRef> refs;
  for (const BlockRef& ref : reader.blocks_of(process)) {
    if (ref.kind == Table<Row>::kind) refs.push_back(ref);
  }
  std::stable_sort(refs.begin(), refs.end(),
                   [](const BlockRef& a, const BlockRef& b) { return a.first_ns < b.first_ns; });
  BlockDecoder decoder(reader);
  std::vector<Row> waiting;
  for (size_t i = 0; i < refs.size(); ++i) {
    const auto rows = decoder.rows<Row>(refs[i]);
    waiting.insert(waiting.end(), rows.begin(), rows.end());
    std::stable_sort(waiting.begin(), waiting.end(), before);
    auto ready = waiting.end();
    if (i + 1 < refs.size()) {
      ready = std::find_if(waiting.begin(), waiting.end(), [&](const Row& row) {
        return Table<Row>::time(row) >= refs[i + 1].first_ns;
      });
    }
    std::for_each(waiting.begin(), ready, use);
    waiting.erase(waiting.begin(), ready);
  }
}

}  // namespace tidemark
