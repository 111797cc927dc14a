#include "viewer/model/tables/owner_text.h"

#include <algorithm>

#include "analysis/findings/evidence.h"
#include "viewer/model/owner_names.h"

namespace tidemark::view {

namespace {

// Cards without an id may be different ones.
bool has_known_card(const ProcessModel& process, int64_t ordinal) {
  const Device* device = process.device(ordinal);
  return device != nullptr && !process.names.string(device->uuid).empty();
}

}  // namespace

std::string owner_text(const Model& model, const Lane& lane, std::string_view owner,
                       int64_t time_ns) {
  std::string title = owner_title(owner);
  const ProcessModel& process = model.process_of(lane);
  if (owner != "other_processes" || !has_known_card(process, lane.device())) return title;
  const std::string card = card_of(process, lane.device());
  for (const Lane& other : model.lanes) {
    const ProcessModel& sibling = model.process_of(other);
    if (other.process == lane.process || time_ns < sibling.first_ns) continue;
    if (time_ns > model.end_of(sibling) || card_of(sibling, other.device()) != card) continue;
    return title + (process.info.rank >= 0 && sibling.info.rank >= 0 ? " (also ranks of this job)"
                                                                     : " (also of this trace)");
  }
  return title;
}

}  // namespace tidemark::view
