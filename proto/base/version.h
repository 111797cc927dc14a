// The version of tidemark; CMake hands it in from the project() line.
#pragma once

#include <string_view>

namespace tidemark {
inline constexpr std::string_view kVersion = TIDEMARK_VERSION;
}
