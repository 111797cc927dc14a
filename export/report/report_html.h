// `tidemark report --html`: one page in one file, without scripts or external resources.
#pragma once

#include <span>
#include <string>

#include "analysis/report/report.h"
#include "analysis/stacked/category_curves.h"

namespace tidemark {

// With a picture of the categories over time for the devices that have one.
std::string report_as_html(const Report& report, std::span<const CategoryCurve> categories = {});

}  // namespace tidemark
