// Collects the keys of an index while its table is written, then writes the index in key order.
//
// If the rows of the table come in the order of the index, the index is written at the same time.
// Otherwise the keys are held until the table is complete: 8 bytes per column and 8 per row.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/tables/sqlite_file.h"

namespace tidemark {

// A value of an index: a number, a text as its rank among all texts of its column, or NULL.
struct SqliteKey {
  int64_t value = INT64_MIN;
  bool null = true;
};

class SqliteIndexKeys {
 public:
  static constexpr size_t kMostColumns = 3;

  // `columns`: positions in the table.
  SqliteIndexKeys(SqlitePages& pages, std::vector<size_t> columns, bool in_row_order);

  const std::vector<size_t>& columns() const { return columns_; }
  void integer(size_t place, int64_t value) { now_[place] = {value, false}; }
  void text(size_t place, std::string_view value);
  void null(size_t place) { now_[place] = {}; }
  // False when rows that should come in order do not.
  bool end_row(int64_t id);

  // Returns the root page.
  uint32_t finish();
  // For sqlite_stat1: rows, rows per value of the first column, of the first two columns …
  std::string statistics() const;

 private:
  using Keys = std::array<SqliteKey, kMostColumns>;
  template <size_t N>
  void sort_and_write();
  void write(const Keys& keys, int64_t id);
  bool before(const Keys& a, const Keys& b) const;

  std::vector<size_t> columns_;
  bool in_row_order_;
  SqliteIndex index_;
  SqliteRecord record_;
  Keys now_{};
  Keys last_{};
  uint64_t rows_ = 0;
  std::array<uint64_t, kMostColumns> distinct_{};
  std::vector<int64_t> waiting_;  // per row: the columns' values, then the id and which are NULL
  std::array<std::map<std::string, int64_t, std::less<>>, kMostColumns> texts_;
  std::array<std::vector<std::string_view>, kMostColumns> by_place_;  // sorted texts
};

}  // namespace tidemark
