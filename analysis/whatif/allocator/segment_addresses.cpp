#include "analysis/whatif/allocator/segment_addresses.h"

#include <algorithm>
#include <iterator>

namespace tidemark {

namespace {

constexpr uint64_t kChunkBytes = uint64_t{32} << 20;
constexpr uint64_t kTop = uint64_t{1} << 46;  // used if nothing was recorded

uint64_t round_up(uint64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
}

using Ranges = std::map<uint64_t, uint64_t>;

void join(Ranges& ranges, uint64_t address, uint64_t bytes) {
  auto range = ranges.emplace(address, bytes).first;
  if (const auto next = std::next(range);
      next != ranges.end() && next->first == range->first + range->second) {
    range->second += next->second;
    ranges.erase(next);
  }
  if (range == ranges.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == range->first) {
    previous->second += range->second;
    ranges.erase(range);
  }
}

// Removes [address, address + bytes) from the range that contains it.
void cut(Ranges& ranges, uint64_t address, uint64_t bytes) {
  auto range = std::prev(ranges.upper_bound(address));
  const auto [begin, size] = *range;
  ranges.erase(range);
  if (address > begin) ranges[begin] = address - begin;
  if (begin + size > address + bytes) ranges[address + bytes] = begin + size - address - bytes;
}

}  // namespace

DriverAddresses::DriverAddresses(std::span<const PlacedSegment> recorded) : recorded_(recorded) {
  holes_[0] = recorded.empty() ? kTop : recorded.front().address / kChunkBytes * kChunkBytes;
}

DriverAddresses::Chunks::iterator DriverAddresses::chunk_at(uint64_t address) {
  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin()) return chunks_.end();
  --chunk;
  return address - chunk->first < chunk->second.bytes ? chunk : chunks_.end();
}

bool DriverAddresses::free_for(const PlacedSegment& range) const {
  const uint64_t end = range.address + range.bytes;
  auto chunk = chunks_.upper_bound(range.address);
  if (chunk != chunks_.begin()) --chunk;
  for (; chunk != chunks_.end() && chunk->first < end; ++chunk) {
    const uint64_t from = std::max(range.address, chunk->first);
    const uint64_t to = std::min(end, chunk->first + chunk->second.bytes);
    if (from >= to) continue;
    auto gap = chunk->second.gaps.upper_bound(from);
    if (gap == chunk->second.gaps.begin()) return false;
    --gap;
    if (gap->first + gap->second < to) return false;
  }
  return true;
}

// Marks a recorded range as used, in existing or new chunks.
void DriverAddresses::occupy(PlacedSegment range) {
  while (range.bytes != 0) {
    auto chunk = chunk_at(range.address);
    if (chunk == chunks_.end()) {
      const auto above = chunks_.upper_bound(range.address);
      uint64_t end = round_up(range.address + range.bytes);
      if (above != chunks_.end()) end = std::min(end, above->first);
      chunk = chunks_.emplace(range.address, Chunk{}).first;
      chunk->second.bytes = end - range.address;
      chunk->second.gaps[range.address] = end - range.address;
      // The kernel allocates from the top down: the space above in this hole was not available.
      auto hole = holes_.upper_bound(range.address);
      if (hole != holes_.begin() && (--hole)->first + hole->second > range.address) {
        hole->second = range.address - hole->first;
        if (hole->second == 0) holes_.erase(hole);
      }
    }
    const uint64_t piece =
        std::min(range.bytes, chunk->first + chunk->second.bytes - range.address);
    cut(chunk->second.gaps, range.address, piece);
    chunk->second.used += piece;
    range.address += piece;
    range.bytes -= piece;
  }
}

bool DriverAddresses::follow(uint64_t bytes) {
  if (!following_) return false;
  if (next_recorded_ < recorded_.size() && recorded_[next_recorded_].bytes == bytes &&
      free_for(recorded_[next_recorded_])) {
    occupy(recorded_[next_recorded_++]);
    return true;
  }
  stop_following();
  return false;
}

// Ranges recorded later, above the chunks opened so far, were available: they are gaps between
// other mappings of the process, and become chunks of the driver that are never closed.
void DriverAddresses::stop_following() {
  following_ = false;
  if (chunks_.empty()) return;
  const uint64_t lowest = chunks_.begin()->first;
  for (size_t i = next_recorded_; i < recorded_.size(); ++i) {
    const PlacedSegment& range = recorded_[i];
    if (range.address < lowest || !free_for(range)) continue;
    occupy(range);
    for (PlacedSegment rest = range; rest.bytes != 0;) {
      const auto chunk = chunk_at(rest.address);
      const uint64_t piece =
          std::min(rest.bytes, chunk->first + chunk->second.bytes - rest.address);
      join(chunk->second.gaps, rest.address, piece);  // `used` stays, so the chunk is never closed
      rest.address += piece;
      rest.bytes -= piece;
    }
  }
}

uint64_t DriverAddresses::allocate(uint64_t bytes) {
  if (follow(bytes)) return recorded_[next_recorded_ - 1].address;
  for (auto& [base, chunk] : chunks_) {
    if (chunk.bytes - std::min(chunk.bytes, chunk.used) < bytes && chunk.gaps.empty()) continue;
    const auto gap = std::find_if(chunk.gaps.begin(), chunk.gaps.end(),
                                  [&](const auto& g) { return g.second >= bytes; });
    if (gap == chunk.gaps.end()) continue;
    const uint64_t address = gap->first;
    cut(chunk.gaps, address, bytes);
    chunk.used += bytes;
    return address;
  }
  return open_chunk(bytes);
}

uint64_t DriverAddresses::open_chunk(uint64_t bytes) {
  const uint64_t wanted = round_up(bytes);
  const auto hole = std::find_if(holes_.rbegin(), holes_.rend(),
                                 [&](const auto& h) { return h.second >= wanted; });
  uint64_t address = beyond_;
  if (hole == holes_.rend()) {
    beyond_ += wanted;
  } else {
    address = hole->first + hole->second - wanted;
    cut(holes_, address, wanted);
  }
  Chunk& chunk = chunks_[address];
  chunk.bytes = wanted;
  chunk.used = bytes;
  if (wanted > bytes) chunk.gaps[address + bytes] = wanted - bytes;
  return address;
}

void DriverAddresses::close_chunk(Chunks::iterator chunk) {
  join(holes_, chunk->first, chunk->second.bytes);
  chunks_.erase(chunk);
}

void DriverAddresses::free(uint64_t address, uint64_t bytes) {
  while (bytes != 0) {
    const auto chunk = chunk_at(address);
    if (chunk == chunks_.end()) return;
    const uint64_t piece = std::min(bytes, chunk->first + chunk->second.bytes - address);
    join(chunk->second.gaps, address, piece);
    chunk->second.used -= piece;
    address += piece;
    bytes -= piece;
    if (chunk->second.used == 0) close_chunk(chunk);
  }
}

uint64_t DriverAddresses::reserve(uint64_t bytes) {
  const uint64_t address = next_range_;
  next_range_ += bytes;
  return address;
}

}  // namespace tidemark
