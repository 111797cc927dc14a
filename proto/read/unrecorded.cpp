#include "proto/read/unrecorded.h"

#include <algorithm>

namespace tidemark {

std::vector<Stretch> unrecorded_stretches(std::span<const Mark> marks, int64_t first_ns,
                                          int64_t last_ns) {
  std::vector<Mark> switches;
  for (const Mark& mark : marks) {
    if (mark.kind == MarkKind::kNotRecorded && mark.phase != MarkPhase::kInstant) {
      switches.push_back(mark);
    }
  }
  std::stable_sort(switches.begin(), switches.end(),
                   [](const Mark& a, const Mark& b) { return a.time_ns < b.time_ns; });
  std::vector<Stretch> stretches;
  bool open = !switches.empty() && switches.front().phase == MarkPhase::kEnd;
  int64_t begin_ns = first_ns;
  const auto close = [&](int64_t end_ns) {
    if (open && end_ns > begin_ns) {
      // A long one is marked in parts.
      const bool continues = !stretches.empty() && stretches.back().end_ns == begin_ns;
      if (continues) {
        stretches.back().end_ns = end_ns;
      } else {
        stretches.push_back({begin_ns, end_ns});
      }
    }
    open = false;
  };
  for (const Mark& mark : switches) {
    if (mark.phase == MarkPhase::kEnd) {
      close(mark.time_ns);
    } else if (!open) {
      open = true;
      begin_ns = mark.time_ns;
    }
  }
  close(last_ns);
  return stretches;
}

uint64_t total_ns(std::span<const Stretch> stretches) {
  uint64_t total = 0;
  for (const Stretch& s : stretches) total += static_cast<uint64_t>(s.end_ns - s.begin_ns);
  return total;
}

bool meets(std::span<const Stretch> stretches, int64_t begin_ns, int64_t end_ns) {
  const auto at = std::lower_bound(stretches.begin(), stretches.end(), begin_ns,
                                   [](const Stretch& s, int64_t time) { return s.end_ns < time; });
  return at != stretches.end() && at->begin_ns <= end_ns;
}

}  // namespace tidemark
