#include "export/tables/sqlite_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "analysis/wording.h"
#include "proto/base/byte_sink.h"

namespace tidemark {

namespace {

enum PageType : uint8_t { kIndexInner = 2, kTableInner = 5, kIndexLeaf = 10, kTableLeaf = 13 };

constexpr uint32_t kUsable = kSqlitePageBytes;
constexpr size_t kFlushBytes = 1 << 20;
constexpr uint32_t kFileHeader = 100;

// How many bytes of a record stay in its page; the rest goes to a chain of overflow pages.
constexpr size_t kMostInTable = kUsable - 35;
constexpr size_t kMostInIndex = (kUsable - 12) * 64 / 255 - 23;
size_t local_bytes(size_t bytes, size_t most) {
  if (bytes <= most) return bytes;
  constexpr size_t kLeast = (kUsable - 12) * 32 / 255 - 23;
  const size_t even = kLeast + (bytes - kLeast) % (kUsable - 4);
  return even <= most ? even : kLeast;
}

// Writes the chain; returns its first page.
uint32_t write_overflow(SqlitePages& pages, std::span<const uint8_t> rest) {
  const uint32_t first = pages.next();
  SqlitePage page;
  while (!rest.empty()) {
    const size_t here = std::min<size_t>(rest.size(), kUsable - 4);
    page.fill(0);
    std::memcpy(page.data() + 4, rest.data(), here);
    rest = rest.subspan(here);
    if (!rest.empty()) {
      put_big_endian(page.data(), pages.after_next(), 4);
    }
    pages.append(page);
  }
  return first;
}

size_t varint_bytes(uint64_t value) {
  uint8_t scratch[9];
  return static_cast<size_t>(put_sqlite_varint(scratch, value) - scratch);
}

// A record in its cell: the local part, and where the rest is.
struct Placed {
  std::span<const uint8_t> local;
  uint32_t overflow = 0;
  size_t bytes() const { return local.size() + (overflow != 0 ? 4 : 0); }
  void put(uint8_t* p) const {
    std::memcpy(p, local.data(), local.size());
    if (overflow != 0) put_big_endian(p + local.size(), overflow, 4);
  }
};
Placed place(SqlitePages& pages, std::span<const uint8_t> record, size_t most) {
  const size_t local = local_bytes(record.size(), most);
  Placed placed{record.first(local), 0};
  if (local < record.size()) placed.overflow = write_overflow(pages, record.subspan(local));
  return placed;
}

}  // namespace

SqlitePages::SqlitePages(int fd, uint64_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {
  buffer_.reserve(kFlushBytes + kSqlitePageBytes);
  append(SqlitePage{});  // page 1, written again at the end
}

uint32_t SqlitePages::append(const SqlitePage& page) {
  if (last_ + 1 == kLockPage) put(SqlitePage{});
  put(page);
  if (bytes() > max_bytes_ && good()) {
    message_ =
        fmt::format("would exceed {}; choose a part with --time or --ranks", size_text(max_bytes_));
  }
  return last_;
}

void SqlitePages::put(const SqlitePage& page) {
  buffer_.insert(buffer_.end(), page.begin(), page.end());
  ++last_;
  if (buffer_.size() >= kFlushBytes) flush();
}

void SqlitePages::flush() {
  FdSink sink(fd_);
  if (good() && !sink.write(buffer_))
    message_ = std::string("cannot write: ") + std::strerror(errno);
  buffer_.clear();
}

void SqlitePages::finish(const SqlitePage& first) {
  flush();
  if (!good()) return;
  FdSink sink(fd_);
  if (::lseek(fd_, 0, SEEK_SET) < 0 || !sink.write(first)) {
    message_ = std::string("cannot write: ") + std::strerror(errno);
  }
}

void SqliteCells::clear(uint8_t type, uint32_t before) {
  page_.fill(0);
  type_ = type;
  before_ = before;
  pointers_ = before + (type == kIndexInner || type == kTableInner ? 12 : 8);
  content_ = kUsable;
  count_ = 0;
}

uint8_t* SqliteCells::add(size_t cell_bytes) {
  content_ -= static_cast<uint32_t>(cell_bytes);
  last_bytes_ = static_cast<uint32_t>(cell_bytes);
  put_big_endian(page_.data() + pointers_ + 2 * count_, content_, 2);
  ++count_;
  return page_.data() + content_;
}

std::vector<uint8_t> SqliteCells::take_last() {
  const uint8_t* cell = page_.data() + content_;
  std::vector<uint8_t> bytes(cell, cell + last_bytes_);
  std::memset(page_.data() + content_, 0, last_bytes_);
  content_ += last_bytes_;
  --count_;
  put_big_endian(page_.data() + pointers_ + 2 * count_, 0, 2);
  return bytes;
}

const SqlitePage& SqliteCells::finished(uint32_t right) {
  uint8_t* p = page_.data() + before_;
  p[0] = type_;
  put_big_endian(p + 3, count_, 2);
  put_big_endian(p + 5, content_, 2);
  if (type_ == kIndexInner || type_ == kTableInner) put_big_endian(p + 8, right, 4);
  return page_;
}

SqliteTable::SqliteTable(SqlitePages& pages) : pages_(pages), leaf_(kTableLeaf) {}

void SqliteTable::add(int64_t id, std::span<const uint8_t> record) {
  const Placed placed = place(pages_, record, kMostInTable);
  const size_t bytes =
      varint_bytes(record.size()) + varint_bytes(static_cast<uint64_t>(id)) + placed.bytes();
  if (!leaf_.has_room(bytes)) end_leaf();
  uint8_t* p = leaf_.add(bytes);
  p = put_sqlite_varint(p, record.size());
  p = put_sqlite_varint(p, static_cast<uint64_t>(id));
  placed.put(p);
  last_id_ = id;
}

void SqliteTable::end_leaf() {
  children_.push_back({pages_.append(leaf_.finished()), last_id_});
  leaf_.clear(kTableLeaf);
}

uint32_t SqliteTable::finish() {
  if (leaf_.count() != 0 || children_.empty()) end_leaf();
  while (children_.size() > 1) add_level();
  return children_.front().page;
}

// Distributes children evenly, so that no page has a single one.
void SqliteTable::add_level() {
  constexpr size_t kMostChildren = (kUsable - 12) / (2 + 4 + 9);
  const size_t parents = (children_.size() + kMostChildren - 1) / kMostChildren;
  std::vector<Child> level;
  for (size_t parent = 0; parent < parents; ++parent) {
    const size_t first = children_.size() * parent / parents;
    const size_t last = children_.size() * (parent + 1) / parents - 1;
    leaf_.clear(kTableInner);
    for (size_t i = first; i < last; ++i) {
      const auto id = static_cast<uint64_t>(children_[i].last_id);
      uint8_t* p = leaf_.add(4 + varint_bytes(id));
      put_sqlite_varint(put_big_endian(p, children_[i].page, 4), id);
    }
    level.push_back({pages_.append(leaf_.finished(children_[last].page)), children_[last].last_id});
  }
  children_ = std::move(level);
}

SqliteIndex::SqliteIndex(SqlitePages& pages) : pages_(pages), leaf_(kIndexLeaf) {}

void SqliteIndex::add(std::span<const uint8_t> record) {
  if (has_waiting_) {
    has_waiting_ = false;
    end_leaf(std::move(waiting_));
  }
  const Placed placed = place(pages_, record, kMostInIndex);
  const size_t length = varint_bytes(record.size());
  const size_t bytes = length + placed.bytes();
  has_waiting_ = !leaf_.has_room(bytes);
  if (has_waiting_) waiting_.resize(bytes);
  uint8_t* p = has_waiting_ ? waiting_.data() : leaf_.add(bytes);
  placed.put(put_sqlite_varint(p, record.size()));
}

void SqliteIndex::end_leaf(Cell divider) {
  children_.push_back(pages_.append(leaf_.finished()));
  dividers_.push_back(std::move(divider));
  leaf_.clear(kIndexLeaf);
}

uint32_t SqliteIndex::finish() {
  if (has_waiting_) {
    // Nothing follows it: it becomes a separate leaf, and the entry before it moves up.
    end_leaf(leaf_.take_last());
    std::memcpy(leaf_.add(waiting_.size()), waiting_.data(), waiting_.size());
  }
  children_.push_back(pages_.append(leaf_.finished()));
  while (children_.size() > 1) add_level();
  return children_.front();
}

void SqliteIndex::add_level() {
  std::vector<size_t> starts = {0};  // the first child of each page
  size_t used = 12;
  for (size_t i = 0; i + 1 < children_.size(); ++i) {
    used += 2 + 4 + dividers_[i].size();
    if (used <= kUsable) continue;
    // Child i is the rightmost of its page, and its divider moves up.
    starts.push_back(i + 1);
    used = 12;
  }
  // A page needs two children; a full page has more than two and can give one up.
  if (starts.size() > 1 && starts.back() + 1 == children_.size()) --starts.back();
  std::vector<uint32_t> level;
  std::vector<Cell> between;
  for (size_t s = 0; s < starts.size(); ++s) {
    const size_t end = s + 1 < starts.size() ? starts[s + 1] : children_.size();
    level.push_back(write_inner(starts[s], end));
    if (end < children_.size()) between.push_back(std::move(dividers_[end - 1]));
  }
  children_ = std::move(level);
  dividers_ = std::move(between);
}

uint32_t SqliteIndex::write_inner(size_t first, size_t end) {
  leaf_.clear(kIndexInner);
  for (size_t i = first; i + 1 < end; ++i) {
    uint8_t* p = leaf_.add(4 + dividers_[i].size());
    std::memcpy(put_big_endian(p, children_[i], 4), dividers_[i].data(), dividers_[i].size());
  }
  return pages_.append(leaf_.finished(children_[end - 1]));
}

Status finish_sqlite_file(SqlitePages& pages, std::span<const SqliteSchemaRow> schema,
                          uint32_t application_id, uint32_t user_version) {
  SqliteCells cells(kTableLeaf, kFileHeader);
  SqliteRecord record;
  uint64_t id = 0;
  for (const SqliteSchemaRow& row : schema) {
    record.clear();
    record.text(row.type);
    record.text(row.name);
    record.text(row.table);
    record.integer(row.root);
    record.text(row.sql);
    const std::span<const uint8_t> bytes = record.bytes();
    const size_t size = varint_bytes(bytes.size()) + varint_bytes(++id) + bytes.size();
    if (!cells.has_room(size)) return Error{"the schema does not fit into one page"};
    uint8_t* p = put_sqlite_varint(cells.add(size), bytes.size());
    std::memcpy(put_sqlite_varint(p, id), bytes.data(), bytes.size());
  }
  cells.finished();
  uint8_t* h = cells.page().data();
  std::memcpy(h, "SQLite format 3", 16);
  put_big_endian(h + 16, kSqlitePageBytes, 2);
  h[18] = h[19] = 1;                         // no write-ahead log
  h[21] = 64, h[22] = 32, h[23] = 32;        // payload fractions, fixed by the format
  put_big_endian(h + 24, 1, 4);              // file change counter
  put_big_endian(h + 28, pages.count(), 4);  // valid because it matches the counter at 92
  put_big_endian(h + 40, 1, 4);              // schema cookie
  put_big_endian(h + 44, 4, 4);              // schema format
  put_big_endian(h + 56, 1, 4);              // UTF-8
  put_big_endian(h + 60, user_version, 4);
  put_big_endian(h + 68, application_id, 4);
  put_big_endian(h + 92, 1, 4);
  put_big_endian(h + 96, 3040001, 4);  // the SQLite version of this format
  pages.finish(cells.page());
  if (!pages.good()) return Error{pages.message()};
  return {};
}

}  // namespace tidemark
