// Names for people: ids as words, streams and pools, and the lines of a ledger with their
// explanations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "analysis/steps/steps.h"

namespace tidemark::view {

// "optimizer_state" as people write it.
std::string in_words(std::string_view id);
// "default stream"; "stream 0x55fb5c2a1900" by its handle; kernels know only the number that the
// driver's profiler gives a stream: "stream 7".
std::string stream_text(uint64_t stream);
// With the private pool of the memory, if it is of one: "private pool 2, default stream".
std::string stream_text(uint64_t stream, uint32_t pool);
// "torch.cached" -> "PyTorch, cached"; names of libraries stay as they are.
std::string owner_title(std::string_view owner);
// One sentence.
std::string_view owner_meaning(std::string_view owner);

// "detected from the program's loop, 83 % confidence"; empty: the program marked its steps, or
// there are none.
std::string how_steps_were_detected(const Steps& steps);

}  // namespace tidemark::view
