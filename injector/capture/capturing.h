// A capture from its beginning to its end: every source, the recorder, and the way back to nothing.
//
//   armed ── start_capture ──▶ recording ── stop_capture ──▶ armed          any number of times
//
// What is off leaves no trace in the host: no subscriber, no redirected call, no thread, no file.
// Two things stay because there is no way back: libraries that were loaded (CUPTI, the bridge), and
// the bridge's silent place among the listeners of PyTorch's allocator.
#pragma once

#include <cstdint>

#include "injector/process/options.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// From the beginning of the process's use of CUDA, or in the middle of it: then what exists already
// is recorded as such.
enum class Beginning : uint8_t { kFirst, kLate };

// One at a time; the caller sees to it. False: not recording, and why was complained of.
bool start_capture(const Options& options, Beginning beginning) noexcept;
RecordingEnd stop_capture() noexcept;

// How many began in this process.
uint32_t capture_count() noexcept;

}  // namespace tidemark::injector
