#include "export/tables/sqlite_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "export/tables/sqlite_index_keys.h"
#include "export/tables/table_rows.h"
#include "proto/base/output_file.h"

namespace tidemark {

namespace {

constexpr uint32_t kApplicationId = 0x544d4b31;  // "TMK1"
constexpr uint32_t kSchemaVersion = 8;

class SqliteSink final : public TableSink {
 public:
  SqliteSink(int fd, uint64_t max_bytes) : pages_(fd, max_bytes) {}

  uint64_t bytes() const { return pages_.bytes(); }

 private:
  struct Use {
    SqliteIndexKeys* index;
    size_t place;  // position in the index's columns
  };
  struct Statistics {
    std::string table;
    std::string index;
    std::string text;
  };

  void put_table(const TableSpec& table) override {
    end_table();
    spec_ = &table;
    table_.emplace(pages_);
    using_columns_.assign(table.columns.size(), {});
    for (const TableIndex& index : table.indexes) {
      const std::vector<size_t> columns = places(table, index.columns);
      indexes_.emplace_back(pages_, columns, index.in_row_order);
      for (size_t i = 0; i < columns.size(); ++i) {
        using_columns_[columns[i]].push_back({&indexes_.back(), i});
      }
    }
    id_ = 0;
    count_ = 0;
    record_.clear();
  }

  void put_integer(int64_t value) override {
    if (column() == 0 && spec_->keyed) {
      // The first column is the rowid, which is not stored in the record.
      if (value <= id_) fail(fmt::format("rows of {} are out of order", spec_->name));
      id_ = value;
      record_.null();
    } else {
      record_.integer(value);
      for (const Use& use : using_columns_[column()]) use.index->integer(use.place, value);
    }
  }
  void put_null() override {
    record_.null();
    for (const Use& use : using_columns_[column()]) use.index->null(use.place);
  }
  void put_text(std::string_view value) override {
    record_.text(value);
    for (const Use& use : using_columns_[column()]) use.index->text(use.place, value);
  }
  void put_row_end() override {
    if (!spec_->keyed) ++id_;
    table_->add(id_, record_.bytes());
    for (SqliteIndexKeys& index : indexes_) {
      if (!index.end_row(id_)) fail(fmt::format("rows of {} are out of order", spec_->name));
    }
    record_.clear();
    ++count_;
    if (!pages_.good()) stop();
  }
  void put_end() override {
    end_table();
    put_statistics();
  }
  Status commit() override {
    return finish_sqlite_file(pages_, schema_, kApplicationId, kSchemaVersion);
  }

  static std::vector<size_t> places(const TableSpec& table, std::string_view names) {
    std::vector<size_t> columns;
    while (!names.empty()) {
      const size_t comma = std::min(names.find(", "), names.size());
      const std::string_view name = names.substr(0, comma);
      const auto it = std::find_if(table.columns.begin(), table.columns.end(),
                                   [&](const TableColumn& c) { return c.name == name; });
      columns.push_back(static_cast<size_t>(it - table.columns.begin()));
      names.remove_prefix(std::min(comma + 2, names.size()));
    }
    return columns;
  }

  void end_table() {
    if (spec_ == nullptr) return;
    std::string columns;
    for (size_t i = 0; i < spec_->columns.size(); ++i) {
      const TableColumn& column = spec_->columns[i];
      columns += fmt::format("{}{} {}{}", i == 0 ? "" : ", ", column.name,
                             column.type == CellType::kText ? "TEXT" : "INTEGER",
                             i == 0 && spec_->keyed ? " PRIMARY KEY" : "");
    }
    const std::string name(spec_->name);
    schema_.push_back({"table", name, name, table_->finish(),
                       fmt::format("CREATE TABLE {} ({})", name, columns)});
    for (size_t i = 0; i < spec_->indexes.size(); ++i) {
      const std::string index = fmt::format("{}_by_{}", name, i + 1);
      schema_.push_back(
          {"index", index, name, indexes_[i].finish(),
           fmt::format("CREATE INDEX {} ON {} ({})", index, name, spec_->indexes[i].columns)});
      if (count_ != 0) statistics_.push_back({name, index, indexes_[i].statistics()});
    }
    if (spec_->indexes.empty() && count_ != 0) {
      statistics_.push_back({name, "", fmt::format("{}", count_)});
    }
    indexes_.clear();
    spec_ = nullptr;
  }

  // The results of ANALYZE, for SQLite's query planner.
  void put_statistics() {
    SqliteTable table(pages_);
    int64_t id = 0;
    for (const Statistics& s : statistics_) {
      record_.clear();
      record_.text(s.table);
      s.index.empty() ? record_.null() : record_.text(s.index);
      record_.text(s.text);
      table.add(++id, record_.bytes());
    }
    schema_.push_back({"table", "sqlite_stat1", "sqlite_stat1", table.finish(),
                       "CREATE TABLE sqlite_stat1(tbl,idx,stat)"});
  }

  SqlitePages pages_;
  SqliteRecord record_;
  const TableSpec* spec_ = nullptr;
  std::optional<SqliteTable> table_;
  std::deque<SqliteIndexKeys> indexes_;
  std::vector<std::vector<Use>> using_columns_;  // by column of the table
  std::vector<SqliteSchemaRow> schema_;
  std::vector<Statistics> statistics_;
  int64_t id_ = 0;
  uint64_t count_ = 0;
};

}  // namespace

Result<ExportSummary> export_sqlite(const ExportInput& input, const ExportOptions& options,
                                    const std::string& path, const Progress& progress) {
  // An error of the choice names the trace, those below the output.
  if (const auto chosen = chosen_processes(input, options); !chosen) return chosen.error();
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  SqliteSink sink(file->fd(), options.max_bytes);
  if (Status status = dump_tables(input, options, sink, progress); !status) {
    return Error{path + ": " + status.error().message};
  }
  ExportSummary summary;
  summary.records = sink.rows();
  summary.bytes = sink.bytes();
  if (Status status = file->commit(); !status) return status.error();
  return summary;
}

}  // namespace tidemark
