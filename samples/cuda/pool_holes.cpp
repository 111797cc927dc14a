// Fragments a hand-written pool: segments of 64 MiB from the driver, split first fit. Each segment
// ends up with one block of 1 MiB that stays between 30 MiB and 33 MiB of free space, so requests
// for 48 MiB make the pool grow although the holes together are far larger than the requests.
//
// tidemark should find: the driver allocated the segments this program prints, all of them for
// Pool::grow(), and freed none; nearly all of it is unused, which only the program knows: compare
// with "live_bytes" and "largest_hole_bytes" below.
//
// Usage: pool_holes [ROUNDS]
#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "samples/cuda/driver.h"

namespace tidemark::samples {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSegmentBytes = 64 * kMiB;

class Pool {
 public:
  explicit Pool(const Driver& cu) : cu_(cu) {}

  CUdeviceptr take(size_t bytes) {
    auto hole = std::find_if(holes_.begin(), holes_.end(),
                             [&](const auto& h) { return h.second >= bytes; });
    if (hole == holes_.end()) hole = grow();
    const auto [address, room] = *hole;
    holes_.erase(hole);
    if (room > bytes) holes_.emplace(address + bytes, room - bytes);
    live_.emplace(address, bytes);
    return address;
  }

  void give(CUdeviceptr address) {
    const auto block = live_.find(address);
    size_t bytes = block->second;
    live_.erase(block);
    auto next = holes_.lower_bound(address);
    if (next != holes_.end() && address + bytes == next->first &&
        !segments_.contains(next->first)) {
      bytes += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == address && !segments_.contains(address)) {
        before->second += bytes;
        return;
      }
    }
    holes_.emplace(address, bytes);
  }

  void print(int rounds) const {
    size_t live = 0;
    for (const auto& block : live_) live += block.second;
    size_t largest = 0;
    for (const auto& hole : holes_) largest = std::max(largest, hole.second);
    std::printf(
        "{\"sample\":\"pool_holes\",\"rounds\":%d,\"segments\":%zu,\"reserved_bytes\":%zu,"
        "\"live_bytes\":%zu,\"holes\":%zu,\"largest_hole_bytes\":%zu}\n",
        rounds, segments_.size(), segments_.size() * kSegmentBytes, live, holes_.size(), largest);
  }

 private:
  // Holes never merge across segments: the driver allocated them separately.
  [[gnu::noinline]] std::map<CUdeviceptr, size_t>::iterator grow() {
    CUdeviceptr segment = 0;
    cu_.check(cu_.cuMemAlloc_v2(&segment, kSegmentBytes), "cuMemAlloc");
    segments_.emplace(segment, kSegmentBytes);
    return holes_.emplace(segment, kSegmentBytes).first;
  }

  const Driver& cu_;
  std::map<CUdeviceptr, size_t> segments_;
  std::map<CUdeviceptr, size_t> holes_;
  std::map<CUdeviceptr, size_t> live_;
};

// Fills one segment per round with a large block, a small one that stays, and another large one;
// then frees the large ones and requests half as many blocks that are larger than any hole.
void run(Pool& pool, int rounds) {
  std::vector<CUdeviceptr> large;
  for (int i = 0; i < rounds; ++i) {
    large.push_back(pool.take(30 * kMiB));
    pool.take(kMiB);
    large.push_back(pool.take(33 * kMiB));
  }
  for (CUdeviceptr block : large) pool.give(block);
  for (int i = 0; i < rounds / 2; ++i) pool.take(48 * kMiB);
}

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  using namespace tidemark::samples;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  cu.use_device(0);
  Pool pool(cu);
  run(pool, rounds);
  pool.print(rounds);
  return 0;
}
