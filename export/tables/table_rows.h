// The tables for SQLite and CSV: their descriptions, and the sink for their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "export/export_input.h"
#include "export/utf8.h"
#include "proto/base/result.h"

namespace tidemark {

enum class CellType : uint8_t { kInteger, kText };

struct TableColumn {
  std::string_view name;
  CellType type = CellType::kInteger;
};

struct TableIndex {
  std::string_view columns;   // "a, b", at most three
  bool in_row_order = false;  // rows come ordered by these columns
};

struct TableSpec {
  std::string_view name;
  std::vector<TableColumn> columns;  // the first is the primary key when `keyed`
  std::vector<TableIndex> indexes;
  bool keyed = false;  // strictly increasing
};

// Takes tables one after the other, each row cell by cell in the order of the columns. Rows are
// checked against the table's description: a row with too few or too many cells is an error. The
// first failure is kept and returned by finish().
class TableSink {
 public:
  virtual ~TableSink() = default;

  void begin_table(const TableSpec& table);
  void integer(int64_t value) {
    if (begin_cell()) put_integer(value);
  }
  void null() {
    if (begin_cell()) put_null();
  }
  // As valid UTF-8.
  void text(std::string_view value) {
    if (begin_cell()) is_ascii(value) ? put_text(value) : put_text(utf8_text(value));
  }
  void end_row();
  Status finish();

  // SQLite has no unsigned 64-bit numbers; values past 2^63 appear negative.
  void number(uint64_t value) { integer(static_cast<int64_t>(value)); }
  void text_or_null(std::string_view value) { value.empty() ? null() : text(value); }
  void number_or_null(uint64_t value) { value == 0 ? null() : number(value); }

  uint64_t rows() const { return rows_; }
  // False ends the export early, on a full disk for example.
  bool good() const { return good_; }

 protected:
  virtual void put_table(const TableSpec& table) = 0;
  virtual void put_integer(int64_t value) = 0;
  virtual void put_null() = 0;
  virtual void put_text(std::string_view value) = 0;
  virtual void put_row_end() = 0;
  virtual void put_end() = 0;   // after the last table
  virtual Status commit() = 0;  // unless fail() was called

  // The column of the cell that is being put.
  size_t column() const { return cells_ - 1; }
  void fail(std::string message);
  // commit() then says what went wrong.
  void stop() { good_ = false; }

 private:
  bool begin_cell() {
    if (cells_++ < columns_) return true;
    fail_row();
    return false;
  }
  void fail_row();
  static bool is_ascii(std::string_view text) {
    unsigned char bits = 0;
    for (const char c : text) bits |= static_cast<unsigned char>(c);
    return bits < 0x80;
  }

  std::string_view table_;
  std::string message_;
  uint64_t rows_ = 0;
  size_t columns_ = 0;
  size_t cells_ = 0;  // of the row so far
  bool good_ = true;
};

// All tables of the schema (docs/export.md), in order. "events" is written only on request.
const std::vector<TableSpec>& table_specs();
const TableSpec& table_spec(std::string_view name);

// Ids of stacks and frames across processes, and which stacks are referred to.
class StackIds {
 public:
  StackIds(const Dictionary& names, int64_t base) : base_(base), used_(names.stack_count()) {}

  void put(TableSink& sink, uint32_t stack) {
    if (stack == 0 || stack >= used_.size()) return sink.null();
    used_[stack] = true;
    sink.integer(base_ + stack);
  }
  int64_t base() const { return base_; }
  size_t size() const { return used_.size(); }
  bool used(uint32_t stack) const { return used_[stack]; }

 private:
  int64_t base_;
  std::vector<bool> used_;
};

// One process that is written to the tables.
struct TableSource {
  const ExportProcess* process = nullptr;
  StackIds* stacks = nullptr;
  TimeRange range;
  Progress progress;  // within the table that is being filled
};

// The histories of a process, ordered by device.
std::vector<const AllocationHistory*> by_device(const ProcessModel& process);

// Devices with their peaks in the range; owners of the card's memory and holes, at the peaks and
// the last error.
void dump_devices(TableSink& sink, const ExportProcess& process, const Report& report,
                  const TimeRange& range);
void dump_ledgers(TableSink& sink, const TableSource& source, const Report& report);
void dump_holes(TableSink& sink, const TableSource& source);
// The driver's allocations, each from birth to death.
void dump_driver_allocations(TableSink& sink, const TableSource& source);

// The allocator's history. Ids are unique across processes; each call advances them.
void dump_allocations(TableSink& sink, const TableSource& source, int64_t& next_allocation,
                      int64_t& next_segment);
void dump_segments(TableSink& sink, const TableSource& source, int64_t& next_segment);
void dump_events(TableSink& sink, const TableSource& source, int64_t& next_event);

// All tables of the chosen processes.
Status dump_tables(const ExportInput& input, const ExportOptions& options, TableSink& sink,
                   const Progress& progress);

}  // namespace tidemark
