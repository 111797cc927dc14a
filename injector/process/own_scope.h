// What the capture side keeps per thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::injector {

// Small, and initial-exec for the reason given in thread_writer.h.
struct CaptureThread {
  uint32_t tid;
  uint32_t session;      // of the tid: a forked child has others
  uint16_t own_depth;    // > 0: inside a call that tidemark makes itself
  bool graph_node_made;  // since the present driver call began, a memory node was put into a graph
  bool initialising;     // inside InitializeInjection: a chained library may call it again
  bool inside_nccl;      // inside a call of NCCL, as its profiler interface tells
};
extern thread_local constinit CaptureThread capture_thread
    __attribute__((tls_model("initial-exec")));

// Driver calls inside are tidemark's own: what they allocate is marked kDriverOwn.
class OwnScope {
 public:
  OwnScope() noexcept { ++capture_thread.own_depth; }
  ~OwnScope() { --capture_thread.own_depth; }
  OwnScope(const OwnScope&) = delete;
  OwnScope& operator=(const OwnScope&) = delete;
};

// Counts the recordings of this process and of the parents it was forked from.
extern std::atomic<uint32_t> capture_session;

// The calling thread's id, as the recorder has it in its Thread row.
uint32_t current_thread() noexcept;

}  // namespace tidemark::injector
