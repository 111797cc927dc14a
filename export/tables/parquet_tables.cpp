#include "export/tables/parquet_tables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <unordered_map>

#include "analysis/wording.h"
#include "export/tables/parquet_file.h"
#include "export/tables/table_rows.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoRank = -1;  // what concerns the whole job, and processes without a rank

// A row goes to the file of its rank. The cells that come before the one that tells it wait.
class ParquetSink final : public TableSink {
 public:
  // `ranks`: of the processes of the export, by their numbers from 1.
  ParquetSink(fs::path directory, std::vector<int64_t> ranks, uint64_t max_bytes)
      : directory_(std::move(directory)), ranks_(std::move(ranks)), max_bytes_(max_bytes) {}

  uint64_t bytes() const { return bytes_; }

 private:
  struct Cell {
    int64_t integer = 0;
    std::string text;
    enum class Kind : uint8_t { kNull, kInteger, kText } kind = Kind::kNull;
  };

  void put_table(const TableSpec& table) override {
    end_table();
    table_ = &table;
    row_.assign(table.columns.size(), {});
    const auto position = [&](std::string_view name) {
      const auto it = std::find_if(table.columns.begin(), table.columns.end(),
                                   [&](const TableColumn& c) { return c.name == name; });
      return static_cast<size_t>(it - table.columns.begin());
    };
    rank_id_ = position("rank_id");
    stack_id_ = position("stack_id");
    finding_id_ = position("finding_id");
    file_of(kNoRank);  // every job has every table, even if no rank has rows for it
  }
  void put_integer(int64_t value) override {
    row_[column()].kind = Cell::Kind::kInteger;
    row_[column()].integer = value;
  }
  void put_null() override { row_[column()].kind = Cell::Kind::kNull; }
  void put_text(std::string_view value) override {
    row_[column()].kind = Cell::Kind::kText;
    row_[column()].text = value;
  }
  void put_row_end() override {
    ParquetFile& file = file_of(rank_of_row());
    for (size_t i = 0; i < row_.size(); ++i) {
      const Cell& cell = row_[i];
      switch (cell.kind) {
        case Cell::Kind::kNull:
          file.column(i).put_null();
          break;
        case Cell::Kind::kInteger:
          file.column(i).put_integer(cell.integer);
          break;
        case Cell::Kind::kText:
          file.column(i).put_text(cell.text);
          break;
      }
    }
    file.end_row();
  }
  void put_end() override { end_table(); }
  Status commit() override { return {}; }

  // Tables without a rank belong to rows of one that has it and comes before them.
  int64_t rank_of_row() {
    const auto integer = [&](size_t column) {
      const bool there = column < row_.size() && row_[column].kind == Cell::Kind::kInteger;
      return there ? row_[column].integer : 0;
    };
    const bool of_stacks = table_->name == "stack_frames";
    const bool of_findings = rank_id_ == row_.size() && finding_id_ < row_.size();
    if (of_stacks) return known(stacks_, integer(stack_id_));
    if (of_findings) return known(findings_, integer(finding_id_));
    const auto process = static_cast<size_t>(integer(rank_id_));
    const int64_t rank = process >= 1 && process <= ranks_.size() ? ranks_[process - 1] : kNoRank;
    if (table_->name == "stacks") stacks_[integer(stack_id_)] = rank;
    if (table_->name == "findings") findings_[integer(finding_id_)] = rank;
    return rank;
  }
  static int64_t known(const std::unordered_map<int64_t, int64_t>& ranks, int64_t id) {
    const auto it = ranks.find(id);
    return it == ranks.end() ? kNoRank : it->second;
  }

  // Processes follow each other, so one file is open at a time; a second process without a rank
  // continues the file of the first.
  ParquetFile& file_of(int64_t rank) {
    std::unique_ptr<ParquetFile>& file = files_[rank];
    if (file) return *file;
    const fs::path folder = directory_ / fmt::format("rank={}", rank);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail(fmt::format("{}: {}", folder.string(), error.message()));
    file = std::make_unique<ParquetFile>(folder / fmt::format("{}.parquet", table_->name), *table_);
    return *file;
  }

  void end_table() {
    for (auto& [rank, file] : files_) {
      if (Status status = file->finish(); !status) fail(status.error().message);
      bytes_ += file->bytes();
    }
    files_.clear();
    if (bytes_ > max_bytes_) {
      fail(fmt::format("{}: would exceed {}; choose a part with --time or --ranks",
                       directory_.string(), size_text(max_bytes_)));
    }
  }

  fs::path directory_;
  std::vector<int64_t> ranks_;
  uint64_t max_bytes_;
  const TableSpec* table_ = nullptr;
  std::vector<Cell> row_;
  size_t rank_id_ = 0;  // columns; the number of columns: there is none
  size_t stack_id_ = 0;
  size_t finding_id_ = 0;
  std::map<int64_t, std::unique_ptr<ParquetFile>> files_;  // of this table, by rank
  std::unordered_map<int64_t, int64_t> stacks_;            // ranks
  std::unordered_map<int64_t, int64_t> findings_;
  uint64_t bytes_ = 0;
};

// As Hive writes values into paths.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                       (c == '.' && !out.empty());
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string job_of(const TraceModel& model) {
  for (const ProcessModel& process : model.processes) {
    const std::string_view job = process.names.string(process.info.job);
    if (!job.empty()) return std::string(job);
  }
  const fs::path path = fs::path(model.path).lexically_normal();
  const fs::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.stem().empty() ? "trace" : name.stem().string();
}

// A new directory for an export that may fail, with all that is in it.
class Scratch {
 public:
  // Beside `target`, under a name that nothing has. Not there(): it cannot be made.
  explicit Scratch(const fs::path& target) : name_(target.string() + ".partial-XXXXXX") {
    there_ = ::mkdtemp(name_.data()) != nullptr;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (there_) fs::remove_all(name_, ignored);
  }
  bool there() const { return there_; }
  fs::path path() const { return name_; }

 private:
  std::string name_;
  bool there_ = false;
};

Status check_data_set(const std::string& directory, const fs::path& job, bool append) {
  std::error_code error;
  const bool there = fs::exists(directory, error);
  if (there && !fs::is_directory(directory, error)) {
    return Error{fmt::format("{}: is not a directory", directory)};
  }
  if (there && !append && !fs::is_empty(directory, error)) {
    return Error{fmt::format("{}: is not empty; --append adds a job to a data set", directory)};
  }
  if (fs::exists(job, error)) {
    return Error{fmt::format("{}: the data set has this job already; --job gives another name",
                             job.string())};
  }
  return {};
}

}  // namespace

Result<ExportSummary> export_parquet(const ExportInput& input, const ExportOptions& options,
                                     const ParquetOptions& parquet, const std::string& directory,
                                     const Progress& progress) {
  const std::string name =
      "job=" + escaped(parquet.job.empty() ? job_of(input.model) : parquet.job);
  const fs::path whole = fs::path(directory).lexically_normal() / "";
  const fs::path job = whole / name;
  if (Status free = check_data_set(directory, job, parquet.append); !free) return free.error();
  const Result<std::vector<ExportProcess>> processes = chosen_processes(input, options);
  if (!processes) return processes.error();
  std::vector<int64_t> ranks;
  for (const ExportProcess& process : *processes) ranks.push_back(process.model->info.rank);

  std::error_code error;
  const bool made = fs::create_directory(whole, error);
  if (error) return Error{fmt::format("{}: {}", directory, error.message())};
  // Beside the data set: no reader takes it for a part.
  const Scratch scratch(whole.parent_path());
  if (!scratch.there()) {
    const Error failed{fmt::format("{}: {}", scratch.path().string(), std::strerror(errno))};
    if (made) fs::remove(whole, error);
    return failed;
  }
  ParquetSink sink(scratch.path() / name, std::move(ranks), options.max_bytes);
  Status done = dump_tables(input, options, sink, progress);
  if (done) {
    fs::rename(scratch.path() / name, job, error);
    if (error) done = Error{fmt::format("{}: {}", job.string(), error.message())};
  }
  if (!done) {
    if (made) fs::remove(whole, error);  // only if empty
    return done.error();
  }
  ExportSummary summary;
  summary.records = sink.rows();
  summary.bytes = sink.bytes();
  return summary;
}

}  // namespace tidemark
