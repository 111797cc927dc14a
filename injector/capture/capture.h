// Starts and stops a capture: all event sources and the recorder.
//
//   armed ── start_capture ──▶ recording ── stop_capture ──▶ armed          any number of times
//
// When off, nothing is left in the host: no subscriber, no redirected call, no thread, no file. Two
// things stay because they cannot be undone: libraries that were loaded (CUPTI, the bridge), and
// the bridge's silent entry in the list of listeners of PyTorch's allocator.
#pragma once

#include <cstdint>

#include "injector/process/options.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// kFirst: when the process begins to use CUDA. kLate: later; what exists already is recorded as
// such.
enum class Beginning : uint8_t { kFirst, kLate };

// One capture at a time; the caller ensures it. False: not recording, after a message on stderr.
bool start_capture(const Options& options, Beginning beginning) noexcept;
RecordingEnd stop_capture() noexcept;

// Number of captures started in this process.
uint32_t capture_count() noexcept;

}  // namespace tidemark::injector
