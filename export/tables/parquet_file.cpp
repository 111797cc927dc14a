#include "export/tables/parquet_file.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

namespace tidemark {

namespace {

constexpr uint64_t kGroupRows = uint64_t{1} << 17;
constexpr uint64_t kGroupBytes = uint64_t{32} << 20;
constexpr size_t kLongestLimit = 64;  // of text in statistics
constexpr int kZstdLevel = 3;
constexpr std::string_view kMagic = "PAR1";

// Numbers of the format.
constexpr int kInt64 = 2;
constexpr int kByteArray = 6;
constexpr int kUtf8 = 0;
constexpr int kOptional = 1;
constexpr int kPlain = 0;
constexpr int kRle = 3;
constexpr int kDeltaBinaryPacked = 5;
constexpr int kRleDictionary = 8;
constexpr int kZstd = 6;
constexpr int kDataPage = 0;
constexpr int kDictionaryPage = 2;

void add_le32(std::string& out, uint32_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}

// A run of the RLE and bit-packing hybrid, of values that fit into one byte.
void add_run(std::string& out, uint64_t count, bool value) {
  ThriftStruct::add_varint(out, count << 1);
  out += value ? '\1' : '\0';
}

// Packs values from the lowest bit up.
class BitPacker {
 public:
  BitPacker(std::string& out, uint32_t width) : out_(out), width_(width) {}

  void put(uint64_t value) {
    for (uint32_t left = width_; left != 0;) {
      const uint32_t taken = std::min(left, 8 - bits_);
      byte_ |= (value & ((1U << taken) - 1)) << bits_;
      value >>= taken;
      left -= taken;
      bits_ += taken;
      if (bits_ == 8) flush();
    }
  }
  void flush() {
    if (bits_ == 0) return;
    out_ += static_cast<char>(byte_);
    byte_ = 0;
    bits_ = 0;
  }

 private:
  std::string& out_;
  uint64_t byte_ = 0;
  uint32_t bits_ = 0;
  uint32_t width_;
};

// Differences of neighbours, less the smallest of a block, packed in as few bits as the largest of
// a miniblock needs.
class DeltaEncoder {
 public:
  static std::string encode(std::span<const int64_t> values) {
    std::string out;
    ThriftStruct::add_varint(out, kBlock);
    ThriftStruct::add_varint(out, kMiniblocks);
    ThriftStruct::add_varint(out, values.size());
    ThriftStruct::add_zigzag(out, values.empty() ? 0 : values[0]);
    for (size_t i = 1; i < values.size(); i += kBlock) {
      add_block(out, values.subspan(i - 1, std::min(kBlock + 1, values.size() - i + 1)));
    }
    return out;
  }

 private:
  static constexpr size_t kBlock = 128;
  static constexpr size_t kMiniblocks = 4;
  static constexpr size_t kMiniblock = kBlock / kMiniblocks;

  // `values`: the one before the block, and those of the block. Differences wrap around.
  static void add_block(std::string& out, std::span<const int64_t> values) {
    std::array<int64_t, kBlock> deltas{};
    const size_t count = values.size() - 1;
    for (size_t i = 0; i < count; ++i) {
      deltas[i] = static_cast<int64_t>(static_cast<uint64_t>(values[i + 1]) -
                                       static_cast<uint64_t>(values[i]));
    }
    const int64_t least = *std::min_element(deltas.begin(), deltas.begin() + count);
    ThriftStruct::add_zigzag(out, least);
    std::array<uint64_t, kBlock> rest{};
    for (size_t i = 0; i < count; ++i) {
      rest[i] = static_cast<uint64_t>(deltas[i]) - static_cast<uint64_t>(least);
    }
    std::array<uint32_t, kMiniblocks> widths{};
    for (size_t i = 0; i < count; ++i) {
      uint32_t& width = widths[i / kMiniblock];
      width = std::max(width, static_cast<uint32_t>(std::bit_width(rest[i])));
    }
    for (const uint32_t width : widths) out += static_cast<char>(width);
    for (size_t m = 0; m * kMiniblock < count; ++m) {
      BitPacker packer(out, widths[m]);
      for (size_t i = 0; i < kMiniblock; ++i) packer.put(rest[m * kMiniblock + i]);
    }
  }
};

std::string bytes_of(int64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void add_text(std::string& out, std::string_view text) {
  add_le32(out, static_cast<uint32_t>(text.size()));
  out += text;
}

}  // namespace

void ParquetColumn::put_text(std::string_view value) {
  present_.push_back(true);
  const auto [it, is_new] =
      index_of_.try_emplace(std::string(value), static_cast<uint32_t>(distinct_.size()));
  if (is_new) {
    distinct_.push_back(&it->first);
    distinct_bytes_ += value.size() + sizeof(std::string);
  }
  texts_.push_back(it->second);
}

uint64_t ParquetColumn::bytes() const {
  return integers_.size() * sizeof(int64_t) + texts_.size() * sizeof(uint32_t) + distinct_bytes_;
}

std::string ParquetColumn::presence() const {
  std::string levels;
  for (auto it = present_.begin(); it != present_.end();) {
    const auto end = std::find(it, present_.end(), !*it);
    add_run(levels, static_cast<uint64_t>(end - it), *it);
    it = end;
  }
  std::string out;
  add_text(out, levels);
  return out;
}

void ParquetColumn::encode_integers(Chunk& chunk) const {
  chunk.encoding = kDeltaBinaryPacked;
  chunk.values += DeltaEncoder::encode(integers_);
  if (integers_.empty()) return;
  const auto [least, most] = std::minmax_element(integers_.begin(), integers_.end());
  chunk.statistics.least = bytes_of(*least);
  chunk.statistics.most = bytes_of(*most);
}

void ParquetColumn::encode_text(Chunk& chunk) const {
  chunk.encoding = kPlain;
  if (distinct_.empty()) return;
  const auto [least, most] = std::minmax_element(
      distinct_.begin(), distinct_.end(), [](const auto* a, const auto* b) { return *a < *b; });
  if ((*least)->size() <= kLongestLimit && (*most)->size() <= kLongestLimit) {
    chunk.statistics.least = **least;
    chunk.statistics.most = **most;
  }
  if (distinct_.size() > texts_.size() / 2) {
    for (const uint32_t text : texts_) add_text(chunk.values, *distinct_[text]);
    return;
  }
  chunk.encoding = kRleDictionary;
  for (const std::string* text : distinct_) add_text(chunk.dictionary, *text);
  chunk.in_dictionary = distinct_.size();
  const auto width = std::max(1U, static_cast<uint32_t>(std::bit_width(distinct_.size() - 1)));
  chunk.values += static_cast<char>(width);
  const size_t groups = (texts_.size() + 7) / 8;
  ThriftStruct::add_varint(chunk.values, groups << 1 | 1);
  BitPacker packer(chunk.values, width);
  for (size_t i = 0; i < 8 * groups; ++i) packer.put(i < texts_.size() ? texts_[i] : 0);
}

ParquetColumn::Chunk ParquetColumn::take() {
  Chunk chunk;
  chunk.statistics.nulls = present_.size() - integers_.size() - texts_.size();
  chunk.values = presence();
  type_ == CellType::kInteger ? encode_integers(chunk) : encode_text(chunk);
  present_.clear();
  integers_.clear();
  texts_.clear();
  distinct_.clear();
  index_of_.clear();
  distinct_bytes_ = 0;
  return chunk;
}

ParquetFile::ParquetFile(const std::string& path, const TableSpec& table)
    : path_(path), table_(table.name), file_(path, std::ios::binary) {
  for (const TableColumn& column : table.columns) columns_.emplace_back(column);
  put(kMagic);
}

void ParquetFile::put(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  offset_ += bytes.size();
}

void ParquetFile::end_row() {
  ++rows_;
  if (rows_ % 1024 != 0) return;
  uint64_t bytes = 0;
  for (const ParquetColumn& column : columns_) bytes += column.bytes();
  if (rows_ >= kGroupRows || bytes >= kGroupBytes) end_group();
}

uint64_t ParquetFile::put_page(int type, int16_t field, const ThriftStruct& description,
                               std::string_view raw) {
  std::string stored(ZSTD_compressBound(raw.size()), '\0');
  stored.resize(ZSTD_compress(stored.data(), stored.size(), raw.data(), raw.size(), kZstdLevel));
  ThriftStruct header;
  header.i32(1, type);
  header.i32(2, static_cast<int64_t>(raw.size()));
  header.i32(3, static_cast<int64_t>(stored.size()));
  header.structure(field, description);
  const std::string bytes = header.bytes();
  put(bytes);
  put(stored);
  return bytes.size() + raw.size();
}

void ParquetFile::end_group() {
  RowGroup group;
  group.rows = rows_;
  for (ParquetColumn& column : columns_) {
    ParquetColumn::Chunk chunk = column.take();
    ChunkPlace place;
    const uint64_t begin = offset_;
    if (chunk.in_dictionary != 0) {
      place.dictionary_offset = offset_;
      ThriftStruct page;
      page.i32(1, static_cast<int64_t>(chunk.in_dictionary)).i32(2, kPlain);
      place.raw_bytes += put_page(kDictionaryPage, 7, page, chunk.dictionary);
    }
    place.data_offset = offset_;
    ThriftStruct page;
    page.i32(1, static_cast<int64_t>(rows_)).i32(2, chunk.encoding).i32(3, kRle).i32(4, kRle);
    place.raw_bytes += put_page(kDataPage, 5, page, chunk.values);
    place.stored_bytes = offset_ - begin;
    place.encoding = chunk.encoding;
    place.statistics = std::move(chunk.statistics);
    group.columns.push_back(std::move(place));
  }
  groups_.push_back(std::move(group));
  rows_ = 0;
}

std::string ParquetFile::footer() const {
  std::string schema;
  ThriftStruct root;
  root.binary(4, table_).i32(5, static_cast<int64_t>(columns_.size()));
  schema += root.bytes();
  std::string orders;
  for (const ParquetColumn& column : columns_) {
    const bool text = column.type() == CellType::kText;
    ThriftStruct element;
    element.i32(1, text ? kByteArray : kInt64).i32(3, kOptional).binary(4, column.name());
    if (text) element.i32(6, kUtf8);
    schema += element.bytes();
    orders += ThriftStruct().structure(1, {}).bytes();  // as the type is ordered
  }
  std::string groups;
  uint64_t rows = 0;
  for (const RowGroup& group : groups_) {
    std::string chunks;
    uint64_t bytes = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const ChunkPlace& place = group.columns[i];
      const bool text = columns_[i].type() == CellType::kText;
      std::string encodings;
      for (const int encoding : {place.encoding, kRle, kPlain}) {
        ThriftStruct::add_zigzag(encodings, encoding);
      }
      std::string path;
      ThriftStruct::add_binary(path, columns_[i].name());
      ThriftStruct statistics;
      statistics.i64(3, static_cast<int64_t>(place.statistics.nulls));
      if (!place.statistics.most.empty()) {
        statistics.binary(5, place.statistics.most).binary(6, place.statistics.least);
      }
      ThriftStruct data;
      data.i32(1, text ? kByteArray : kInt64);
      data.list_of_i32(2, 3, encodings);
      data.list_of_binary(3, 1, path);
      data.i32(4, kZstd);
      data.i64(5, static_cast<int64_t>(group.rows));
      data.i64(6, static_cast<int64_t>(place.raw_bytes));
      data.i64(7, static_cast<int64_t>(place.stored_bytes));
      data.i64(9, static_cast<int64_t>(place.data_offset));
      if (place.dictionary_offset != 0) {
        data.i64(11, static_cast<int64_t>(place.dictionary_offset));
      }
      data.structure(12, statistics);
      const uint64_t begin =
          place.dictionary_offset != 0 ? place.dictionary_offset : place.data_offset;
      chunks += ThriftStruct().i64(2, static_cast<int64_t>(begin)).structure(3, data).bytes();
      bytes += place.raw_bytes;
    }
    ThriftStruct one;
    one.list_of_structs(1, columns_.size(), chunks);
    one.i64(2, static_cast<int64_t>(bytes)).i64(3, static_cast<int64_t>(group.rows));
    groups += one.bytes();
    rows += group.rows;
  }
  ThriftStruct file;
  file.i32(1, 1);
  file.list_of_structs(2, columns_.size() + 1, schema);
  file.i64(3, static_cast<int64_t>(rows));
  file.list_of_structs(4, groups_.size(), groups);
  file.binary(6, "tidemark");
  file.list_of_structs(7, columns_.size(), orders);
  return file.bytes();
}

Status ParquetFile::finish() {
  if (rows_ != 0) end_group();
  const std::string end = footer();
  put(end);
  std::string length;
  add_le32(length, static_cast<uint32_t>(end.size()));
  put(length);
  put(kMagic);
  errno = 0;
  file_.close();
  if (file_.good()) return {};
  return Error{fmt::format("{}: {}", path_, std::strerror(errno != 0 ? errno : EIO))};
}

}  // namespace tidemark
