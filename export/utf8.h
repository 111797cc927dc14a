// UTF-8 of names in traces, which may hold any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tidemark {

// Length of the UTF-8 character at the front of a text that is not empty, 0 if it is not valid.
size_t utf8_length(std::string_view text);

// The text as valid UTF-8: invalid bytes become U+FFFD.
std::string utf8_text(std::string_view text);

}  // namespace tidemark
