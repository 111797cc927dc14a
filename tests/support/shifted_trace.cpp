#include "tests/support/shifted_trace.h"

#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"

namespace tidemark::test {

namespace {

template <typename... Rows>
void copy_rows(RowList<Rows...>, BlockDecoder& decoder, const BlockRef& ref, TraceWriter& writer) {
  const auto copy = [&]<typename Row>() {
    if (ref.kind != Table<Row>::kind) return;
    for (const Row& row : decoder.rows<Row>(ref)) writer.append(row);
  };
  (copy.template operator()<Rows>(), ...);
}

}  // namespace

bool shift_clock(const std::string& in, const std::string& out, int64_t at_ns, int64_t offset_ns,
                 int64_t drift_ppb) {
  Result<TraceReader> reader = TraceReader::open(in);
  Result<OutputFile> file = OutputFile::create(out);
  if (!reader || !file) return false;
  // The alignment that puts ranks on a common clock can also move one off it.
  reader->set_alignment(1, {at_ns, offset_ns, drift_ppb, 0, 0, AlignmentMethod::kNone});
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  BlockDecoder decoder(*reader);
  for (const BlockRef& ref : reader->blocks()) {
    if (ref.kind == BlockKind::kStrings) {
      decoder.strings(ref,
                      [&](uint32_t id, std::string_view text) { writer.append_string(id, text); });
    } else {
      copy_rows(RecordedRows(), decoder, ref, writer);
    }
  }
  return writer.finish() && !decoder.damage().any() && file->commit().ok();
}

}  // namespace tidemark::test
