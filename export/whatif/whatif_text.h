// `tidemark whatif` as text: a table, and the result in one line.
#pragma once

#include <string>

#include "analysis/whatif/whatif_report.h"

namespace tidemark {

std::string whatif_as_text(const WhatIfReport& report, bool colour);

}  // namespace tidemark
