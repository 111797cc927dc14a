// The viewer as a page for a browser.
#pragma once

#include <string>
#include <vector>

namespace tidemark::cli {

// Writes the page with the trace inside to a temporary file and opens it in a browser where there
// is a display. `words` are those of `tidemark view`. Returns the exit code.
int view_in_browser(const std::vector<std::string>& words);

}  // namespace tidemark::cli
