// Appending to a trace in place: its frames stay where they are, only index and trailer are new.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/byte_sink.h"
#include "proto/read/trace_reader.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

// Lets the first bytes pass unwritten: they are in the file already. A TraceWriter in front of it
// can go through the old frames for its index without moving a byte.
class TailSink final : public ByteSink {
 public:
  TailSink(ByteSink& tail, uint64_t present) : tail_(tail), present_(present) {}
  bool write(std::span<const uint8_t> bytes) noexcept override;

 private:
  ByteSink& tail_;
  uint64_t present_;
};

struct SoundFrames {
  std::vector<FrameHeader> headers;
  uint64_t end = 0;  // behind the last of them: where an index may begin
};

// The frames of a file that lie one behind the other from its beginning; nothing when there is
// damage or a gap.
std::optional<SoundFrames> find_sound_frames(const TraceReader& reader);

// Tells the writer of the frames that are there. Its sink must let exactly these pass.
void pass_over(TraceWriter& trace, const std::vector<FrameHeader>& frames);

}  // namespace tidemark
