#include "proto/read/block_decoder.h"

#include <zstd.h>

#include <string>

namespace tidemark {

BlockDecoder::BlockDecoder(const TraceReader& reader) : reader_(reader), zstd_(ZSTD_createDCtx()) {}

BlockDecoder::~BlockDecoder() {
  ZSTD_freeDCtx(zstd_);
}

void BlockDecoder::count_damage(const BlockRef& ref) {
  ++damage_.blocks;
  damage_.rows += ref.rows;
}

std::span<const uint8_t> BlockDecoder::payload(const BlockRef& ref, FrameHeader& header) {
  if (ref.stored_bytes <= kMaxPayloadBytes) {
    stored_.resize(sizeof header + ref.stored_bytes);
    if (reader_.read_at(ref.offset, stored_.data(), stored_.size())) {
      std::memcpy(&header, stored_.data(), sizeof header);
      const uint8_t* bytes = stored_.data() + sizeof header;
      if (plausible(header) && header.stored_bytes == ref.stored_bytes && header.rows == ref.rows &&
          header.kind == static_cast<uint16_t>(ref.kind) && header.process == ref.process &&
          header.payload_crc == crc32(bytes, header.stored_bytes)) {
        return {bytes, header.stored_bytes};
      }
    }
  }
  count_damage(ref);
  return {};
}

std::span<const uint8_t> BlockDecoder::load(const BlockRef& ref, BlockKind kind) {
  if (ref.kind != kind) {
    count_damage(ref);
    return {};
  }
  FrameHeader header;
  const auto stored = payload(ref, header);
  if (stored.data() == nullptr) return {};
  if ((header.flags & kFrameCompressed) == 0) {
    if (header.raw_bytes == header.stored_bytes) return stored;
  } else {
    raw_.resize(header.raw_bytes);
    if (ZSTD_decompressDCtx(zstd_, raw_.data(), raw_.size(), stored.data(), stored.size()) ==
        header.raw_bytes) {
      return raw_;
    }
  }
  count_damage(ref);
  return {};
}

void BlockDecoder::strings(const BlockRef& ref,
                           const std::function<void(uint32_t, std::string_view)>& use) {
  const auto message = load(ref, BlockKind::kStrings);
  if (message.data() == nullptr) return;
  const uint8_t* const end = message.data() + message.size();

  // One pass to check, one to use: nothing of a damaged block is used.
  wire::Field field;
  wire::Field ids;
  uint64_t texts = 0;
  for (const uint8_t* p = message.data(); p != end;) {
    p = wire::get_field(p, end, field);
    if (p == nullptr) return count_damage(ref);
    if (field.number == 2 && field.type == wire::kBytes) ids = field;
    if (field.number == 3 && field.type == wire::kBytes) ++texts;
  }
  std::vector<uint32_t> id_of;
  uint64_t id = 0;
  for (const uint8_t *p = ids.data, *ids_end = ids.data + ids.size; p != ids_end;) {
    uint64_t v = 0;
    p = wire::get_varint(p, ids_end, v);
    if (p == nullptr) return count_damage(ref);
    id += static_cast<uint64_t>(wire::unzigzag(v));
    if (id > UINT32_MAX) return count_damage(ref);
    id_of.push_back(static_cast<uint32_t>(id));
  }
  if (texts != ref.rows || id_of.size() != ref.rows) return count_damage(ref);

  size_t i = 0;
  for (const uint8_t* p = message.data(); p != end;) {
    p = wire::get_field(p, end, field);
    if (field.number != 3 || field.type != wire::kBytes) continue;
    use(id_of[i++], {reinterpret_cast<const char*>(field.data), field.size});
  }
}

}  // namespace tidemark
