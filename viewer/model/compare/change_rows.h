// What differs between two instants of any two devices: of one rank at two times, of two ranks, or
// of two traces. Lines of code are matched by function and file, then by the nearest line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viewer/model/trace/selection.h"

namespace tidemark::view {

struct ChangeRow {
  std::string name;
  uint64_t before = 0;
  uint64_t after = 0;
  bool heading = false;

  int64_t change() const { return static_cast<int64_t>(after) - static_cast<int64_t>(before); }
};

// First the totals, categories and lines that hold memory at the two instants, the greatest change
// first. Then the differences between the reports of two devices, each at its own peak.
std::vector<ChangeRow> change_rows(const Model& model, const Lane& lane, const Moment& now,
                                   const Compared& before);

}  // namespace tidemark::view
