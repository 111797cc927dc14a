// Per-thread state of the capture code.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::injector {

// Small, and initial-exec for the reason given in recorder/thread_writer.h.
struct CaptureThread {
  uint32_t tid;
  uint32_t session;       // in which tid is valid: a forked child has other tids
  uint16_t own_depth;     // > 0: inside a call made by tidemark
  uint16_t driver_calls;  // of the host that this thread is inside of
  bool graph_node_made;   // the current driver call added a memory node to a graph
  bool initialising;      // inside InitializeInjection, which a chained library may call again
  bool inside_nccl;       // inside an NCCL call, according to its profiler interface
};
extern thread_local constinit CaptureThread capture_thread
    __attribute__((tls_model("initial-exec")));

// Marks driver calls as tidemark's own: what they allocate gets kDriverOwn.
class OwnScope {
 public:
  OwnScope() noexcept { ++capture_thread.own_depth; }
  ~OwnScope() { --capture_thread.own_depth; }
  OwnScope(const OwnScope&) = delete;
  OwnScope& operator=(const OwnScope&) = delete;
};

// Number of recordings of this process and of the parents it was forked from.
extern std::atomic<uint32_t> capture_session;

// The calling thread's id, as in the recorder's Thread row.
uint32_t current_thread() noexcept;

}  // namespace tidemark::injector
