// Whether several requests of a program that serves use one block: the cache of a conversation.
#pragma once

#include <cstdint>
#include <string_view>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Whether the function that makes the blocks of a stack is called more often than it makes one,
// so that other calls use one that is there. What repeats within a call, for each token, does not
// tell.
bool requests_share_blocks(const DeviceEvidence& d, uint32_t stack);

// When such a block can be freed.
inline constexpr std::string_view kNothingUsesIt =
    "nothing uses it any more (its conversation or session is closed; several requests use one "
    "block)";

}  // namespace tidemark
