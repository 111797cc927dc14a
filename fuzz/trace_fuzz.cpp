// Reads any bytes as a trace file: open, decode every block of every kind, build the model and a
// report. Checksums would reject nearly all inputs, so they are corrected first in every frame that
// can be found.
#include <cstdint>
#include <vector>

#include "analysis/report/report.h"
#include "mended_trace.h"
#include "nameless_file.h"

namespace {

template <typename... Rows>
void decode(tidemark::BlockDecoder& decoder, const tidemark::BlockRef& ref,
            tidemark::RowList<Rows...>) {
  (void)((ref.kind == tidemark::Table<Rows>::kind && decoder.rows<Rows>(ref).empty()) || ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  std::vector<uint8_t> bytes(data, data + size);
  mend_checksums(bytes);
  const auto reader = reader_of(bytes);
  if (!reader) return 0;
  uint64_t rows = 0;
  for (const BlockRef& ref : reader->blocks()) rows += ref.rows;
  if (rows > 200'000) return 0;  // limits the time, not needed for safety
  BlockDecoder decoder(*reader);
  for (const BlockRef& ref : reader->blocks()) {
    decode(decoder, ref, RecordedRows{});
    if (ref.kind == BlockKind::kStrings) decoder.strings(ref, [](uint32_t, std::string_view) {});
  }
  const auto model = load_trace({&*reader, 1});
  if (model) (void)make_report(*model, {});
  return 0;
}
