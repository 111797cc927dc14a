// Prints pickles as canonical JSON (see pickle_dump.h), one line per file: the document, or a JSON
// object {"error": "…"}. tests/collector/pickle/differential.py compares it with CPython's result.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "collector/pickle/byte_source.h"
#include "collector/pickle/reader.h"
#include "tests/support/pickle_dump.h"

namespace {

constexpr uint64_t kMaxValues = 50'000'000;

void print_error(const std::string& message) {
  std::string text;
  for (const char c : message) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  std::printf("{\"error\": \"%s\"}\n", text.c_str());
}

void dump_file(const char* path, tidemark::PickleDump::Sharing sharing) {
  const tidemark::Result<tidemark::ByteSource> source = tidemark::open_bytes(path);
  if (!source) return print_error(source.error().message);
  const auto document = tidemark::parse_pickle(source->bytes());
  if (!document) return print_error(document.error().message);
  const auto text = tidemark::PickleDump(*document, sharing, kMaxValues).run();
  if (!text) return print_error("more values than this tool prints");
  std::printf("%s\n", text->c_str());
}

}  // namespace

int main(int argc, char** argv) {
  auto sharing = tidemark::PickleDump::Sharing::kExpand;
  int first = 1;
  if (argc > 1 && std::strcmp(argv[1], "--refs") == 0) {
    sharing = tidemark::PickleDump::Sharing::kShow;
    first = 2;
  }
  if (first >= argc) {
    std::fprintf(stderr, "usage: pickle_dump_tool [--refs] FILE...\n");
    return 2;
  }
  for (int i = first; i < argc; ++i) dump_file(argv[i], sharing);
  return 0;
}
