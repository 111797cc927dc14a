// Where and when a finding can be seen; a click on the finding goes there.
#pragma once

#include <optional>
#include <string>

#include "viewer/model/trace/selection.h"

namespace tidemark::view {

// The panel that shows it best.
enum class ShownBy : uint8_t { kTimeline, kMap, kFlame, kMoment };

struct FindingPlace {
  uint32_t lane = 0;
  uint32_t event = 0;
  std::optional<size_t> oom;        // the error that proves it, in Model::ooms
  std::optional<double> time;       // where it is at no event; ns since the start
  std::optional<uint32_t> compare;  // an earlier event, to see the growth since then
  std::optional<TimeRange> range;   // what to zoom to
  std::optional<uint64_t> hole;     // to highlight in the map
  std::optional<ColourBy> colour;
  // A line of the ledger, or kPinnedHost: where it is not about the allocator's blocks.
  std::string owner;
  ShownBy by = ShownBy::kMoment;
  std::string what;  // "the last error", "the allocated peak"
};

// None: the trace has no lane of that rank and device.
std::optional<FindingPlace> place_of(const Model& model, const Finding& finding);

inline constexpr const char* kPinnedHost = "pinned_host";
// The bytes of `place.owner` at a time.
uint64_t owner_bytes(const Model& model, const FindingPlace& place, int64_t time_ns);

// The last error of a lane, in Model::ooms.
std::optional<size_t> last_oom(const Model& model, uint32_t lane);

void go_to(const Model& model, Selection& selection, const FindingPlace& place);

}  // namespace tidemark::view
