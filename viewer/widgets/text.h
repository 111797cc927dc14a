// Text that fits, explains itself and lines up.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>

#include "viewer/model/palette.h"

namespace tidemark::view {

void text(std::string_view text);
void text_dim(std::string_view text);
void text_in_colour(Rgb colour, std::string_view text);
// Wrapped at the end of the window.
void text_wrapped(std::string_view text);
void text_right(std::string_view text);

// Cut with an ellipsis to at most `width` pixels.
std::string fitted(std::string_view text, float width);
float width_of(std::string_view text);
// "optimizer_state" as people write it.
std::string in_words(std::string_view id);

// A tooltip for the item before, in a box of comfortable width.
void explain(const char* text);

// On the same line when `width` still fits there, else on the next.
void flow(float width);

// "label   value" with the label dim and the value at a common column.
void fact(const char* label, std::string_view value, float column);

// A small filled square, as in a legend.
void swatch(Rgb colour);

}  // namespace tidemark::view
