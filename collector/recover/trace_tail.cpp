#include "collector/recover/trace_tail.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/read/trace_appending.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

namespace {

// The frames of a file, if it contains nothing else.
std::optional<std::vector<FrameHeader>> sound_frames(const std::string& path, uint64_t size) {
  const Result<TraceReader> reader = TraceReader::open(path);
  if (!reader) return std::nullopt;
  std::optional<SoundFrames> sound = find_sound_frames(*reader);
  if (!sound || sound->end != size) return std::nullopt;
  return std::move(sound->headers);
}

class RingAppender {
 public:
  RingAppender(TraceWriter& trace, RingReader& ring, RecoveryReport& report)
      : trace_(trace), ring_(ring), report_(report) {
    next_string_ = ring.header().strings_used;
    last_ns_ = ring.header().heartbeat_ns;
  }

  void append() {
    ring_.for_each(
        [this]<typename Row>(const Row& row) {
          if constexpr (std::is_same_v<Row, DriverEvent> || std::is_same_v<Row, FrameworkEvent>) {
            last_ns_ = std::max(last_ns_, row.time_ns);
          }
          trace_.append(row);
          ++report_.rows;
        },
        [this](uint32_t id, std::string_view text) {
          next_string_ = std::max(next_string_, id);
          trace_.append_string(id, text);
          ++report_.rows;
        });
    report_.damaged_chunks = ring_.damaged_chunks();
    append_health();
  }

 private:
  void append_health() {
    say(HealthKind::kRecovered, report_.rows, "the process ended without finishing its trace");
    for (size_t kind = 0; kind < ring::kKinds; ++kind) {
      const uint64_t reported = ring_.checkpoint().dropped_reported[kind];
      const uint64_t dropped = ring_.header().dropped[kind];
      if (dropped <= reported) continue;
      report_.dropped += dropped - reported;
      say(HealthKind::kEventsDropped, dropped - reported, table_name(static_cast<BlockKind>(kind)));
    }
    if (const uint32_t error = ring_.header().write_error; error != 0) {
      say(HealthKind::kBytesUnwritten, ring_.pending_bytes(),
          std::string("writing stopped while the process was running: ") +
              std::strerror(static_cast<int>(error)));
    }
    if (report_.missing_bytes != 0) {
      say(HealthKind::kInputSkipped, report_.missing_bytes, "bytes missing from the trace file");
    }
    if (report_.damaged_chunks != 0) {
      say(HealthKind::kInputSkipped, report_.damaged_chunks, "damaged chunks of the ring");
    }
  }

  void say(HealthKind kind, uint64_t value, std::string_view detail) {
    trace_.append_string(++next_string_, detail);
    trace_.append(Health{last_ns_, value, next_string_, kind});
  }

  TraceWriter& trace_;
  RingReader& ring_;
  RecoveryReport& report_;
  uint32_t next_string_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace

Status append_ring(int fd, uint64_t keep, RingReader& ring, RecoveryReport& report) {
  const auto fail = [&](int error) {
    [[maybe_unused]] const int failed = ::ftruncate(fd, static_cast<off_t>(keep));
    return Error{report.path + ": " + std::strerror(error)};
  };
  if (keep < sizeof(FileHeader)) keep = 0;  // not even the file header is complete
  if (::ftruncate(fd, static_cast<off_t>(keep)) != 0 ||
      ::lseek(fd, static_cast<off_t>(keep), SEEK_SET) < 0) {
    return Error{report.path + ": " + std::strerror(errno)};
  }
  const auto frames = keep == 0 ? std::vector<FrameHeader>{} : sound_frames(report.path, keep);
  FdSink file(fd);
  TailSink sink(file, frames ? keep : sizeof(FileHeader));
  TraceWriter trace(sink);
  if (frames) pass_over(trace, *frames);
  RingAppender(trace, ring, report).append();
  if (frames) {
    trace.finish();
  } else {
    trace.flush();
  }
  if (trace.failed()) return fail(trace.error_number());
  if (::fdatasync(fd) != 0) return fail(errno);
  return {};
}

}  // namespace tidemark
