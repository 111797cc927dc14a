// Builds the ring of an imaginary process, valid or damaged.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "proto/ring_layout.h"

namespace tidemark::test {

class RingBuilder {
 public:
  explicit RingBuilder(uint32_t chunk_count = 4, uint32_t chunk_bytes = ring::kMinChunkBytes)
      : bytes_(ring::chunks_offset(chunk_count) + uint64_t{chunk_count} * chunk_bytes) {
    ring::RingHeader& h = header();
    h.magic = ring::kMagic;
    h.version = ring::kVersion;
    h.state = static_cast<uint32_t>(ring::RingState::kLive);
    h.layout = ring::kLayout;
    h.total_bytes = bytes_.size();
    h.chunks_offset = ring::chunks_offset(chunk_count);
    h.chunk_bytes = chunk_bytes;
    h.chunk_count = chunk_count;
    h.slots[0].file_bytes = 16;
  }

  ring::RingHeader& header() { return *reinterpret_cast<ring::RingHeader*>(bytes_.data()); }
  ring::Checkpoint& checkpoint() { return header().slots[header().active_slot]; }
  ring::ChunkControl& control(uint32_t chunk) {
    return reinterpret_cast<ring::ChunkControl*>(bytes_.data() + ring::controls_offset())[chunk];
  }
  uint64_t& released(uint32_t chunk) {
    return reinterpret_cast<uint64_t*>(
        bytes_.data() + ring::released_offset(header().chunk_count, header().active_slot))[chunk];
  }
  uint8_t* chunk(uint32_t chunk) {
    return bytes_.data() + header().chunks_offset + uint64_t{chunk} * header().chunk_bytes;
  }

  // A thread claims a chunk.
  void open(uint32_t chunk, uint64_t sequence) {
    control(chunk).sequence = sequence;
    control(chunk).commit = ring::commit_word(ring::generation_of(control(chunk).commit) + 1, 0);
  }
  template <typename Row>
  void put(uint32_t chunk, const Row& row) {
    put_record(chunk, Table<Row>::kind, &row, sizeof row);
  }
  void put_string(uint32_t chunk, uint32_t id, std::string_view text) {
    std::vector<char> content(sizeof(ring::StringHead) + text.size());
    const ring::StringHead head{id, static_cast<uint32_t>(text.size())};
    std::memcpy(content.data(), &head, sizeof head);
    std::copy(text.begin(), text.end(), content.begin() + sizeof head);
    put_record(chunk, BlockKind::kStrings, content.data(), content.size());
    header().strings_used = std::max(header().strings_used, id);
  }
  // Everything put so far is in the first `file_bytes` bytes of the trace.
  void set_checkpoint(uint64_t file_bytes) {
    checkpoint().file_bytes = file_bytes;
    for (uint32_t i = 0; i < header().chunk_count; ++i) {
      released(i) = control(i).commit & ~ring::kSealed;
    }
  }

  void write(const std::string& path) {
    checkpoint().crc = ring::checkpoint_crc(checkpoint(), &released(0), header().chunk_count);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()),
               static_cast<std::streamsize>(bytes_.size()));
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  void put_record(uint32_t number, BlockKind kind, const void* content, size_t size) {
    const ring::RecordHeader head{static_cast<uint16_t>(kind), 0, ring::record_bytes(size)};
    uint8_t* const at = chunk(number) + ring::bytes_of(control(number).commit);
    std::memcpy(at, &head, sizeof head);
    std::memcpy(at + sizeof head, content, size);
    control(number).commit += head.bytes;
  }

  std::vector<uint8_t> bytes_;
};

}  // namespace tidemark::test
