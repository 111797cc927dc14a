#include "cli/loss_warnings.h"

#include "cli/command.h"
#include "export/report/loss_lines.h"

namespace tidemark::cli {

void warn_of_losses(const Report& report) {
  const std::vector<std::string> lines = loss_lines(report);
  for (size_t i = report.notes.size(); i < lines.size(); ++i) warn_about(report.path, lines[i]);
}

}  // namespace tidemark::cli
