#include "collector/recover/trace_file.h"

#include "collector/recover/recovery.h"
#include "collector/snapshot/snapshot_file.h"

namespace tidemark {

Result<TraceReader> open_trace_file(const std::string& path) {
  if (!looks_like_trace(path) && !path.ends_with(".tmk")) return open_snapshot(path);
  // The records in the ring of a killed process belong to its trace. If they cannot be recovered
  // (no write permission, say), the file itself is still worth reading.
  static_cast<void>(recover_file(path));
  return TraceReader::open(path);
}

}  // namespace tidemark
