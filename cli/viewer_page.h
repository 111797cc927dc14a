// The viewer as a page for a browser.
#pragma once

#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark::cli {

// The path of tidemark-view.html: of an installed tidemark, or of the build tree.
Result<std::string> find_viewer_page();

// Writes the page with the trace inside to a temporary file and opens it in a browser where there is
// a display. `words` are those of `tidemark view`. Returns the exit code.
int view_in_browser(const std::vector<std::string>& words);

}  // namespace tidemark::cli
