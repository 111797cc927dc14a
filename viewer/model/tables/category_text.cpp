#include "viewer/model/tables/category_text.h"

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"

namespace tidemark::view {

namespace {

bool is_unsure(const DeviceReport* report, Category category) {
  return report != nullptr && std::any_of(report->categories.begin(), report->categories.end(),
                                          [&](const CategoryShare& c) {
                                            return c.category == category && c.is_unsure();
                                          });
}

}  // namespace

std::string category_text(const Model& model, const Lane& lane, Category category) {
  std::string text = in_words(category_name(category));
  if (is_unsure(model.report_of(lane), category)) text += ", probably";
  return text;
}

}  // namespace tidemark::view
