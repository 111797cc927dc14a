// libtorch_cpu.so: the autograd node of the calling thread, and callbacks for named ranges.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/record_function.h>
#ifdef STANDIN_2_13
#include <torch/csrc/autograd/function.h>
#endif

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#define STANDIN_API __attribute__((visibility("default")))

std::atomic<long> g_live_nodes{0};

namespace torch::autograd {

#ifdef STANDIN_2_13
using NodePointer = c10::intrusive_ptr<Node>;

Node::Node() {
  ++g_live_nodes;
}
Node::~Node() {
  --g_live_nodes;
}
#else
struct Node {
  Node() { ++g_live_nodes; }
  virtual ~Node() { --g_live_nodes; }
};
using NodePointer = std::shared_ptr<Node>;
#endif

namespace generated {
struct MmBackward0 : Node {};
}  // namespace generated

thread_local NodePointer t_current;

STANDIN_API NodePointer get_current_node() {
  return t_current;
}

}  // namespace torch::autograd

namespace at {

namespace {
std::mutex g_callbacks_lock;
auto& g_callbacks = *new std::vector<RecordFunctionCallback>;  // for threads that outlive exit()

std::vector<RecordFunctionCallback> callbacks() {
  const std::lock_guard lock(g_callbacks_lock);
  return g_callbacks;
}
}  // namespace

// As if 3 MiB were pinned, of which the program has given back 1 MiB. Before 2.13 the blocks given
// out are a sum over all times that one was.
struct StandinHostAllocator : HostAllocator {
#ifdef STANDIN_2_13
  HostStats get_stats() override {
    return {{3 << 20}, { 2 << 20 }};
  }
#else
  HostStats get_stats() override {
    return {{3 << 20}, {200 << 20}};
  }
#endif
};

STANDIN_API HostAllocator* getHostAllocator(DeviceType) {
  static StandinHostAllocator allocator;
  return &allocator;
}

STANDIN_API unsigned long addGlobalCallback(RecordFunctionCallback callback) {
  const std::lock_guard lock(g_callbacks_lock);
  g_callbacks.push_back(callback);
  return g_callbacks.size();
}

}  // namespace at

extern "C" {

STANDIN_API void standin_set_node(int on) {
  using namespace torch::autograd;
  t_current = on != 0 ? NodePointer(new generated::MmBackward0) : NodePointer();
}

STANDIN_API long standin_live_nodes(void) {
  return g_live_nodes.load();
}

STANDIN_API void standin_annotate(const char* name, int begins) {
  for (const auto& callback : at::callbacks()) {
    const at::RecordFunction function{name};
    if (begins != 0) {
      callback.start()(function);
    } else {
      callback.end()(function, nullptr);
    }
  }
}
}
