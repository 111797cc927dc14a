// Continues a trace that its writer left unfinished.
#pragma once

#include <cstdint>

#include "collector/recover/recovery.h"
#include "collector/recover/ring_reader.h"
#include "proto/base/result.h"

namespace tidemark {

// Truncates the file to its first `keep` bytes, then appends the records of the ring, health rows
// about the recovery and, if everything before is undamaged, the index (without one, readers scan
// the file). Fills in the counts of `report`. After a failure the file has `keep` bytes again.
Status append_ring(int fd, uint64_t keep, RingReader& ring, RecoveryReport& report);

}  // namespace tidemark
