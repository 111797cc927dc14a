#include "viewer/model/frame_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "viewer/model/kernel_name.h"

namespace tidemark::view {

const std::string& FrameText::kernel(uint32_t name) const {
  const auto [it, fresh] = kept_->kernels.try_emplace(name);
  if (fresh) it->second = kernel_name(names_->string(name));
  return it->second;
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' && out.ends_with(' ')) continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

bool FrameText::is_own_code(uint32_t frame) const {
  const std::string_view file = names_->string(names_->frame(frame).file);
  return file.find(".py") != std::string_view::npos &&
         file.find("site-packages/") == std::string_view::npos &&
         file.find("dist-packages/") == std::string_view::npos &&
         file.find("lib/python3") == std::string_view::npos;
}

const std::string& FrameText::frame(uint32_t frame) const {
  const auto [it, fresh] = kept_->frames.try_emplace(frame);
  if (!fresh) return it->second;
  const Frame& f = names_->frame(frame);
  const std::string_view function = names_->string(f.function);
  std::string_view file = names_->string(f.file);
  file = file.substr(file.rfind('/') + 1);
  if (function.empty() || file.empty()) {
    it->second = names_->frame_text(frame);
    if (it->second.empty()) it->second = "??";
  } else if (f.line > 0) {
    it->second = fmt::format("{}  {}:{}", function, file, f.line);
  } else {
    it->second = fmt::format("{}  {}", function, file);
  }
  return it->second;
}

const std::string& FrameText::line(uint32_t stack) const {
  const auto [it, fresh] = kept_->lines.try_emplace(stack);
  if (fresh) it->second = line_of(stack).text;
  return it->second;
}

FrameText::Line FrameText::line_of(uint32_t stack) const {
  const std::vector<uint32_t> frames = names_->frames_of(stack);
  if (frames.empty()) return {std::string(no_stack_), ""};
  const std::vector<std::string> lines = names_->stack_text(stack);
  const std::string headline = headline_of(lines);
  const auto chosen =
      static_cast<size_t>(std::find(lines.begin(), lines.end(), headline) - lines.begin());
  if (chosen == lines.size())
    return {headline, ""};  // a node of the backward pass: no frame's line
  const uint32_t shown = frames[std::min(chosen, frames.size() - 1)];
  if (!is_own_code(shown)) return {frame(shown), ""};
  // The library function that allocated it tells the blocks of one line apart.
  const auto inner = static_cast<size_t>(innermost_worth_showing(lines) - lines.data());
  if (inner >= std::min(chosen, frames.size())) return {frame(shown), ""};
  const std::string named = inner_line_of(lines);
  return {frame(shown), named == lines[inner]
                            ? std::string(names_->string(names_->frame(frames[inner]).function))
                            : named};
}

const std::string& FrameText::headline(uint32_t stack) const {
  const auto [it, fresh] = kept_->headlines.try_emplace(stack);
  if (!fresh) return it->second;
  const Line line = line_of(stack);
  it->second =
      line.function.empty() ? line.text : fmt::format("{}  in {}", line.text, line.function);
  return it->second;
}

bool is_allocator_frame(const std::string& line) {
  // The report skips such a line where another follows.
  const std::vector<std::string> lines = {line, "caller"};
  return innermost_worth_showing(lines) != lines.data();
}

std::string_view FrameText::headline(uint32_t stack, bool before_recording) const {
  if (stack == 0 && before_recording) return kBeforeRecordingText;
  return headline(stack);
}

const std::string& FrameText::searchable(uint32_t stack) const {
  const auto [it, fresh] = kept_->searchable.try_emplace(stack);
  if (!fresh) return it->second;
  for (const uint32_t f : names_->frames_of(stack)) {
    it->second += folded(names_->frame_text(f));
    it->second += '\n';
  }
  return it->second;
}

bool FrameText::matches(uint32_t stack, std::string_view text) const {
  return text.empty() || searchable(stack).find(text) != std::string::npos;
}

}  // namespace tidemark::view
