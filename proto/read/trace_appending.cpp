#include "proto/read/trace_appending.h"

#include <algorithm>

namespace tidemark {

bool TailSink::write(std::span<const uint8_t> bytes) noexcept {
  const auto skip = static_cast<size_t>(std::min<uint64_t>(present_, bytes.size()));
  present_ -= skip;
  return tail_.write(bytes.subspan(skip));
}

std::optional<SoundFrames> find_sound_frames(const TraceReader& reader) {
  if (reader.damage().any()) return std::nullopt;
  std::vector<BlockRef> blocks(reader.blocks().begin(), reader.blocks().end());
  std::sort(blocks.begin(), blocks.end(),
            [](const BlockRef& a, const BlockRef& b) { return a.offset < b.offset; });
  SoundFrames sound;
  sound.headers.resize(blocks.size());
  sound.end = sizeof(FileHeader);
  for (size_t i = 0; i < sound.headers.size(); ++i) {
    const BlockRef& block = blocks[i];
    FrameHeader& header = sound.headers[i];
    if (block.offset != sound.end || !reader.read_at(sound.end, &header, sizeof header) ||
        header.stored_bytes != block.stored_bytes) {
      return std::nullopt;
    }
    sound.end += sizeof(FrameHeader) + block.stored_bytes;
  }
  return sound;
}

void pass_over(TraceWriter& trace, const std::vector<FrameHeader>& frames) {
  uint32_t longest = 0;
  for (const FrameHeader& frame : frames) longest = std::max(longest, frame.stored_bytes);
  const std::vector<uint8_t> unread(longest);
  for (const FrameHeader& frame : frames) {
    trace.copy_frame(frame, std::span(unread).first(frame.stored_bytes), frame.process);
  }
}

}  // namespace tidemark
