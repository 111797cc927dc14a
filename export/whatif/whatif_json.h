// `tidemark whatif --json`: schema tidemark.whatif/1. Fields may be added, never renamed.
#pragma once

#include <string>

#include "analysis/whatif/whatif_report.h"

namespace tidemark {

std::string whatif_as_json(const WhatIfReport& report);

}  // namespace tidemark
