#include "analysis/steps/loop_rounds.h"

#include <algorithm>

#include "analysis/steps/median.h"

namespace tidemark {

bool rounds_overlap(const AllocationColumns& allocations, const std::vector<uint32_t>& rounds,
                    const LineOfAllocation& line_of, int64_t line) {
  constexpr uint64_t kLeftOver = 100;  // a share of what the line makes
  uint64_t made = 0;
  uint64_t passed_on = 0;
  uint64_t kept = 0;
  size_t round = 0;
  // What is freed only when the program ends was leaked, and no request that runs on.
  const uint32_t last = allocations.birth(allocations.size() - 1);
  for (uint32_t a = rounds.front(); a < rounds.back(); ++a) {
    while (rounds[round + 1] <= a) ++round;
    if (round + 2 >= rounds.size()) break;
    const uint32_t release = allocations.release(a);
    if (line_of[a] != line || release > last) continue;
    const uint64_t bytes = allocations.block_bytes(a);
    made += bytes;
    if (release > allocations.birth(rounds[round + 1])) passed_on += bytes;
    if (release > allocations.birth(rounds[round + 2])) kept += bytes;
  }
  return kept * 2 > passed_on && kept > made / kLeftOver;
}

namespace {

// How many allocations a round makes at its first line before it goes on to another.
std::vector<uint32_t> lengths_at_first_line(const AllocationColumns& allocations,
                                            const std::vector<uint32_t>& rounds,
                                            const LineOfAllocation& line_of) {
  std::vector<uint32_t> lengths;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const auto end =
        static_cast<uint32_t>(i + 1 < rounds.size() ? rounds[i + 1] : allocations.size());
    uint32_t a = rounds[i];
    const int64_t first_line = line_of[a];
    while (a < end && line_of[a] == first_line) ++a;
    lengths.push_back(a - rounds[i]);
  }
  return lengths;
}

// Whether parts of `length` allocations each are gone when the part after the next begins.
bool parts_give_back(const AllocationColumns& allocations, uint32_t begin, uint32_t end,
                     uint32_t length) {
  for (uint32_t a = begin; a + 2 * length < end; ++a) {
    const uint32_t after_next = begin + ((a - begin) / length + 2) * length;
    if (after_next < end && allocations.release(a) > allocations.birth(after_next)) return false;
  }
  return true;
}

}  // namespace

std::vector<uint32_t> split_rounds(const AllocationColumns& allocations,
                                   const std::vector<uint32_t>& rounds,
                                   const LineOfAllocation& line_of) {
  const std::vector<uint32_t> lengths = lengths_at_first_line(allocations, rounds, line_of);
  const uint32_t usual = median(lengths);
  // The last round may be unfinished.
  if (usual < 2 || std::any_of(lengths.begin(), lengths.end() - 1,
                               [&](uint32_t length) { return length % usual != 0; })) {
    return rounds;
  }
  std::vector<uint32_t> split;
  for (size_t i = 0; i < rounds.size(); ++i) {
    split.push_back(rounds[i]);
    const uint32_t end = rounds[i] + lengths[i];
    if (!parts_give_back(allocations, rounds[i], end, usual)) continue;
    for (uint32_t a = rounds[i] + usual; a < end; a += usual) split.push_back(a);
  }
  return split;
}

}  // namespace tidemark
