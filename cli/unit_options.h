// Options that take a size or a duration (proto/base/units.h). The error names the option.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/base/result.h"

namespace tidemark::cli {

Result<uint64_t> parse_size(const std::string& option, const std::string& text);
// The same, of a card or of a peak: refuses a number without a unit that can only be one of GiB.
Result<uint64_t> parse_memory(const std::string& option, const std::string& text);
// The same, of --card; must be greater than 0.
Result<uint64_t> parse_card(const std::string& text);

// Must be greater than 0.
Result<std::chrono::milliseconds> parse_duration(const std::string& option,
                                                 const std::string& text);

// Of --keep: a duration, a size, or both, separated by a comma.
Status check_keep(const std::string& text);

// --overhead, of the commands that record, and what is wrong with its value.
void add_overhead(CLI::App& command, std::string& text);
std::optional<Error> overhead_error(const std::string& text);

}  // namespace tidemark::cli
