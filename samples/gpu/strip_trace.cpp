// Shortens the paths in a recorded trace, so that it reveals nothing about the recording machine.
//
//   strip_trace IN.tmk OUT.tmk HOST
//
// Strings are rewritten: everything up to site-packages/, lib*/, or the last folder but one is
// removed, and the host's name is replaced by HOST. Every other block is copied as it is.
#include <cstdio>
#include <string>

#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"

namespace {

using namespace tidemark;

std::string stripped_path(const std::string& path) {
  for (const char* mark : {"site-packages/", "dist-packages/"}) {
    if (const size_t at = path.find(mark); at != std::string::npos) return path.substr(at);
  }
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// A command line has many words, and each may be a path.
std::string stripped(std::string_view text) {
  std::string out;
  std::string word;
  for (const char c : std::string(text) + '\0') {
    if (c != ' ' && c != '\0' && c != '=' && c != ':') {
      word += c;
      continue;
    }
    out += word.find('/') == std::string::npos ? word : stripped_path(word);
    if (c != '\0') out += c;
    word.clear();
  }
  return out;
}

int run(const std::string& in, const std::string& out, const std::string& host) {
  const auto reader = TraceReader::open(in);
  auto file = OutputFile::create(out);
  if (!reader || !file) return 2;
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  BlockDecoder decoder(*reader);
  uint32_t host_id = 0;
  for_each_block<Process>(*reader, decoder, 0, [&](auto rows, const BlockRef&) {
    for (const Process& p : rows) host_id = p.host;
  });
  for (const BlockRef& ref : reader->blocks()) {
    if (ref.kind == BlockKind::kStrings) {
      decoder.strings(ref, [&](uint32_t id, std::string_view text) {
        writer.append_string(id, id == host_id ? host : stripped(text));
      });
      writer.flush();
      continue;
    }
    FrameHeader header;
    const auto payload = decoder.payload(ref, header);
    if (payload.data() != nullptr) writer.copy_frame(header, payload, ref.process);
  }
  if (!writer.finish() || decoder.damage().any()) return 2;
  return file->commit() ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: strip_trace IN.tmk OUT.tmk HOST\n");
    return 2;
  }
  return run(argv[1], argv[2], argv[3]);
}
