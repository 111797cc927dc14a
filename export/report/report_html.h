// `tidemark report --html`: one page in one file, without scripts or external resources.
#pragma once

#include <string>

#include "analysis/report/report.h"

namespace tidemark {

std::string report_as_html(const Report& report);

}  // namespace tidemark
