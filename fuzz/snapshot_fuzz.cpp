// Reads any bytes as a snapshot: parse, import, replay, report.
#include <cstdint>

#include "analysis/report/report.h"
#include "collector/snapshot/snapshot_import.h"
#include "nameless_file.h"
#include "proto/write/trace_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  FdSink sink(fd);
  TraceWriter writer(sink);
  const auto summary = import_snapshot({data, size}, "fuzz", writer);
  if (!summary || !writer.finish()) {
    ::close(fd);
    return 0;
  }
  const auto reader = TraceReader::from_fd(fd, "fuzz");
  if (!reader) __builtin_trap();  // our own output must be readable
  const auto model = load_trace({&*reader, 1});
  if (model) (void)make_report(*model, {});
  return 0;
}
