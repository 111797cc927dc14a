// Decodes the payloads of blocks into rows, and counts damage.
//
// One decoder per thread; what it returns is valid until its next call. A damaged block yields
// nothing and is counted in damage().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "proto/clock.h"
#include "proto/column_codec.h"
#include "proto/read/trace_reader.h"

struct ZSTD_DCtx_s;

namespace tidemark {

class BlockDecoder {
 public:
  explicit BlockDecoder(const TraceReader& reader);
  ~BlockDecoder();
  BlockDecoder(const BlockDecoder&) = delete;
  BlockDecoder& operator=(const BlockDecoder&) = delete;

  // If members are given, only they are decoded, and all others are 0.
  template <typename Row, auto... Members>
  std::span<const Row> rows(const BlockRef& ref) {
    const auto message = load(ref, Table<Row>::kind);
    if (!message.data()) return {};
    auto& out = std::get<std::vector<Row>>(buffers_);
    out.resize(ref.rows);
    if (!decode_rows<Row, Members...>(message, out)) return damaged<Row>(ref);
    if (const Alignment* clock = reader_.alignment(ref.process); clock != nullptr) {
      align_rows<Row>(*clock, out);
    }
    return out;
  }

  // Calls `use` with each id and text of a strings block.
  void strings(const BlockRef& ref, const std::function<void(uint32_t, std::string_view)>& use);

  // The payload as stored in the file, still compressed if it is there; empty if damaged.
  std::span<const uint8_t> payload(const BlockRef& ref, FrameHeader& header);

  const Damage& damage() const { return damage_; }

 private:
  template <typename List>
  struct BuffersOf;
  template <typename... Rows>
  struct BuffersOf<RowList<Rows...>> {
    using type = std::tuple<std::vector<Rows>..., std::vector<IndexEntry>>;
  };

  // The message of a block; data() is null if the block is damaged (and counted).
  std::span<const uint8_t> load(const BlockRef& ref, BlockKind kind);
  void count_damage(const BlockRef& ref);
  template <typename Row>
  std::span<const Row> damaged(const BlockRef& ref) {
    count_damage(ref);
    return {};
  }

  const TraceReader& reader_;
  ZSTD_DCtx_s* zstd_;
  std::vector<uint8_t> stored_;
  std::vector<uint8_t> raw_;
  BuffersOf<RecordedRows>::type buffers_;
  Damage damage_;
};

// Calls `use` with the rows of every block of this kind, block by block. `process` 0 means
// all.
template <typename Row, typename Use>
void for_each_block(const TraceReader& reader, BlockDecoder& decoder, uint32_t process, Use&& use) {
  for (const BlockRef& ref : process == 0 ? reader.blocks() : reader.blocks_of(process)) {
    if (ref.kind != Table<Row>::kind) continue;
    use(decoder.rows<Row>(ref), ref);
  }
}

}  // namespace tidemark
