// Writes an SQLite database front to back (https://sqlite.org/fileformat2.html): several times as
// fast as inserting rows, and without SQLite.
//
// Rows come in the order of their ids and entries of indexes in the order of their keys, so every
// page is filled once and written once: leaves as they fill, then the pages that point to them.
//
//   page 1   header (100 bytes), the table of tables
//   page n   leaf, inner or overflow page, in the order in which they were filled
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

// The pages on their way to the file. The first failure is kept.
class SqlitePages {
 public:
  SqlitePages(int fd, uint64_t max_bytes);

  // Returns the page's number.
  uint32_t append(const SqlitePage& page);
  // The number that the next page will have.
  uint32_t next() const { return following(last_); }
  // And the one after that.
  uint32_t after_next() const { return following(next()); }
  // Writes everything out, page 1 last.
  void finish(const SqlitePage& first);

  uint32_t count() const { return last_; }
  uint64_t bytes() const { return uint64_t{last_} * kSqlitePageBytes; }
  bool good() const { return message_.empty(); }
  const std::string& message() const { return message_; }

 private:
  // The page at 1 GiB is where SQLite's locks lie: it holds nothing.
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

// A page of cells that is being filled; the cells grow towards their pointers.
class SqliteCells {
 public:
  // `before`: bytes of the page in front of its header (page 1 has the file's there).
  explicit SqliteCells(uint8_t type, uint32_t before = 0) { clear(type, before); }

  void clear(uint8_t type, uint32_t before = 0);
  bool has_room(size_t cell_bytes) const {
    return pointers_ + 2 * (count_ + 1) + cell_bytes <= content_;
  }
  uint8_t* add(size_t cell_bytes);  // where the cell goes; there must be room
  // Takes the last cell off again.
  std::vector<uint8_t> take_last();
  uint32_t count() const { return count_; }
  // Fills in the header; `right` is the last child of an inner page.
  const SqlitePage& finished(uint32_t right = 0);
  SqlitePage& page() { return page_; }

 private:
  SqlitePage page_;
  uint32_t before_ = 0;
  uint32_t pointers_ = 0;  // where the list of cells begins
  uint32_t content_ = 0;   // where the last cell begins
  uint32_t count_ = 0;
  uint32_t last_bytes_ = 0;
  uint8_t type_ = 0;
};

// A table: ids that only grow, each with a record.
class SqliteTable {
 public:
  explicit SqliteTable(SqlitePages& pages);
  void add(int64_t id, std::span<const uint8_t> record);
  uint32_t finish();  // the number of its root page

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

// An index: records of keys and id, in their order.
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
  // Each entry is in one place only: those between two pages are kept by the page above.
  Cell waiting_;  // came when the leaf was full; goes up when another entry follows
  bool has_waiting_ = false;
  std::vector<uint32_t> children_;
  std::vector<Cell> dividers_;  // dividers_[i] lies between children_[i] and [i + 1]
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
