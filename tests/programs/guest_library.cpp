// The recorder in a shared library loaded by dlopen, like libtidemark.so.
#include "injector/recorder/recorder.h"

#define TIDEMARK_VISIBLE extern "C" __attribute__((visibility("default")))

using namespace tidemark;
using namespace tidemark::injector;

TIDEMARK_VISIBLE bool guest_start(const char* directory) {
  RecorderOptions options;
  options.directory = directory;
  options.buffer_mb = 4;
  return recorder().start(options);
}

TIDEMARK_VISIBLE bool guest_record(uint64_t number) {
  FrameworkEvent row{};
  row.time_ns = now_ns();
  row.address = number;
  row.metadata = recorder().intern_string("guest");
  return recorder().record(row);
}
