#include "export/sqlite_tables.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <memory>

#include "proto/output_file.h"
#include "export/names.h"
#include "export/table_rows.h"

namespace tidemark {

namespace {

constexpr int kApplicationId = 0x544d4b31;  // "TMK1"
constexpr int kSchemaVersion = 1;

constexpr std::string_view kOwnDescriptors = "/proc/self/fd/";

int open_descriptor(const char* path, int flags, int mode) {
  if (std::string_view(path).starts_with(kOwnDescriptors)) flags &= ~O_NOFOLLOW;
  return ::open(path, flags, mode);
}

// The database goes into a nameless file, which has a path only as a link in /proc. SQLite resolves
// links before it opens a path, and refuses to follow one then: this variant of its file layer
// takes paths as they are, and opens such links.
const char* descriptor_vfs() {
  static const char* const name = [] {
    static sqlite3_vfs vfs = *sqlite3_vfs_find("unix-none");
    vfs.zName = "tidemark-descriptor";
    vfs.pNext = nullptr;
    vfs.xFullPathname = [](sqlite3_vfs*, const char* path, int size, char* out) {
      sqlite3_snprintf(size, out, "%s", path);
      return SQLITE_OK;
    };
    vfs.xSetSystemCall(&vfs, "open", reinterpret_cast<sqlite3_syscall_ptr>(&open_descriptor));
    sqlite3_vfs_register(&vfs, 0);
    return vfs.zName;
  }();
  return name;
}

class SqliteSink final : public TableSink {
 public:
  ~SqliteSink() override { close(); }

  Status open(int fd) {
    const std::string path = fmt::format("{}{}", kOwnDescriptors, fd);
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    check(sqlite3_open_v2(path.c_str(), &db_, flags, descriptor_vfs()));
    // The file is new and nameless: there is nothing to protect from a crash.
    execute(
        "PRAGMA page_size = 32768; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;");
    execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}; BEGIN",
                        kApplicationId, kSchemaVersion));
    return status();
  }

  void begin_table(const TableSpec& table) override {
    sqlite3_finalize(insert_);
    insert_ = nullptr;
    std::string columns;
    std::string marks;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const TableColumn& column = table.columns[i];
      columns += fmt::format("{}{} {}{}", i == 0 ? "" : ", ", column.name,
                             column.type == CellType::kText ? "TEXT" : "INTEGER",
                             i == 0 && table.keyed ? " PRIMARY KEY" : "");
      marks += i == 0 ? "?" : ",?";
    }
    execute(fmt::format("CREATE TABLE {} ({})", table.name, columns));
    const std::string sql = fmt::format("INSERT INTO {} VALUES ({})", table.name, marks);
    check(sqlite3_prepare_v3(db_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &insert_, nullptr));
    for (size_t i = 0; i < table.indexes.size(); ++i) {
      indexes_.push_back(
          fmt::format("CREATE INDEX {0}_by_{1} ON {0} ({2})", table.name, i + 1, table.indexes[i]));
    }
    column_ = 0;
  }

  void integer(int64_t value) override { sqlite3_bind_int64(insert_, ++column_, value); }
  void text(std::string_view value) override {
    sqlite3_bind_text(insert_, ++column_, value.data() == nullptr ? "" : value.data(),
                      static_cast<int>(value.size()), SQLITE_STATIC);
  }
  void null() override { sqlite3_bind_null(insert_, ++column_); }
  void end_row() override {
    const int result = sqlite3_step(insert_);
    if (result != SQLITE_DONE) check(result);
    sqlite3_reset(insert_);
    column_ = 0;
    ++rows_;
  }

  // Indexes come last: sorting once is cheaper than finding a place for every row.
  Status finish() override {
    sqlite3_finalize(insert_);
    insert_ = nullptr;
    for (const std::string& sql : indexes_) execute(sql);
    execute("COMMIT");
    // Enough for the planner; looking at every row would take as long as writing them.
    execute("PRAGMA analysis_limit = 1000; ANALYZE");
    close();
    return status();
  }

 private:
  void execute(const std::string& sql) {
    if (good_) check(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr));
  }
  void check(int result) {
    if (result == SQLITE_OK || !good_) return;
    good_ = false;
    message_ = db_ == nullptr ? sqlite3_errstr(result) : sqlite3_errmsg(db_);
  }
  void close() {
    sqlite3_finalize(insert_);
    insert_ = nullptr;
    if (db_ != nullptr) sqlite3_close(db_);
    db_ = nullptr;
  }
  Status status() const {
    if (good_) return {};
    return Error{"cannot write: " + message_};
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  int column_ = 0;
  std::vector<std::string> indexes_;
  std::string message_;
};

}  // namespace

Result<ExportSummary> export_sqlite(const ExportInput& input, const ExportOptions& options,
                                    const std::string& path, const Progress& progress) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  SqliteSink sink;
  if (Status status = sink.open(file->fd()); !status) {
    return Error{path + ": " + status.error().message};
  }
  if (Status status = dump_tables(input, options, sink, progress); !status) {
    return Error{path + ": " + status.error().message};
  }
  ExportSummary summary;
  summary.records = sink.rows();
  const off_t end = ::lseek(file->fd(), 0, SEEK_END);
  summary.bytes = end < 0 ? 0 : static_cast<uint64_t>(end);
  if (summary.bytes > options.max_bytes) {
    return Error{fmt::format("{}: {} would pass {}; choose a part with --time or --ranks", path,
                             size_text(summary.bytes), size_text(options.max_bytes))};
  }
  if (Status status = file->commit(); !status) return status.error();
  return summary;
}

}  // namespace tidemark
