#include "collector/recover/trace_file.h"

#include <fmt/format.h>

#include "collector/recover/recovery.h"
#include "collector/snapshot/snapshot_file.h"

namespace tidemark {

bool is_input_name(std::string_view name) {
  return name.ends_with(".tmk") || name.ends_with(".pickle") || name.ends_with(".pickle.gz") ||
         name.ends_with(".pkl") || name.ends_with(".pkl.gz");
}

Result<TraceReader> open_trace_file(const std::string& path, std::vector<std::string>& notes) {
  if (is_snapshot(path)) return open_snapshot(path);
  // The records in the ring of a killed process belong to its trace. If they cannot be recovered
  // (no write permission, say), the file itself is still worth reading.
  const Result<RecoveryReport> report = recover_file(path, RecoveryBy::kReader);
  if (report && report->outcome == RecoveryOutcome::kElsewhere) {
    notes.push_back(
        fmt::format("{}: its process may still be running on {}; if it has ended, run "
                    "'tidemark recover' to add its last records",
                    path, report->host));
  }
  if (report && report->outcome == RecoveryOutcome::kRingElsewhere) {
    notes.push_back(
        path + ": its last rows are on the node that recorded it; run 'tidemark recover' there");
  }
  if (!report) {
    notes.push_back(
        fmt::format("{}: its last records could not be added: {}", path, report.error().message));
  }
  return TraceReader::open(path);
}

}  // namespace tidemark
