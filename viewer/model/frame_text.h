// Stacks in words, short enough for a cell or a bar.
//
// Its answers depend on the names alone and never change. It keeps each text it made, so that a
// frame does not make it again; the kept texts are why an object belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "analysis/names/dictionary.h"

namespace tidemark::view {

inline constexpr std::string_view kBeforeRecordingText = "(allocated before the recording began)";
inline constexpr std::string_view kPendingText = "pending free";
inline constexpr std::string_view kNoStackText = "(no stack recorded)";
inline constexpr std::string_view kNoPythonStackText =
    "(no Python stack: backward pass or another C++ thread)";

class FrameText {
 public:
  // `no_stack`: what a block without one is, a constant.
  FrameText(const Dictionary& names, std::string_view no_stack)
      : names_(&names), no_stack_(no_stack), kept_(std::make_unique<Kept>()) {}

  std::string_view no_stack() const { return no_stack_; }

  // "function  file.py:12": the file without its folders.
  const std::string& frame(uint32_t frame) const;
  // The line that the report names: the innermost of the user's own code, else the backward
  // function, else the innermost outside the allocator.
  const std::string& line(uint32_t stack) const;
  // The same; with own code, also the innermost function outside the allocator.
  const std::string& headline(uint32_t stack) const;
  std::string_view headline(uint32_t stack, bool before_recording) const;
  // Whether any frame of the stack contains the text, ignoring case. An empty text matches all.
  bool matches(uint32_t stack, std::string_view wanted) const;

  // The short name of a kernel (a string).
  const std::string& kernel(uint32_t name) const;

  const Dictionary& names() const { return *names_; }
  // Not inside installed packages, and not native code.
  bool is_own_code(uint32_t frame) const;

 private:
  struct Kept {
    std::unordered_map<uint32_t, std::string> frames;
    std::unordered_map<uint32_t, std::string> lines;
    std::unordered_map<uint32_t, std::string> headlines;
    std::unordered_map<uint32_t, std::string> searchable;
    std::unordered_map<uint32_t, std::string> kernels;
  };

  struct Line {
    std::string text;
    std::string function;  // of a library, in which it allocated
  };

  Line line_of(uint32_t stack) const;
  const std::string& searchable(uint32_t stack) const;

  const Dictionary* names_;
  std::string_view no_stack_;
  std::unique_ptr<Kept> kept_;
};

// In lower case, and with one space where more are drawn: what searches compare.
std::string folded(std::string_view text);

// A frame of the allocator or of the unwinder, which every stack begins with.
bool is_allocator_frame(const std::string& line);

}  // namespace tidemark::view
