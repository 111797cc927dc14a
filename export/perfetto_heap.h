// Flame graphs of a Perfetto trace: what was alive, by stack, at the peak and at the errors.
#pragma once

#include <string_view>

#include "analysis/memory_state.h"
#include "export/perfetto_tracks.h"

namespace tidemark {

// One dump. Perfetto keeps running sums per stack within a sequence, so each dump has its own.
void write_heap_dump(PerfettoPackets& packets, const ExportProcess& process, int32_t fake_pid,
                     const FrameworkModel& model, const MemoryState& state,
                     std::string_view heap_name, int64_t time_ns);

}  // namespace tidemark
