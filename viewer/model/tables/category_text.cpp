#include "viewer/model/tables/category_text.h"

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"

namespace tidemark::view {

namespace {

std::string_view doubt_of(const DeviceReport* report, Category category) {
  if (report == nullptr) return "";
  const auto found = std::find_if(report->categories.begin(), report->categories.end(),
                                  [&](const CategoryShare& c) { return c.category == category; });
  return found == report->categories.end() ? "" : found->doubt();
}

}  // namespace

std::string category_text(const Model& model, const Lane& lane, Category category) {
  return in_words(category_name(category)).append(doubt_of(model.report_of(lane), category));
}

}  // namespace tidemark::view
