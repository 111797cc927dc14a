// `tidemark report` as text: one page, the answer first.
#pragma once

#include <string>

#include "analysis/report/report.h"

namespace tidemark {

struct TextOptions {
  bool colour = false;
  size_t width = 100;  // columns; stacks are cut to it
  size_t stacks = 10;
};

std::string report_as_text(const Report& report, const TextOptions& options);

}  // namespace tidemark
