// The request that failed at the cursor, above the rows of the memory map: what it asked for, as a
// bar in which the largest hole that it could use is hatched, and why that was not enough.
#pragma once

#include <imgui.h>

#include <optional>
#include <string>

#include "analysis/insight/fragmentation.h"
#include "viewer/model/trace/cursor.h"

namespace tidemark::view {

struct FailedRequest {
  const OomPoint* oom = nullptr;
  UsableHoles usable;  // none where the driver itself was asked
};

// Of the memory that is shown; none: no request failed there.
std::optional<FailedRequest> failed_request(const Model& model, const Cursor& cursor,
                                            const Moment& moment);

// "asked for 512.0 MiB: the largest hole it could use is 300.0 MiB; ...".
std::string why_it_failed(const Model& model, const Lane& lane, const FailedRequest& request,
                          uint64_t largest_hole_bytes);

// `width`: of the bar, which begins at `label`. True: its hole was clicked.
bool draw_failed_request(const FailedRequest& request, float label, float width, float height);

}  // namespace tidemark::view
