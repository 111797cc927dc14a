// Measures parse_pickle on one file and prints the result as JSON. pickle_bench.py runs it and
// compares the result with CPython's pickle.load.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "collector/pickle/byte_source.h"
#include "collector/pickle/reader.h"

namespace {

using tidemark::ByteSource;
using tidemark::PickleDocument;
using tidemark::PickleKey;
using tidemark::PickleValue;
using tidemark::Result;

double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// A field of /proc/self/status whose value is in kB.
uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// The least a converter does: read every field of every trace entry.
uint64_t walk(const PickleDocument& document) {
  PickleKey keys[] = {{document, "action"}, {document, "addr"},    {document, "size"},
                      {document, "stream"}, {document, "time_us"}, {document, "compile_context"},
                      {document, "frames"}};
  uint64_t sum = 0;
  for (PickleValue trace : document.items(document.find(document.root(), "device_traces"))) {
    for (PickleValue entry : document.items(trace)) {
      sum += document.as_string(document.find(entry, keys[0])).value_or("").size();
      for (int i = 1; i < 5; ++i) {
        sum += document.as_u64(document.find(entry, keys[i])).value_or(0);
      }
      sum += document.as_string(document.find(entry, keys[5])).value_or("").size();
      const PickleValue frames = document.find(entry, keys[6]);
      if (frames.is_container()) sum += frames.container_id();
    }
  }
  return sum;
}

struct Best {
  double open_parse_s = 1e9;
  double parse_s = 1e9;
  double walk_s = 1e9;
  uint64_t parse_rss_bytes = 0;  // what parsing allocated
  uint64_t total_rss_bytes = 0;  // that and the mapped file
  uint64_t containers = 0;
  uint64_t walk_sum = 0;
};

bool run_round(const char* path, bool first, Best& best) {
  const uint64_t total_rss_before = status_bytes("VmRSS");
  const double opening = now_s();
  Result<ByteSource> source = tidemark::open_bytes(path);
  if (!source) {
    std::fprintf(stderr, "%s\n", source.error().message.c_str());
    return false;
  }
  const uint64_t rss_before = status_bytes("RssAnon");
  const double parsing = now_s();
  Result<PickleDocument> document = tidemark::parse_pickle(source->bytes());
  const double walking = now_s();
  if (!document) {
    std::fprintf(stderr, "%s %s\n", path, document.error().message.c_str());
    return false;
  }
  if (first) {
    best.parse_rss_bytes = status_bytes("RssAnon") - rss_before;
    best.total_rss_bytes = status_bytes("VmRSS") - total_rss_before;
  }
  const double walk_start = now_s();
  best.walk_sum += walk(*document);
  best.walk_s = std::min(best.walk_s, now_s() - walk_start);
  best.open_parse_s = std::min(best.open_parse_s, walking - opening);
  best.parse_s = std::min(best.parse_s, walking - parsing);
  best.containers = document->container_count();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: pickle_bench_tool FILE ROUNDS\n");
    return 2;
  }
  Best best;
  const uint64_t rss_before = status_bytes("VmRSS");
  const int rounds = std::atoi(argv[2]);
  for (int round = 0; round < rounds; ++round) {
    if (!run_round(argv[1], round == 0, best)) return 1;
  }
  std::printf(
      "{\"open_parse_s\": %.6f, \"parse_s\": %.6f, \"walk_s\": %.6f, \"parse_rss_bytes\": %llu, "
      "\"total_rss_bytes\": %llu, \"peak_rss_bytes\": %llu, \"containers\": %llu, \"walk_sum\": "
      "%llu}\n",
      best.open_parse_s, best.parse_s, best.walk_s,
      static_cast<unsigned long long>(best.parse_rss_bytes),
      static_cast<unsigned long long>(best.total_rss_bytes),
      static_cast<unsigned long long>(status_bytes("VmHWM") - rss_before),
      static_cast<unsigned long long>(best.containers),
      static_cast<unsigned long long>(best.walk_sum));
  return 0;
}
