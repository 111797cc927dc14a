// Offsets in CPython's structures that a walk over a thread's own frames needs, per version (3.9 to
// 3.14).
//
// These are private structures, fixed within a minor version. From 3.13 on the interpreter
// publishes the offsets itself (_Py_DebugOffsets); for earlier versions they are listed here. Debug
// and free-threaded builds have other layouts and are not walked. A layout is checked against live
// objects before it is used (walk.h).
#pragma once

#include <cstdint>

namespace tidemark::injector {

// How positions in a code object are mapped to lines.
enum class LineTable : uint8_t {
  kLnotab,     // 3.9
  kRanges,     // 3.10, PEP 626
  kLocations,  // 3.11 and later, PEP 657
};

struct PythonLayout {
  uint16_t thread_frame;  // in the thread state: the innermost frame, or its holder
  int16_t frame_holder;   // ≥ 0: offset in the holder that thread_frame points to (3.11, 3.12)
  uint16_t frame_previous;
  uint16_t frame_code;
  uint16_t frame_position;  // a pointer to the instruction, or its index
  int16_t frame_owner;      // -1: none
  uint16_t frame_locals;    // the first local variable: the first argument
  bool position_is_number;  // 3.9: in bytes; 3.10: in units of two bytes
  uint16_t code_size;       // ob_size: units; 0: the version has none (3.9, 3.10)
  uint16_t code_first_line;
  uint16_t code_version;  // a number of its own; 0: the version has none, or its place is not known
  uint16_t code_filename;
  uint16_t code_name;  // the qualified name if there is one
  uint16_t code_lines;
  uint16_t code_instructions;  // start of the code inside the object; 0: not inside
  uint16_t text_data;          // of an ASCII string, from the start of the object
  uint16_t wide_text_data;     // of any other string
  LineTable lines;
  uint8_t minor;
};

// False if the version is not known. `runtime` is the address of _PyRuntime.
bool find_python_layout(int major, int minor, const void* runtime, PythonLayout& layout) noexcept;

}  // namespace tidemark::injector
