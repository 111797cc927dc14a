// `tidemark report --json`: schema tidemark.report/1. Fields may be added, never renamed.
#pragma once

#include <string>

#include "analysis/report/report.h"

namespace tidemark {

std::string report_as_json(const Report& report);

}  // namespace tidemark
