// The keys of an index while its table is written, and the index in their order.
//
// Tables whose rows come in the order of an index fill it as they go. For all others the keys wait
// here until the table is whole: 8 bytes per column and 8 per row.
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

// A value of an index: a number, a text as its place in the order of all texts of its column, or
// nothing.
struct SqliteKey {
  int64_t value = INT64_MIN;
  bool null = true;
};

class SqliteIndexKeys {
 public:
  static constexpr size_t kMostColumns = 3;

  // `columns`: their places in the table.
  SqliteIndexKeys(SqlitePages& pages, std::vector<size_t> columns, bool in_row_order);

  const std::vector<size_t>& columns() const { return columns_; }
  void integer(size_t place, int64_t value) { now_[place] = {value, false}; }
  void text(size_t place, std::string_view value);
  void null(size_t place) { now_[place] = {}; }
  // False where rows that should come in order do not.
  bool end_row(int64_t id);

  // Returns the root page.
  uint32_t finish();
  // What sqlite_stat1 says of it: rows, and rows per value of the first columns, of the first two …
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
  std::vector<int64_t> waiting_;  // per row: the columns' values, then id and which are nothing
  std::array<std::map<std::string, int64_t, std::less<>>, kMostColumns> texts_;
  std::array<std::vector<std::string_view>, kMostColumns> by_place_;  // texts in their order
};

}  // namespace tidemark
