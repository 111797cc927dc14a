// Marks as ranges: each beginning with its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

struct MarkRange {
  Mark mark{};         // the beginning, or the instant
  int64_t end_ns = 0;  // INT64_MAX: not recorded; instants end where they begin
};

// Ordered by beginning, the longer range first when equal. Ends without a beginning are left out
// (their ranges began before the recording).
std::vector<MarkRange> mark_ranges(std::span<const Mark> marks);

// The name, with the number of a step whose name has none.
std::string mark_text(const Mark& mark, std::string_view name);
// "nvtx", "annotation" …, for tracks and tables.
std::string_view mark_kind_name(MarkKind kind);

}  // namespace tidemark
