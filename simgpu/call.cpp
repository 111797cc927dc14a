#include "simgpu/call.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <variant>

#include "simgpu/contexts.h"

namespace tidemark::simgpu {
namespace {

using Event = std::variant<MemoryEvent, PoolEvent, WorkEvent, ResourceEvent>;

std::atomic<const Hooks*> g_hooks{nullptr};
std::atomic<uint32_t> g_correlation{0};

// State of the calls on this thread.
struct ThreadState {
  std::vector<Event> events;
  uint32_t correlation = 0;
  int callback_depth = 0;
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

thread_local bool t_loading_injection = false;

// Marks that tool code is running, in which driver calls are forbidden.
class ToolScope {
 public:
  ToolScope() { ++thread_state().callback_depth; }
  ~ToolScope() { --thread_state().callback_depth; }
  ToolScope(const ToolScope&) = delete;
  ToolScope& operator=(const ToolScope&) = delete;
};

struct Deliver {
  const Hooks& hooks;
  void operator()(const MemoryEvent& event) const { hooks.memory(event); }
  void operator()(const PoolEvent& event) const { hooks.pool(event); }
  void operator()(const WorkEvent& event) const { hooks.work(event); }
  void operator()(const ResourceEvent& event) const { hooks.resource(event); }
};

void deliver_events() {
  ThreadState& state = thread_state();
  const std::vector<Event> events = std::exchange(state.events, {});
  const Hooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr) return;
  const ToolScope scope;
  for (const Event& event : events) std::visit(Deliver{*hooks}, event);
}

// The calls that CUPTI allows inside a callback.
bool allowed_in_callback(uint32_t id) {
  return id == cupti::CBID_cuCtxSynchronize || id == cupti::CBID_cuStreamSynchronize ||
         id == cupti::CBID_cuStreamSynchronize_ptsz;
}

CUresult admit(uint32_t id, const char* name, Need need) {
  const ThreadState& state = thread_state();
  if (state.callback_depth > 0 && !allowed_in_callback(id)) {
    // The real driver may hang here; a test gets an error instead.
    std::fprintf(stderr, "simgpu: %s called inside a CUPTI callback\n", name);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (need == Need::kNothing) return CUDA_SUCCESS;
  if (t_loading_injection || !Driver::get().ready()) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

void charge(CUcontext handle, uint64_t bytes) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.mutex);
  Context* context = driver.contexts.find(handle);
  if (context != nullptr && driver.take(driver.device_of(*context), bytes)) {
    context->tool_bytes += bytes;
  }
}

void each_context(void (*visit)(CUcontext context, void* with), void* with) {
  Driver& driver = Driver::get();
  std::vector<CUcontext> all;
  {
    const std::lock_guard lock(driver.mutex);
    driver.contexts.each([&](Context& c) { all.push_back(reinterpret_cast<CUcontext>(&c)); });
  }
  for (CUcontext context : all) visit(context, with);
}

bool find_context(CUcontext handle, uint32_t* id, uint32_t* device) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.mutex);
  const Context* context = driver.contexts.find(handle);
  if (context == nullptr) return false;
  *id = context->id;
  *device = static_cast<uint32_t>(context->device);
  return true;
}

bool find_stream(CUcontext handle, CUstream stream, bool per_thread, uint32_t* id) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.mutex);
  Context* context = driver.contexts.find(handle);
  if (context == nullptr) return false;
  const Stream* found = stream_of(driver, *context, stream, per_thread);
  if (found == nullptr) return false;
  *id = found->id;
  return true;
}

Card* find_card(int index) {
  Driver& driver = Driver::get();
  if (!driver.ready()) return nullptr;
  const std::lock_guard lock(driver.mutex);
  for (auto& device : driver.devices) {
    if (device->card.index() == index) return &device->card;
  }
  return nullptr;
}

void set_hooks(const Hooks* hooks) {
  g_hooks.store(hooks, std::memory_order_release);
}

}  // namespace

void post(const MemoryEvent& event) {
  thread_state().events.emplace_back(event);
}
void post(const PoolEvent& event) {
  thread_state().events.emplace_back(event);
}
void post(const WorkEvent& event) {
  thread_state().events.emplace_back(event);
}
void post(const ResourceEvent& event) {
  thread_state().events.emplace_back(event);
}

void tell(const ResourceEvent& event) {
  const Hooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr) return;
  const ToolScope scope;
  hooks->resource(event);
}

uint32_t current_correlation() {
  return thread_state().correlation;
}

CallFrame::CallFrame(uint32_t id, const char* name, const void* params, const char* symbol,
                     Need need)
    : admitted_(admit(id, name, need)), outer_correlation_(thread_state().correlation) {
  if (admitted_ != CUDA_SUCCESS) return;
  site_.id = id;
  site_.name = name;
  site_.params = params;
  site_.symbol = symbol;
  site_.scratch = &scratch_;
  site_.correlation = g_correlation.fetch_add(1, std::memory_order_relaxed) + 1;
  site_.enter_ns = now_ns();
  thread_state().correlation = site_.correlation;
  entered_ = thread_state().callback_depth == 0;
  if (entered_) tell_tool(false);
}

CallFrame::~CallFrame() {
  thread_state().correlation = outer_correlation_;
}

void CallFrame::tell_tool(bool exit) {
  const Hooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr || !hooks->wants(site_.id)) return;
  {
    Driver& driver = Driver::get();
    const std::lock_guard lock(driver.mutex);
    // A context that the call destroyed is still reported, without an id (seen with CUPTI 13.0).
    const Context* context = current_context(driver);
    site_.context = current_handle();
    site_.context_id = context == nullptr ? 0 : context->id;
  }
  site_.exit = exit;
  site_.result = exit ? &result_ : nullptr;
  const ToolScope scope;
  hooks->api(site_);
}

CUresult CallFrame::leave(CUresult result) {
  result_ = result;
  if (!thread_state().events.empty()) deliver_events();
  if (entered_) tell_tool(true);
  return result;
}

void set_loading_injection(bool loading) {
  t_loading_injection = loading;
}

const TracingTable& tracing_table() {
  static const TracingTable table{set_hooks,    find_context, find_stream, charge,
                                  each_context, find_card,    variable};
  return table;
}

}  // namespace tidemark::simgpu
