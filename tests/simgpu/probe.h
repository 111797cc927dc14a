// What the probe (an injection library, probe_injection.cpp) recorded, as the test reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::probe {

struct Callback {
  bool exit;
  uint32_t domain;
  uint32_t id;
  std::string name;
  std::string symbol;
  uint32_t result;  // at EXIT
  uint32_t correlation;
  uint64_t scratch;  // value that ENTER passed to EXIT
  uint64_t address;  // the parameters that the probe reads, at EXIT
  uint64_t bytes;
  uint32_t device;  // of the context, from CUPTI inside the callback
  uint64_t context;
  uint32_t context_id;
  uint64_t module_bytes;
  uint64_t thread;
};

struct Record {
  uint32_t kind;
  uint32_t operation;    // MEMORY2
  uint32_t memory_kind;  // MEMORY2
  uint64_t address;
  uint64_t bytes;
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t device;
  uint32_t stream;
  uint32_t correlation;
  uint32_t graph;
  uint64_t pool;
  uint64_t pool_used;
  std::string name;
  uint64_t thread;  // on which it was delivered
};

struct Log {
  int initialised = 0;  // calls of InitializeInjection
  uint32_t subscribed = 999;
  uint32_t driver_call_while_loading = 0;  // result of a driver call from inside
  std::vector<Callback> callbacks;
  std::vector<Record> records;
  uint64_t buffers_requested = 0;
  uint64_t buffers_completed = 0;
};

// A copy, taken under the probe's lock.
using probe_log_fn = void (*)(Log* out);
using probe_clear_fn = void (*)();
// Sets the buffer size from now on; 0: no buffers.
using probe_buffer_bytes_fn = void (*)(uint64_t bytes);

}  // namespace tidemark::probe
