// Continues a trace that its writer left unfinished.
#pragma once

#include <cstdint>

#include "collector/recover/recovery.h"
#include "collector/recover/ring_reader.h"
#include "proto/base/result.h"

namespace tidemark {

// Cuts the file to its first `keep` bytes, appends what the ring holds and the rows that say so,
// and the index when everything before is sound (a damaged file stays one that is read by
// scanning). Fills in the counts of `report`. After a failure the file has `keep` bytes again.
Status append_ring(int fd, uint64_t keep, RingReader& ring, RecoveryReport& report);

}  // namespace tidemark
