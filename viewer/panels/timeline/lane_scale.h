// The height of the plots: how many bytes the upper edge of a lane stands for.
#pragma once

#include <optional>

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// The limit of the allocator itself; 0: it has none.
uint64_t own_limit(const Model& model, const Lane& lane);
// The first event from which on the lane stayed within a limit, which may have been lowered: before
// it, more was reserved. The event count: it never did.
uint32_t within_limit_from(const Lane& lane, uint64_t limit);

// Enough for the lane's curves and for limits just above them, below the lane's name. What the card
// uses does not count, unless it is the only curve: other processes would flatten all others.
double lane_top(const Model& model, const Lane& lane, const TimelineOptions& options,
                const std::optional<Overlay>& overlay, float plot_px);

// One scale for all lanes, each drawn in `lane_px`.
double shared_top(const Model& model, const Selection& selection, const TimelineOptions& options,
                  float lane_px);

}  // namespace tidemark::view
