// Reads function, file and line of a code object without calling the interpreter.
//
// Only for a code object whose frame is active on the calling thread: that keeps it alive. No
// reference is counted and nothing is written, so the GIL is not needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/python/runtime.h"

namespace tidemark::injector {

// As UTF-8 in `buffer`, truncated to fit. Empty if the object is not a string.
std::string_view read_python_text(const PythonRuntime& python, const void* text, char* buffer,
                                  size_t capacity) noexcept;

// The line of the instruction with this index (in units of two bytes); 0: none.
int64_t python_line(const PythonRuntime& python, const void* code, uint32_t unit) noexcept;

// The three encodings of line numbers, for python_line and its tests. `size` bytes at `table`.
int64_t line_from_lnotab(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept;
int64_t line_from_ranges(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept;
int64_t line_from_locations(const uint8_t* table, size_t size, int64_t first_line,
                            uint32_t unit) noexcept;

}  // namespace tidemark::injector
