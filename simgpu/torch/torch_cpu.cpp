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
// Its members are where those of the real one are.
struct Node : std::enable_shared_from_this<Node> {
  Node() { ++g_live_nodes; }
  virtual ~Node() { --g_live_nodes; }
  uint64_t sequence = 0;
  uint64_t topological = 0;
  bool has_parent = false;
  uint64_t thread = 0;
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

thread_local uint64_t t_next_sequence = 0;

namespace sequence_number {
STANDIN_API uint64_t peek() {
  return t_next_sequence;
}
}  // namespace sequence_number

STANDIN_API uint64_t RecordFunction::currentThreadId() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next++;
  return number;
}

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

// Makes a node, as an operation of the forward pass does.
STANDIN_API uint64_t standin_make_node(void) {
  return at::t_next_sequence++;
}

// Runs a node that the thread `thread` has made.
STANDIN_API void standin_run_node(uint64_t sequence, uint64_t thread) {
  standin_set_node(1);
  (*torch::autograd::t_current).sequence = sequence;
  (*torch::autograd::t_current).thread = thread;
}

STANDIN_API uint64_t standin_thread(void) {
  return at::RecordFunction::currentThreadId();
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
