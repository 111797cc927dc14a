// The version of tidemark; CMake defines it from the project() line.
#pragma once

#include <string_view>

namespace tidemark {
inline constexpr std::string_view kVersion = TIDEMARK_VERSION;
}
