// Reads any bytes as a ring: this must terminate and stay in bounds.
//
// Checksum, version and fingerprint are corrected first, which a fuzzer would not guess; everything
// else is the input.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "collector/recover/ring_reader.h"

namespace {

using namespace tidemark;

void put_right(std::vector<uint8_t>& bytes) {
  ring::RingHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.magic = ring::kMagic;
  header.version = ring::kVersion;
  header.layout = ring::kLayout;
  header.state %= 2;
  header.active_slot %= 2;
  header.chunk_count = 1 + header.chunk_count % 4;
  header.chunk_bytes = ring::kMinChunkBytes;
  header.chunks_offset = ring::chunks_offset(header.chunk_count);
  header.total_bytes = header.chunks_offset + uint64_t{header.chunk_count} * header.chunk_bytes;
  bytes.resize(header.total_bytes);
  const auto* const released = reinterpret_cast<const uint64_t*>(
      bytes.data() + ring::released_offset(header.chunk_count, header.active_slot));
  ring::Checkpoint& slot = header.slots[header.active_slot];
  slot.crc = ring::checkpoint_crc(slot, released, header.chunk_count);
  std::memcpy(bytes.data(), &header, sizeof header);
}

// Spreads a small input over every part: header, controls and tables, then the chunks.
std::vector<uint8_t> spread(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(sizeof(ring::RingHeader));
  const size_t head = std::min<size_t>(size, 64);
  std::copy(data, data + head, bytes.begin() + offsetof(ring::RingHeader, state));
  bytes.resize(ring::chunks_offset(4) + 4 * size_t{ring::kMinChunkBytes});
  const size_t table = std::min<size_t>(size - head, 320);
  std::copy(data + head, data + head + table, bytes.begin() + ring::controls_offset());
  const size_t rest = std::min<size_t>(size - head - table, ring::kMinChunkBytes);
  std::copy(data + head + table, data + head + table + rest,
            bytes.begin() + static_cast<std::ptrdiff_t>(ring::chunks_offset(4)));
  return bytes;
}

void read_ring(int fd, const std::vector<uint8_t>& bytes) {
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    __builtin_trap();
  }
  Result<RingReader> reader = RingReader::open(fd, "ring");
  if (!reader) return;
  uint64_t sum = 0;
  reader->for_each([&](const auto& row) { sum += sizeof row; },
                   [&](uint32_t id, std::string_view text) {
                     sum += id;
                     for (const char c : text) sum += static_cast<uint8_t>(c);
                   });
  if (sum == 1 || reader->pending_bytes() > bytes.size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("ring", MFD_CLOEXEC);
  read_ring(fd, std::vector<uint8_t>(data, data + size));
  std::vector<uint8_t> likely = spread(data, size);
  put_right(likely);
  read_ring(fd, likely);
  return 0;
}
