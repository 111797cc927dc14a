// Writes an SQLite database from front to back (https://sqlite.org/fileformat2.html). This is
// several times as fast as inserting rows, and does not need SQLite.
//
// Rows come ordered by id and index entries ordered by key, so every page is filled once and
// written once: leaves as they fill, then the pages that point to them.
//
//   page 1   header (100 bytes), the schema table
//   page n   leaf, inner or overflow page, in the order in which it was filled
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "export/tables/sqlite_record.h"
#include "proto/base/result.h"

namespace tidemark {

inline constexpr uint32_t kSqlitePageBytes = 32768;
using SqlitePage = std::array<uint8_t, kSqlitePageBytes>;

// Writes pages to the file. The first failure is kept.
class SqlitePages {
 public:
  SqlitePages(int fd, uint64_t max_bytes);

  // Returns the page's number.
  uint32_t append(const SqlitePage& page);
  // The number that the next page will have.
  uint32_t next() const { return following(last_); }
  // The number of the page after that.
  uint32_t after_next() const { return following(next()); }
  // Flushes all pages, page 1 last.
  void finish(const SqlitePage& first);

  uint32_t count() const { return last_; }
  uint64_t bytes() const { return uint64_t{last_} * kSqlitePageBytes; }
  bool good() const { return message_.empty(); }
  const std::string& message() const { return message_; }

 private:
  // SQLite's lock bytes are at 1 GiB: that page stays empty.
  static constexpr uint32_t kLockPage = (uint32_t{1} << 30) / kSqlitePageBytes + 1;

  static uint32_t following(uint32_t page) { return page + 1 == kLockPage ? page + 2 : page + 1; }
  void put(const SqlitePage& page);
  void flush();

  int fd_;
  uint64_t max_bytes_;
  std::vector<uint8_t> buffer_;
  std::string message_;
  uint32_t last_ = 0;
};

// A page of cells while it is filled; the cells grow towards their pointers.
class SqliteCells {
 public:
  // `before`: bytes in front of the page's header (page 1 has the file header there).
  explicit SqliteCells(uint8_t type, uint32_t before = 0) { clear(type, before); }

  void clear(uint8_t type, uint32_t before = 0);
  bool has_room(size_t cell_bytes) const {
    return pointers_ + 2 * (count_ + 1) + cell_bytes <= content_;
  }
  uint8_t* add(size_t cell_bytes);  // returns where the cell goes; check has_room() first
  // Removes the last cell.
  std::vector<uint8_t> take_last();
  uint32_t count() const { return count_; }
  // Fills in the header; `right` is the last child of an inner page.
  const SqlitePage& finished(uint32_t right = 0);
  SqlitePage& page() { return page_; }

 private:
  SqlitePage page_;
  uint32_t before_ = 0;
  uint32_t pointers_ = 0;  // offset of the list of cells
  uint32_t content_ = 0;   // offset of the last cell
  uint32_t count_ = 0;
  uint32_t last_bytes_ = 0;
  uint8_t type_ = 0;
};

// A table: records with strictly increasing ids.
class SqliteTable {
 public:
  explicit SqliteTable(SqlitePages& pages);
  void add(int64_t id, std::span<const uint8_t> record);
  uint32_t finish();  // returns the number of the root page

 private:
  struct Child {
    uint32_t page;
    int64_t last_id;
  };
  void end_leaf();
  void add_level();

  SqlitePages& pages_;
  SqliteCells leaf_;
  std::vector<Child> children_;
  int64_t last_id_ = 0;
};

// An index: sorted records of keys and id.
class SqliteIndex {
 public:
  explicit SqliteIndex(SqlitePages& pages);
  void add(std::span<const uint8_t> record);
  uint32_t finish();

 private:
  using Cell = std::vector<uint8_t>;
  void end_leaf(Cell divider);
  void add_level();
  uint32_t write_inner(size_t first, size_t end);

  SqlitePages& pages_;
  SqliteCells leaf_;
  // Each entry is stored once: an entry between two pages is in the page above them.
  Cell waiting_;  // came when the leaf was full; moves up when another entry follows
  bool has_waiting_ = false;
  std::vector<uint32_t> children_;
  std::vector<Cell> dividers_;  // dividers_[i] is between children_[i] and [i + 1]
};

// Fills page 1.
struct SqliteSchemaRow {
  std::string_view type;  // table, index
  std::string name;
  std::string table;
  uint32_t root = 0;
  std::string sql;
};
Status finish_sqlite_file(SqlitePages& pages, std::span<const SqliteSchemaRow> schema,
                          uint32_t application_id, uint32_t user_version);

}  // namespace tidemark
