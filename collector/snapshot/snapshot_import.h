// Converts a PyTorch memory snapshot (torch 2.0 to 2.13) to a trace.
//
// The content of the snapshot is written unchanged: the history as framework events, the state at
// its end as segment and block states, plus settings and annotations. Nothing is derived here;
// entries that are not understood are skipped, counted, and named in the trace's health table.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "proto/base/result.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

struct ImportSummary {
  uint64_t events = 0;
  uint64_t segments = 0;
  uint64_t blocks = 0;
  uint64_t skipped = 0;  // entries or keys that were not understood
};

// Writes process 1 of the trace; the caller finishes the writer. `name` is for error messages;
// `rank` is -1 if unknown.
Result<ImportSummary> import_snapshot(std::span<const uint8_t> pickle, const std::string& name,
                                      TraceWriter& writer, int64_t rank = -1);

// True if the bytes begin like a pickle of protocol 2 or later.
bool looks_like_pickle(std::span<const uint8_t> bytes);

}  // namespace tidemark
