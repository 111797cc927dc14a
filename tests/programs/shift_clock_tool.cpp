// shift_clock IN.tmk OUT.tmk AT_NS OFFSET_NS DRIFT_PPB: writes the same trace as from a host with a
// wrong clock.
#include <cstdio>
#include <cstdlib>

#include "tests/support/shifted_trace.h"

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: shift_clock IN.tmk OUT.tmk AT_NS OFFSET_NS DRIFT_PPB\n", stderr);
    return 2;
  }
  const bool done = tidemark::test::shift_clock(argv[1], argv[2], std::atoll(argv[3]),
                                                std::atoll(argv[4]), std::atoll(argv[5]));
  if (!done) std::fprintf(stderr, "cannot shift %s into %s\n", argv[1], argv[2]);
  return done ? 0 : 1;
}
