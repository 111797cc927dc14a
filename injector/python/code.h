// Reads a code object without the interpreter's help: function, file, line.
//
// Only of a code object whose frame is active on the calling thread: that keeps it alive. Nothing
// is counted, nothing is written, so the GIL is not needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/python/runtime.h"

namespace tidemark::injector {

// As UTF-8 in `buffer`, cut where it ends. Empty when the object is not a string.
std::string_view read_python_text(const PythonRuntime& python, const void* text, char* buffer,
                                  size_t capacity) noexcept;

// The line of the instruction with this number (in units of two bytes); 0: none.
int64_t python_line(const PythonRuntime& python, const void* code, uint32_t unit) noexcept;

// The three encodings of lines, for python_line and its tests. `size` bytes at `table`.
int64_t line_from_lnotab(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept;
int64_t line_from_ranges(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept;
int64_t line_from_locations(const uint8_t* table, size_t size, int64_t first_line,
                            uint32_t unit) noexcept;

}  // namespace tidemark::injector
