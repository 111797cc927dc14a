// `tidemark diff` as text and as JSON.
#pragma once

#include <string>

#include "analysis/report/diff.h"
#include "export/report/report_text.h"

namespace tidemark {

std::string diff_as_text(const Diff& diff, const TextOptions& options);
// Schema tidemark.diff/1.
std::string diff_as_json(const Diff& diff);

}  // namespace tidemark
