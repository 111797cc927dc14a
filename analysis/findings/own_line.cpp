#include "analysis/findings/own_line.h"

#include <string>

#include "analysis/names/stack_lines.h"

namespace tidemark {

std::optional<uint32_t> own_line(const Dictionary& names,
                                 const std::unordered_map<uint32_t, LineShare>& stacks,
                                 uint32_t stack) {
  std::unordered_map<uint32_t, LineShare> frames;
  for (const auto& [id, share] : stacks) {
    for (const uint32_t frame : names.frames_of(id)) {
      frames[frame].own += share.own;
      frames[frame].others += share.others;
    }
  }
  for (uint32_t id = stack; id != 0; id = names.stack(id).parent) {
    const LineShare& share = frames[names.stack(id).frame];
    if (share.others >= share.own / 4) continue;
    const std::string line = headline_of(names.stack_text(id));
    if (line != headline_of(names.stack_text(names.stack(id).parent))) return id;  // of the user
  }
  return std::nullopt;
}

}  // namespace tidemark
