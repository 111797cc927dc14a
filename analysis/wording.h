// How numbers and kinds are written in every output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

enum class StepSource : uint8_t;
enum class PhaseKind : uint8_t;
enum class LimitSource : uint8_t;

std::string_view category_name(Category category);
std::string_view step_source_name(StepSource source);
std::string_view phase_name(PhaseKind kind);
// In a sentence: "out of memory in validation".
std::string_view phase_text(PhaseKind kind);
std::string_view limit_source_name(LimitSource source);

// "313.2 MiB", "512 B".
std::string size_text(uint64_t bytes);
// Both sizes, with as many digits as it takes to see which is larger: "4.00 MiB", "4.02 MiB".
std::pair<std::string, std::string> size_texts(uint64_t one, uint64_t other);
// "328,459,776".
std::string grouped(uint64_t number);
// "1.234 s", "87 ms", "12 us"; signs are kept.
std::string duration_text(int64_t ns);
// "73.5 %" of `whole`, "-" when there is no whole.
std::string percent_text(uint64_t part, uint64_t whole);
// "1 block", "12 blocks".
std::string counted(uint64_t number, std::string_view singular);
// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& parts);

}  // namespace tidemark
