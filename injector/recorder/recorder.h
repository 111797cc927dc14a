// The path from an event to disk inside a recorded process.
//
//   any thread ── record() ──▶ its chunk of the ring ──▶ writer thread ──▶ TraceWriter ──▶ .tmk
//
// Every entry point is noexcept, safe on any thread and in a signal handler (a call that interrupts
// another recorder call of the same thread is dropped and counted), and does nothing while the
// recorder is off. Recording takes no lock, allocates nothing and makes no system call, except when
// a thread records for the first time and, rarely, to wake the writer.
//
// off ─ start() ─▶ on ─ stop() ─▶ off; after a failed start the recorder is disabled, unless a
// person asks again (RecorderOptions::again). In a forked child the recorder is off; a child that
// calls start() gets its own files.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "injector/process/now.h"  // now_ns, the time of every row
#include "injector/recorder/thread_writer.h"
#include "proto/ring_layout.h"
#include "proto/tables.h"

namespace tidemark::injector {

struct RecorderOptions {
  const char* directory = nullptr;  // nullptr or "": ./tidemark-trace, shared by all ranks
  // Where the ring goes, with a link to it in `directory`. nullptr or "": into `directory`, or, if
  // that is on a network file system, onto this node.
  const char* ring_directory = nullptr;
  int64_t rank = -1;        // -1: none; part of the file's name
  uint32_t buffer_mb = 64;  // clamped to 4 … 4096
  uint32_t drain_period_ms = 50;
  uint32_t flush_period_ms = 1000;
  bool again = false;  // requested by a person: try even after a failed start
  // A limited window (window.h); 0: no limit.
  uint64_t keep_bytes = 0;
  int64_t keep_ns = 0;
  uint64_t seal_above_bytes = 0;  // seals when the reserved memory of a device exceeds this; 0: never
  int seal_signal = 0;            // seals when the process receives it; 0: none
  const char* job = nullptr;      // ranks with the same id seal together

  bool keeps_window() const noexcept { return keep_bytes != 0 || keep_ns != 0; }
};

struct SealRequest {
  const char* name = nullptr;
  bool together = false;  // so do the other ranks of the job
  bool only_if_used = false;  // not if the process has used no GPU memory
  int64_t asked_ns = 0;   // a window of this name that was sealed since then is the one asked for
};

enum class SealOutcome : uint8_t {
  kSealed,
  kNoWindow,  // the recording is off or keeps everything
  kBadName,
  kTaken,   // there is a window of that name, which was sealed earlier
  kUnused,  // there is nothing to seal (SealRequest::only_if_used)
  kBusy,    // another request is being carried out
  kFailed,  // the file could not be written
  kLate,    // not finished in time; it still may be
};

// The result of a recording.
struct RecordingEnd {
  uint64_t rows = 0;      // in the trace
  uint64_t dropped = 0;   // lost because the ring or a table was full
  bool finished = false;  // false: the trace needs recovery
};

// What a recording costs and loses, so far.
struct RecordingCost {
  uint64_t lost_rows = 0;
  uint64_t callbacks_ns = 0;  // time that the host's threads spent in our callbacks and hooks
  uint64_t writer_ns = 0;     // CPU time of the writer thread; at most a second old
  uint64_t host_bytes = 0;    // memory of the recorder; likewise
};

// What identifies a frame. Native: module and offset. Python: function, file and line.
struct FrameKey {
  uint64_t offset = 0;
  int64_t line = 0;
  uint32_t function = 0;  // string
  uint32_t file = 0;      // string
  uint32_t module = 0;
  FrameKind kind = FrameKind::kNone;
};

inline constexpr size_t kMaxStackFrames = 256;  // deeper stacks lose their outermost frames

class Recorder {
 public:
  // True when the recorder is on afterwards, including when it already was. A failure is reported
  // once on stderr.
  bool start(const RecorderOptions& options) noexcept;

  // Runs the finish hooks, writes everything that was committed, finishes the trace and removes the
  // ring. Waits for the writer for a bounded time and leaves the rest to recovery. Called
  // automatically at exit(). Afterwards all threads of the recorder have ended or are about to, its
  // files are closed and its memory is freed.
  RecordingEnd stop() noexcept;

  // When it returns true, everything committed before the call is in the file. For moments after
  // which the process may be gone, such as an out-of-memory error.
  bool flush_now(uint32_t timeout_ms) noexcept;

  // Keeps the current window for good in a folder of the request's name next to the trace; the
  // recording goes on.
  SealOutcome seal(const SealRequest& request, uint32_t timeout_ms) noexcept;
  // After an out-of-memory error: has the writer do so soon, for the whole job, under a name made of
  // the time; not for every one of many errors. Does not wait.
  void seal_after_error() noexcept;

  bool on() const noexcept { return active_session() != nullptr; }

  // True when the row was committed: from then on it survives the process. False when the recorder
  // is off or the row was dropped, which is counted.
  template <typename Row>
  bool record(const Row& row) noexcept {
    static_assert(std::is_trivially_copyable_v<Row>);
    constexpr uint32_t bytes = ring::record_bytes(sizeof(Row));
    RecordScope scope(Table<Row>::kind, bytes);
    if (!scope) [[unlikely]]
      return false;
    std::memcpy(scope.content(), &row, sizeof row);
    scope.commit(bytes);
    return true;
  }

  // Dictionaries. The same content has the same id throughout a recording. Its row is committed
  // before the id is returned, so that a reader of the id always finds the row. 0 when the recorder
  // is off or the dictionary is full (counted).
  uint32_t intern_string(std::string_view text) noexcept;  // cut to fit a chunk: 16 or 64 KiB
  uint32_t intern_module(uint64_t base, uint64_t size_bytes, std::string_view path,
                         std::string_view build_id) noexcept;
  uint32_t intern_frame(const FrameKey& frame) noexcept;
  // Innermost frame first, as unwinders produce them. Returns 0 for no frames.
  // `nn_module`: that runs; 0: none.
  uint32_t intern_stack(std::span<const FrameKey> frames, uint32_t nn_module = 0) noexcept;

  // Runs `run(context)` every `period_ms` on the task thread. This is not the writer thread: a task
  // may wait for a driver (NVML can hang for seconds while a card resets), and the ring must be
  // drained meanwhile. Tasks run one after another, never two at once, and end when the recorder
  // stops. False when there are too many.
  using Task = void (*)(void* context) noexcept;
  bool add_background_task(Task run, void* context, uint32_t period_ms) noexcept;

  // Makes all tasks due, or moves one task ahead of all others. The task thread runs them as soon
  // as it can. Any thread, any time; does not wait.
  void run_tasks_soon() noexcept;
  void run_task_soon(Task run) noexcept;

  // Runs once at the beginning of stop(), on the task thread, while recording is still on: the
  // place to flush what another library buffers. stop() waits for all hooks together for 2 s at
  // most. The last hook added runs first.
  bool add_finish_hook(Task run, void* context) noexcept;

  // Records a Health row now.
  void report(HealthKind kind, uint64_t value, std::string_view detail) noexcept;

  // Rows that the capture code lost, time it spends and memory it holds; written as rows once per
  // second.
  void count_dropped(BlockKind kind, uint64_t rows) noexcept;
  void add_overhead_ns(uint64_t ns) noexcept;
  void add_own_host_bytes(int64_t bytes) noexcept;

  // False when the recorder is off.
  bool cost(RecordingCost& out) const noexcept;

  // Path of the current trace, or else of the last one; "" if there was none. For messages.
  const char* trace_path() const noexcept;
};

Recorder& recorder() noexcept;

}  // namespace tidemark::injector
