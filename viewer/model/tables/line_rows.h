// The live blocks by line of code: one row for each line, and below an open one the call stacks
// that lead to it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/tables/tables.h"

namespace tidemark::view {

struct LineRow {
  // Of all stacks of the line; its stack is the one with the largest block.
  StackRow sum;
  std::string line;
  // What is shown: the line, and the function that allocated if all its blocks are of one; of a
  // stack below its line, in what it differs from the others.
  std::string text;
  uint32_t stacks = 1;  // of the line; 0: this is one of them
};

// The line that a row belongs to.
std::string_view line_of(const FrameText& text, const StackRow& row);

// The stacks of one line as one row. The largest line first.
std::vector<StackRow> sums_by_line(const FrameText& text, const std::vector<StackRow>& stacks);

// Lines with a stack that contains `filter`, of which only those stacks are counted. Below the
// lines in `opened` are their stacks, sorted in the same way.
std::vector<LineRow> line_rows(const TableSource& source, const std::string& filter, SortBy sort,
                               const std::set<std::string>& opened);

// What tells each of these stacks from the others: from the outermost frame on, the first one after
// each fork of their paths. Empty for a stack that ends where others go on.
std::vector<std::string> differences(const FrameText& text, const std::vector<uint32_t>& stacks);

}  // namespace tidemark::view
