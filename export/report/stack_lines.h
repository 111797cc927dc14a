// Which line of a stack tells a person most.
#pragma once

#include <string>
#include <vector>

namespace tidemark {

// The innermost line of the user's own code, else the backward function, else the innermost line.
std::string headline_of(const std::vector<std::string>& frames);

// The innermost frame that is not the allocator's own; null when there are no frames.
const std::string* innermost_worth_showing(const std::vector<std::string>& frames);

}  // namespace tidemark
