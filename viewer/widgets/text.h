// Text that is cut to fit, explained by tooltips and aligned.
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
// With line breaks, so that no line is wider than `width`. Breaks are at spaces only, and not
// between a number and its unit; a word that is wider than a line is cut.
std::string wrapped(std::string_view text, float width);
void text_right(std::string_view text);

// Cut with an ellipsis to at most `width` pixels.
std::string fitted(std::string_view text, float width);
// The same, but cut in the middle: for names that differ at their ends.
std::string fitted_ends(std::string_view text, float width);
// The same for "function  file.py:12": the function is cut, so that the place stays.
std::string fitted_line(std::string_view text, float width);
float width_of(std::string_view text);

// A tooltip for the previous item, wrapped at a readable width.
void explain(const char* text);

// The next item goes on the same line if `width` still fits there.
void flow(float width);

// "label   value", with the label dim and the values aligned at `column`.
void fact(const char* label, std::string_view value, float column);

// A small filled square, as in a legend.
void swatch(Rgb colour);
// Viridis from its dark to its bright end, which have these names.
void colour_scale(const char* dark, const char* bright);

}  // namespace tidemark::view
