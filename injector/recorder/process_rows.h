// The Process row and the Setting rows: what identifies this process, and the settings that explain
// its memory use.
#pragma once

#include <cstdint>
#include <string_view>

#include "injector/process/options.h"

namespace tidemark::injector {

// The Process row and the Setting rows of this process.
void record_process(const Options& options, int64_t start_ns) noexcept;

// The Process row again, with what only the driver knows. Task thread.
void record_driver_version(uint32_t version) noexcept;

// A Setting row about tidemark itself (versions, sources).
void record_tool_setting(std::string_view key, std::string_view value) noexcept;

}  // namespace tidemark::injector
