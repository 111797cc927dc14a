#include "analysis/steps/token_rounds.h"

#include <algorithm>
#include <unordered_map>

namespace tidemark {

namespace {

// The blocks of one stack.
struct Line {
  size_t round = SIZE_MAX;  // the last one
  uint64_t bytes = 0;       // of its first block there
  uint64_t longer = 0;
  size_t longer_rounds = 0;
  size_t beginnings = 0;

  void add(uint64_t bytes_now, size_t round_now) {
    if (round == round_now) return;
    const uint64_t more = bytes_now - std::min(bytes_now, bytes);
    const bool goes_on =
        round != SIZE_MAX && round + 1 == round_now && more != 0 && (longer == 0 || more == longer);
    ++(goes_on ? longer_rounds : beginnings);
    if (goes_on) longer = more;
    bytes = bytes_now;
    round = round_now;
  }
};

}  // namespace

bool adds_tokens(const AllocationColumns& allocations, const std::vector<uint32_t>& rounds) {
  constexpr double kMost = 0.7;  // of the rounds
  constexpr size_t kLeastAnswers = 3;
  std::unordered_map<uint32_t, Line> lines;
  size_t round = 0;
  for (uint32_t a = rounds.front(); a < rounds.back(); ++a) {
    while (rounds[round + 1] <= a) ++round;
    lines[allocations.stack(a)].add(allocations.asked_bytes(a), round);
  }
  const double most = kMost * static_cast<double>(rounds.size());
  return std::any_of(lines.begin(), lines.end(), [&](const auto& entry) {
    return static_cast<double>(entry.second.longer_rounds) >= most &&
           entry.second.beginnings >= kLeastAnswers;
  });
}

}  // namespace tidemark
