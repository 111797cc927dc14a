// The lines of a ledger for people, with what the trace knows of other processes on the card.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

// "other processes (also ranks of this job)" where another process of the trace uses the card of
// the lane at this time; otherwise as owner_title().
std::string owner_text(const Model& model, const Lane& lane, std::string_view owner,
                       int64_t time_ns);

}  // namespace tidemark::view
