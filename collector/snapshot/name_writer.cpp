#include "collector/snapshot/name_writer.h"

#include <fmt/format.h>

namespace tidemark {

uint32_t NameWriter::string(std::string_view text) {
  if (text.empty()) return 0;
  if (const auto it = strings_.find(text); it != strings_.end()) return it->second;
  const auto id = static_cast<uint32_t>(strings_.size() + 1);
  strings_.emplace(texts_.emplace_back(text), id);
  writer_.append_string(id, text);
  return id;
}

uint32_t NameWriter::frame(Frame frame) {
  const std::string key =
      fmt::format("{}.{}.{}.{}.{}.{}.{}", frame.function, frame.file, frame.line, frame.module,
                  frame.offset, frame.detail, static_cast<int>(frame.kind));
  const auto [it, is_new] = frames_.try_emplace(key, static_cast<uint32_t>(frames_.size() + 1));
  if (is_new) {
    frame.id = it->second;
    writer_.append(frame);
  }
  return it->second;
}

uint32_t NameWriter::stack(uint32_t parent, uint32_t frame) {
  const uint64_t key = (uint64_t{parent} << 32) | frame;
  if (const uint32_t known = stacks_.find(key); known != 0) return known;
  const auto id = static_cast<uint32_t>(stacks_.size() + 1);
  stacks_.set(key, id);
  writer_.append(Stack{id, parent, frame});
  return id;
}

uint32_t NameWriter::pool(uint64_t first, uint64_t second) {
  if (first == 0 && second == 0) return 0;
  const auto [it, is_new] = pools_.try_emplace(fmt::format("{}.{}", first, second),
                                               static_cast<uint32_t>(pools_.size() + 1));
  if (is_new) writer_.append(Pool{it->second, first, second, 0});
  return it->second;
}

}  // namespace tidemark
