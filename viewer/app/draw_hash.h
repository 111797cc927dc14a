// Whether two frames look the same, without drawing them.
#pragma once

#include <imgui.h>

#include <cstdint>

namespace tidemark::view {

// Of everything that ImGui would send to the graphics card.
uint64_t hash_of(const ImDrawData& data);

}  // namespace tidemark::view
