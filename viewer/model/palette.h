// Colours that people with any kind of colour vision can tell apart: Okabe and Ito's eight for
// kinds, viridis for amounts.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/rows.h"

namespace tidemark::view {

struct Rgb {
  uint8_t r = 0;
  uint8_t g = 0;
  uint8_t b = 0;

  friend bool operator==(const Rgb&, const Rgb&) = default;
};

enum class ColourBy : uint8_t { kCategory, kStack, kAge, kSize, kOwner, kModule };
inline constexpr int kColourings = 6;
const char* colouring_name(ColourBy by);

Rgb category_colour(Category category);
// The same stack has the same colour in every panel. 0 (no stack) is grey.
Rgb stack_colour(uint32_t stack);
// Colours of a list, of which neighbours differ.
Rgb colour_in_order(uint32_t index);
// Of the library that allocated from the driver, by name. Works for any other name, too.
Rgb owner_colour(std::string_view owner);
// Along viridis, 0 to 1.
Rgb viridis(double share);
Rgb age_colour(int64_t age_ns, int64_t span_ns);
Rgb size_colour(uint64_t bytes);

// Towards white (amount > 0) or black (amount < 0), by -1 to 1.
Rgb shade(Rgb colour, double amount);
// Whether black text reads better on it than white.
bool is_light(Rgb colour);

}  // namespace tidemark::view
