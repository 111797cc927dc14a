// The answer of `tidemark plan` as text for a terminal, as JSON (schema tidemark.plan/1), and as a
// picture (SVG).
#pragma once

#include <string>

#include "analysis/plan/plan_report.h"

namespace tidemark {

std::string plan_as_text(const PlanReport& report, bool colour);
std::string plan_as_json(const PlanReport& report);
// The recorded curve of reserved memory and the planned one over it, for each device.
std::string plan_as_svg(const PlanReport& report);

}  // namespace tidemark
