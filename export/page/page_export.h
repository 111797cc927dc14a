// The viewer's page (tidemark-view.html) with a trace inside, to open in any browser.
#pragma once

#include <string>

#include "export/export_input.h"

namespace tidemark {

// The path of tidemark-view.html: of an installed tidemark, or of the build tree.
Result<std::string> find_viewer_page();

struct PageOptions {
  std::string page;  // the path of tidemark-view.html
  std::string link;  // what to show first, as the page writes it behind '#'; empty: as ever
};

// Of a range of time, everything before it stays in the trace, since the memory at its start is
// made of that; the page shows the range first. The file appears only when it is complete.
Result<ExportSummary> export_page(const ExportInput& input, const ExportOptions& options,
                                  const PageOptions& page, const std::string& path,
                                  const Progress& progress = {});

}  // namespace tidemark
