// Pinned host memory in a snapshot (torch 2.14 and later, recorded with record_pinned_host_memory).
//
// Every block of the host allocator is a segment of its own: "segment_alloc" pins it, "alloc" and
// "free_completed" say when it is given out. They become events of the driver and counters, as in a
// live recording.
#pragma once

#include <cstdint>
#include <functional>

#include "collector/pickle/reader.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

struct HostImport {
  uint64_t events = 0;
  uint64_t skipped = 0;
};

// `stack_of` turns a list of frames into a stack of the trace.
HostImport import_host_memory(const PickleDocument& document, TraceWriter& writer,
                              const std::function<uint32_t(PickleValue)>& stack_of);

}  // namespace tidemark
