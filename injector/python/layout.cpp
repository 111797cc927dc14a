#include "injector/python/layout.h"

#include <cstring>

namespace tidemark::injector {
namespace {

// clang-format off
//                       thread holder prev code pos owner locals number size line vers file name lines instr text wide
constexpr PythonLayout k39  = {24, -1, 24, 32, 104, -1, 360, true,   0, 40,  0, 104, 112, 120,   0, 48, 72, LineTable::kLnotab, 9};
constexpr PythonLayout k310 = {24, -1, 24, 32,  96, -1, 352, true,   0, 40,  0, 104, 112, 120,   0, 48, 72, LineTable::kRanges, 10};
constexpr PythonLayout k311 = {56,  8, 48, 32,  56, 69,  72, false, 16, 72,  0, 112, 128, 136, 184, 48, 72, LineTable::kLocations, 11};
constexpr PythonLayout k312 = {56,  0,  8,  0,  56, 70,  72, false, 16, 68, 92, 112, 128, 136, 192, 40, 56, LineTable::kLocations, 12};
// clang-format on

// The interpreter's description of itself, as words: magic, version, free_threaded, then groups of
// offsets. The groups before the thread state grew in 3.14.
struct Described {
  uint32_t thread_state;  // index of the first word of the group, which is its size
  uint32_t frame_words;   // number of words in the frame's group
};
constexpr Described kDescribed313 = {3 + 3 + 13, 6};
constexpr Described kDescribed314 = {3 + 3 + 16, 8};
constexpr uint32_t kThreadWords = 9;
constexpr char kCookie[8] = {'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'};

bool read_described(int minor, const void* runtime, PythonLayout& layout) {
  if (runtime == nullptr || std::memcmp(runtime, kCookie, sizeof kCookie) != 0) return false;
  const auto* words = static_cast<const uint64_t*>(runtime);
  const uint64_t version = words[1];
  if (version >> 24 != 3 || ((version >> 16) & 0xff) != static_cast<uint64_t>(minor)) return false;
  if (words[2] != 0) return false;  // free-threaded
  const Described& described = minor == 13 ? kDescribed313 : kDescribed314;
  const uint64_t* const thread = words + described.thread_state;
  const uint64_t* const frame = thread + kThreadWords;
  const uint64_t* const code = frame + described.frame_words;
  const auto offset = [](uint64_t word) { return static_cast<uint16_t>(word); };
  for (const uint64_t* word = thread; word != code + 10; ++word) {
    if (*word > 0x4000) return false;  // not a plausible size or offset
  }
  layout = PythonLayout();
  layout.thread_frame = offset(thread[4]);
  layout.frame_holder = -1;
  layout.frame_previous = offset(frame[1]);
  layout.frame_code = offset(frame[2]);
  layout.frame_position = offset(frame[3]);
  layout.frame_locals = offset(frame[4]);
  layout.frame_owner = static_cast<int16_t>(frame[5]);
  layout.code_size = 16;
  layout.code_filename = offset(code[1]);
  layout.code_name = offset(code[3]);
  layout.code_lines = offset(code[4]);
  layout.code_first_line = offset(code[5]);
  // Not described. Where it is in 3.12 and 3.13, if the line before it is where it is there.
  layout.code_version = minor == 13 && layout.code_first_line == k312.code_first_line
                            ? k312.code_version
                            : uint16_t{0};
  layout.code_instructions = offset(code[9]);
  layout.text_data = 40;
  layout.wide_text_data = 56;
  layout.lines = LineTable::kLocations;
  layout.minor = static_cast<uint8_t>(minor);
  return true;
}

}  // namespace

bool find_python_layout(int major, int minor, const void* runtime, PythonLayout& layout) noexcept {
  if (major != 3) return false;
  switch (minor) {
    case 9:
      layout = k39;
      return true;
    case 10:
      layout = k310;
      return true;
    case 11:
      layout = k311;
      return true;
    case 12:
      layout = k312;
      return true;
    case 13:
    case 14:
      return read_described(minor, runtime, layout);
    default:
      return false;
  }
}

}  // namespace tidemark::injector
