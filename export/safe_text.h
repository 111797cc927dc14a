// Text from a file, made safe to show. A trace may come from anybody, and its names may hold any
// bytes: escape sequences that change the terminal, or formulas that a spreadsheet would run.
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

// For a terminal: one line of valid UTF-8 that moves no cursor and changes no state. Control
// characters (C0, DEL, C1), line separators and characters that change the direction of writing are
// shown as \n, \x1b or \u202e; bytes that are not UTF-8 become U+FFFD.
std::string safe_text(std::string_view text);

// At most `columns` characters, the last three "..." if something was cut off. Never cuts inside a
// character.
std::string shortened(std::string_view text, size_t columns);
// The number of characters.
size_t text_columns(std::string_view text);

// Whether a spreadsheet would take the cell for a formula (CWE-1236).
bool looks_like_formula(std::string_view cell);

}  // namespace tidemark
