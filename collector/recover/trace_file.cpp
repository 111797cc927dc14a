#include "collector/recover/trace_file.h"

#include "collector/recover/recovery.h"
#include "collector/snapshot/snapshot_file.h"

namespace tidemark {

Result<TraceReader> open_trace_file(const std::string& path) {
  if (!looks_like_trace(path) && !path.ends_with(".tmk")) return open_snapshot(path);
  // What a killed process left in its ring belongs to its trace. Where that cannot be done (no
  // right to write, say), what is in the file is still worth reading.
  static_cast<void>(recover_file(path));
  return TraceReader::open(path);
}

}  // namespace tidemark
