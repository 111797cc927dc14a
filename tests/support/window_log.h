// What tests/programs/window_host.cpp does, and how it tells: a file that it maps shared, with the
// allocator's true totals after each event.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::test {

struct WindowLog {
  struct Entry {
    int64_t time_ns;
    uint64_t allocated;
    uint64_t requested;
    uint64_t reserved;
  };
  static constexpr uint64_t kMost = 1 << 23;

  std::atomic<uint64_t> count;  // entries whose row was committed
  std::atomic<uint32_t> go_on;  // 0: the program waits here when it ran out of memory
  Entry entries[kMost];
};

// The line of the program that makes blocks of this size.
constexpr int64_t line_of_block(uint64_t block_bytes) {
  return static_cast<int64_t>(block_bytes / 512 % 97) + 1;
}

}  // namespace tidemark::test
