// Appends to a trace in place: its frames stay where they are, only index and trailer are new.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/byte_sink.h"
#include "proto/read/trace_reader.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

// Drops the first `present` bytes, which the file has already, and passes the rest on. A
// TraceWriter on top of it can index the old frames without writing them again.
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
  uint64_t end = 0;  // after the last of them: where an index may begin
};

// The frames of a file that follow one another from its beginning without a gap; nothing if there
// is damage or a gap.
std::optional<SoundFrames> find_sound_frames(const TraceReader& reader);

// Adds the existing frames to the index of the writer. Its sink must drop exactly these.
void pass_over(TraceWriter& trace, const std::vector<FrameHeader>& frames);

}  // namespace tidemark
