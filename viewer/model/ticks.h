// Round numbers for axes, and times with as many digits as the zoom needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::view {

struct Tick {
  double at = 0;
  std::string label;
};

// Times in ns since the start, at most about `count` of them: 1, 2 or 5 times a power of ten, then
// seconds and minutes.
std::vector<Tick> time_ticks(double begin, double end, int count);
// Sizes from 0 to `end` bytes, at multiples of a power of two; labels are not rounded.
std::vector<Tick> byte_ticks(double end, int count);

// "+1.234567 s": since the start, in the units of duration_text() and precise to about a thousandth
// of `span_ns`.
std::string instant_text(double ns, double span_ns);
// "12.4 ms", three significant digits.
std::string span_text(double ns);
// "+3.0 MiB", "-512 B", "0 B".
std::string signed_size_text(int64_t bytes);

}  // namespace tidemark::view
