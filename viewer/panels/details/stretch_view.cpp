#include "viewer/panels/details/stretch_view.h"

#include <fmt/format.h>

#include "analysis/wording.h"
#include "viewer/widgets/text.h"

namespace tidemark::view {

namespace {

// To add up this many takes too little time to notice.
constexpr uint32_t kManyEvents = 500'000;

constexpr const char* kNames[kStretchParts] = {"allocated", "freed", "kept", "short-lived"};

}  // namespace

void StretchView::draw(const Model& model, uint32_t lane, const TimeRange& range, float column) {
  const std::weak_ptr<const Model> now = model.weak_from_this();
  const bool same_model = !of_.owner_before(now) && !now.owner_before(of_);
  if (!same_model || lane_ != lane || range_.begin_ns != range.begin_ns ||
      range_.end_ns != range.end_ns) {
    of_ = now;
    lane_ = lane;
    range_ = range;
    const AllocationHistory* memory = model.lanes[lane].memory;
    work_.wish([held = now.lock(), memory, range] { return sums_in(*memory, range); },
               events_of(*memory, range).count() < kManyEvents);
  }
  work_.poll();
  if (work_.busy()) {
    text_dim("Adding up ...");
    return;
  }
  for (size_t i = 0; i < kStretchParts; ++i) {
    const StretchSum& sum = work_.value()[i];
    std::string value = fmt::format("{} in {}", size_text(sum.bytes), counted(sum.count, "block"));
    if (static_cast<StretchPart>(i) == StretchPart::kFreed) {
      const StretchSum& young = work_.value()[static_cast<size_t>(StretchPart::kShortLived)];
      if (sum.bytes > young.bytes) {
        value += fmt::format(", of it {} older", size_text(sum.bytes - young.bytes));
      }
    }
    fact(kNames[i], value, column);
  }
  explain(
      "Older: allocated before this time. Short-lived: allocated and freed in it. The flame graph "
      "shows the lines of each.");
}

}  // namespace tidemark::view
