// `tidemark whatif` for people: a table, and in one line what it comes to.
#pragma once

#include <string>

#include "analysis/whatif/whatif_report.h"

namespace tidemark {

std::string whatif_as_text(const WhatIfReport& report, bool colour);

}  // namespace tidemark
