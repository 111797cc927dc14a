// The flight recorder: a trace that keeps only the last stretch of a recording (TIDEMARK_KEEP).
//
// The trace is one ordinary file at all times. While it grows, the window makes a cut at every
// eighth of its limit: it notes the end of the file, and encodes the state of the recording at that
// time (LiveState) in memory, as the state tables with which a recording of a running process
// begins. When the file reaches its limit, a shorter one is written next to it:
//
//   | dictionaries | summary curve | state at a cut | all blocks behind that cut |
//
// Blocks are copied as they are; nothing is decoded. The new file counts from the checkpoint that
// names its generation, and then takes the trace's name (ring_layout.h): a SIGKILL at any instant
// leaves one of the two, complete. Within the window every number is that of a full recording,
// since the state and the blocks behind it are the same rows; what is older is known by its stack
// and size, not by its time. A file may exceed its size limit by one block, and while it is
// replaced, its successor of at most three quarters of the limit exists next to it.
//
// A second limit, in time, works the same way: the oldest cut that is at least that old becomes the
// new beginning.
//
// Sealing copies the window into DIRECTORY/NAME/, where it stays, under the name of the trace; the
// recording goes on. All ranks of a job seal under one name, so DIRECTORY/NAME is a job like any
// other. See seal_board.h for how they learn of it.
//
// Used by the writer thread only. Nothing of it exists while TIDEMARK_KEEP is not set.
#pragma once

#include <limits.h>

#include <cstdint>

#include "injector/trace/live_state.h"
#include "injector/trace/trace_file.h"
#include "proto/base/byte_sink.h"
#include "proto/write/trace_writer.h"

namespace tidemark::injector {

// 0: no limit.
struct WindowLimits {
  uint64_t bytes = 0;
  int64_t ns = 0;
  uint64_t seal_above_bytes = 0;  // of a device's reserved memory
};

// The points of the summary curve. When they are too many, every two become one.
class SummaryCurve {
 public:
  explicit SummaryCurve(size_t most_points) noexcept : most_(most_points) {}

  // Called once per second; appends the new points to `trace` as well.
  void tick(int64_t now_ns, LiveState& state, TraceWriter& trace) noexcept;
  // The point of the interval so far, which is not over. It is in `trace` only.
  void add_unfinished(int64_t now_ns, const LiveState& state, TraceWriter& trace) const noexcept;
  void write(TraceWriter& out) const noexcept;

 private:
  void halve() noexcept;

  PageList<Summary> points_;
  size_t most_;
  uint32_t period_ = 1;  // in ticks
  uint32_t ticks_ = 0;
};

class Window {
 public:
  // `trace` writes to `file`, whose name is `trace_path`. All of them outlive this object.
  Window(const WindowLimits& limits, const char* trace_path, TraceFile& file,
         TraceWriter& trace) noexcept;

  void begin_round(int64_t now_ns) noexcept { state_.begin_round(now_ns); }
  void end_round() noexcept { state_.end_round(); }
  template <typename Row>
  void take(Row& row) noexcept {
    state_.take(row);
  }
  void take_string(uint32_t id, std::string_view text) noexcept { state_.take_string(id, text); }
  // Once per second. A point has the time up to which its rows are applied, so that those up to the
  // beginning of a window tell all that happened before it.
  void tick() noexcept {
    if (state_.time_ns() != 0) summary_.tick(state_.time_ns(), state_, trace_);
  }
  // Before the trace is copied in the middle of a second.
  void add_unfinished_point() noexcept {
    if (state_.time_ns() != 0) summary_.add_unfinished(state_.time_ns(), state_, trace_);
  }
  // Whether anything of the framework or of the driver was ever allocated.
  bool used_memory() const noexcept { return state_.used_memory(); }
  // Whether a device's reserved memory has passed the limit.
  bool passed_limit() noexcept;

  // The trace must be flushed for the functions below.

  bool cut_due(int64_t now_ns) const noexcept;
  // Whether no cut made so far would make the file clearly shorter.
  bool needs_fresh_cut() const noexcept;
  void cut(int64_t now_ns, const StateNames& names) noexcept;
  // `more_bytes`: about to be written.
  bool replacement_due(int64_t now_ns, uint64_t more_bytes) const noexcept;
  // Writes the shorter file and makes it the one that is written to. The caller then makes a
  // checkpoint and calls take_name().
  bool replace(int64_t now_ns, uint32_t generation) noexcept;
  void take_name() noexcept;

  // False with errno.
  bool seal(const char* name) noexcept;
  // Whether a window was sealed under this name, by this or an earlier recording of the process.
  bool has_sealed(const char* name) const noexcept;

  uint64_t memory_bytes() const noexcept;

 private:
  struct Cut {
    uint64_t offset;
    int64_t time_ns;
    uint8_t* state;  // frames, in pages
    size_t state_bytes;
  };
  static constexpr size_t kMostCuts = 16;
  static constexpr uint64_t kParts = 8;

  size_t choose_cut(int64_t now_ns) const noexcept;
  uint64_t size_from(const Cut& cut) const noexcept;
  bool copy_frame_at(uint64_t offset, TraceWriter& out) noexcept;
  bool copy_state(const Cut& cut, TraceWriter& out) noexcept;
  bool build(size_t chosen, TraceWriter& out, uint64_t (&offsets)[kMostCuts]) noexcept;
  void forget_cuts(size_t count) noexcept;
  bool sealed_path(const char* name, char (&path)[PATH_MAX]) const noexcept;
  bool write_sealed(const char* path) noexcept;

  WindowLimits limits_;
  const char* trace_path_;
  TraceFile& file_;
  TraceWriter& trace_;
  LiveState state_;
  SummaryCurve summary_;
  TraceFile old_;
  char next_path_[PATH_MAX + 8];
  PageArray<uint8_t> buffer_;  // one frame
  Cut cuts_[kMostCuts] = {};
  size_t cut_count_ = 0;
  uint64_t last_replaced_bytes_ = 0;  // size of the file when it was begun
  bool above_ = false;
};

}  // namespace tidemark::injector
