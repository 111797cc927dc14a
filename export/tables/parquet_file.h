// Writes one Parquet file: optional columns of 64-bit integers and of UTF-8 text, zstd, and
// statistics by which readers skip row groups.
//
// The format: github.com/apache/parquet-format. Of its many encodings this uses
// DELTA_BINARY_PACKED for integers, RLE_DICTIONARY for text that repeats and PLAIN for other text.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "export/tables/table_rows.h"
#include "export/tables/thrift_compact.h"
#include "proto/base/result.h"

namespace tidemark {

// The values of a column in the row group that is being filled.
class ParquetColumn {
 public:
  explicit ParquetColumn(const TableColumn& column) : name_(column.name), type_(column.type) {}

  void put_null() { present_.push_back(false); }
  void put_integer(int64_t value) {
    present_.push_back(true);
    integers_.push_back(value);
  }
  void put_text(std::string_view value);
  uint64_t bytes() const;  // about as many as it takes in memory
  std::string_view name() const { return name_; }
  CellType type() const { return type_; }

  struct Statistics {
    uint64_t nulls = 0;
    std::string least;  // of integers, or of text that is not long
    std::string most;
  };
  struct Chunk {
    std::string dictionary;  // empty: there is none
    size_t in_dictionary = 0;
    std::string values;  // of the data page
    int encoding = 0;
    Statistics statistics;
  };
  // What to write. Forgets the values.
  Chunk take();

 private:
  std::string presence() const;
  void encode_integers(Chunk& chunk) const;
  void encode_text(Chunk& chunk) const;

  std::string_view name_;
  CellType type_;
  std::vector<bool> present_;
  std::vector<int64_t> integers_;
  std::vector<uint32_t> texts_;  // into `distinct_`
  std::vector<const std::string*> distinct_;
  std::unordered_map<std::string, uint32_t> index_of_;
  uint64_t distinct_bytes_ = 0;
};

class ParquetFile {
 public:
  ParquetFile(const std::string& path, const TableSpec& table);

  ParquetColumn& column(size_t i) { return columns_[i]; }
  void end_row();
  // The last row group and the footer. Nothing else may be called after it.
  Status finish();
  uint64_t bytes() const { return offset_; }

 private:
  struct ChunkPlace {
    uint64_t dictionary_offset = 0;  // 0: none
    uint64_t data_offset = 0;
    uint64_t raw_bytes = 0;
    uint64_t stored_bytes = 0;
    int encoding = 0;
    ParquetColumn::Statistics statistics;
  };
  struct RowGroup {
    uint64_t rows = 0;
    std::vector<ChunkPlace> columns;
  };

  void end_group();
  void put(std::string_view bytes);
  // Returns its size before compression, with its header.
  uint64_t put_page(int type, int16_t field, const ThriftStruct& description, std::string_view raw);
  std::string footer() const;

  std::string path_;
  std::string table_;
  std::ofstream file_;
  std::vector<ParquetColumn> columns_;
  std::vector<RowGroup> groups_;
  uint64_t rows_ = 0;  // of the group that is being filled
  uint64_t offset_ = 0;
};

}  // namespace tidemark
