// Perfetto's format needs protobuf, which a page does without.
#include "export/perfetto/perfetto_export.h"

namespace tidemark {

Result<ExportSummary> export_perfetto(const ExportInput&, const ExportOptions&, const std::string&,
                                      const Progress&) {
  return Error{
      "the page writes no files for Perfetto; run tidemark export --format perfetto, or choose "
      "another format"};
}

}  // namespace tidemark
