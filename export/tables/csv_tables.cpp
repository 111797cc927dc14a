#include "export/tables/csv_tables.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "analysis/wording.h"
#include "export/safe_text.h"
#include "export/tables/table_rows.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

class CsvSink final : public TableSink {
 public:
  CsvSink(std::string directory, uint64_t max_bytes)
      : directory_(std::move(directory)), max_bytes_(max_bytes) {
    buffer_.reserve(kBufferBytes + (1 << 16));
  }

  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  void put_table(const TableSpec& table) override {
    flush();
    const std::string header = header_of(table);
    if (!begin_file(fmt::format("{}.csv", table.name), header)) return;
    add_to_load(table);
    written_.insert(std::string(table.name));
    buffer_ += header + '\n';
    first_ = true;
  }

  void put_integer(int64_t value) override {
    separate();
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, value);
    buffer_.append(digits, end.ptr);
  }
  void put_text(std::string_view value) override {
    separate();
    const bool formula = looks_like_formula(value);
    if (!formula && value.find_first_of("\",\r\n") == std::string_view::npos) {
      buffer_ += value;
      return;
    }
    buffer_ += '"';
    if (formula) buffer_ += '\'';
    for (const char c : value) {
      if (c == '"') buffer_ += '"';
      buffer_ += c;
    }
    buffer_ += '"';
  }
  void put_null() override { separate(); }
  void put_row_end() override {
    buffer_ += '\n';
    first_ = true;
    if (buffer_.size() >= kBufferBytes) flush();
  }

  void put_end() override {
    flush();
    if (begin_file("load.sql", "CREATE TABLE ")) buffer_ = load_;
    flush();
  }
  Status commit() override {
    for (OutputFile& file : files_) {
      if (Status status = file.commit(); !status) return status;
    }
    for (const TableSpec& table : table_specs()) {
      if (!written_.contains(table.name)) remove_stale(table);
    }
    return {};
  }

  // A table of an earlier export that this one does not have. Another program's file of that name
  // stays.
  void remove_stale(const TableSpec& table) {
    const std::string path = fmt::format("{}/{}.csv", directory_, table.name);
    std::string first;
    if (std::ifstream file(path); !std::getline(file, first)) return;
    if (first != header_of(table)) return;
    std::error_code ignored;
    fs::remove(path, ignored);
  }

  static std::string header_of(const TableSpec& table) {
    std::string header;
    for (const TableColumn& column : table.columns) {
      header += fmt::format("{}{}", header.empty() ? "" : ",", column.name);
    }
    return header;
  }

  // What an earlier export wrote is replaced, but no file of another program.
  static bool is_foreign(const std::string& path, std::string_view beginning) {
    std::string first;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return false;
    std::ifstream file(path);
    return !std::getline(file, first) || !first.starts_with(beginning);
  }

  bool begin_file(const std::string& name, std::string_view beginning) {
    const std::string path = directory_ + '/' + name;
    if (is_foreign(path, beginning)) {
      fail(path + ": was not written by this version of tidemark; choose another directory");
      return false;
    }
    Result<OutputFile> file = OutputFile::create(path);
    if (file) files_.push_back(std::move(*file));
    if (!file) fail(file.error().message);
    return file.ok();
  }

  // A column without values does not show its type, so load.sql declares it.
  void add_to_load(const TableSpec& table) {
    std::string columns;
    for (const TableColumn& column : table.columns) {
      columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", column.name,
                             column.type == CellType::kText ? "VARCHAR" : "BIGINT");
    }
    load_ += fmt::format("CREATE TABLE {0} ({1});\nCOPY {0} FROM '{0}.csv' (HEADER);\n", table.name,
                         columns);
  }

  void separate() {
    if (!first_) buffer_ += ',';
    first_ = false;
  }
  void flush() {
    if (good() && !files_.empty() && !buffer_.empty()) {
      FdSink sink(files_.back().fd());
      const std::span<const uint8_t> out(reinterpret_cast<const uint8_t*>(buffer_.data()),
                                         buffer_.size());
      if (!sink.write(out)) fail(fmt::format("{}: {}", directory_, std::strerror(errno)));
      bytes_ += buffer_.size();
      if (bytes_ > max_bytes_) {
        fail(fmt::format("{}: would exceed {}; choose a part with --time or --ranks", directory_,
                         size_text(max_bytes_)));
      }
    }
    buffer_.clear();
  }

  std::string directory_;
  uint64_t max_bytes_;
  std::vector<OutputFile> files_;
  std::set<std::string, std::less<>> written_;  // tables
  std::string load_;                            // creates the tables in DuckDB
  std::string buffer_;
  uint64_t bytes_ = 0;
  bool first_ = true;
};

}  // namespace

std::vector<std::string> csv_file_names() {
  std::vector<std::string> names{"load.sql"};
  for (const TableSpec& table : table_specs()) names.push_back(fmt::format("{}.csv", table.name));
  return names;
}

Result<ExportSummary> export_csv(const ExportInput& input, const ExportOptions& options,
                                 const std::string& directory, const Progress& progress) {
  std::error_code error;
  const bool made = fs::create_directory(directory, error);
  if (error || !fs::is_directory(directory)) {
    return Error{fmt::format("{}: {}", directory,
                             error ? error.message() : std::string("is not a directory"))};
  }
  CsvSink sink(directory, options.max_bytes);
  if (Status status = dump_tables(input, options, sink, progress); !status) {
    if (made) fs::remove(directory, error);  // only if empty
    return status.error();
  }
  ExportSummary summary;
  summary.records = sink.rows();
  summary.bytes = sink.bytes();
  return summary;
}

}  // namespace tidemark
