// Built where SQLite was not found.
#include "export/sqlite_tables.h"

namespace tidemark {

Result<ExportSummary> export_sqlite(const ExportInput&, const ExportOptions&, const std::string&,
                                    const Progress&) {
  return Error{
      "this tidemark was built without SQLite: install libsqlite3-dev and build again, "
      "or use --format csv"};
}

}  // namespace tidemark
