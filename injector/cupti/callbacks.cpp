#include "injector/cupti/callbacks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <iterator>

#include "abi/cuda_params.h"
#include "injector/cupti/launch_cost.h"
#include "injector/driver/events.h"
#include "injector/driver/objects.h"
#include "injector/marks/step_levels.h"
#include "injector/nccl/operations.h"
#include "injector/process/complain.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/python/stack.h"
#include "injector/python/walk.h"
#include "injector/recorder/recorder.h"
#include "injector/sampling/fresh_reading.h"
#include "injector/sampling/kernel_request.h"
#include "injector/sampling/nvml_sampler.h"
#include "injector/sampling/pool_marks.h"
#include "injector/stacks/unwinder.h"
#include "injector/torch/events.h"
#include "injector/torch/hooks.h"

namespace tidemark::injector {
namespace {

using namespace cuda;
using namespace cupti;

const CuptiFunctions* g_cupti = nullptr;
std::atomic<bool> g_stacks{false};
CuptiSubscription g_subscription;
std::atomic_flag g_said_refused;
std::array<HighMark, HeldBytes::kDevices> g_highs;

constexpr uint32_t kResourceCallbacks[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_CREATED,        CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_CU_INIT_FINISHED,       CUPTI_CBID_RESOURCE_MODULE_LOADED,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED};

// String ids of the owner names in this recording; 0: not interned yet.
std::array<std::atomic<uint32_t>, static_cast<size_t>(Owner::kCount)> g_owner_names;

uint32_t owner_string(Owner owner) {
  if (owner == Owner::kUnknown) return 0;
  auto& name = g_owner_names[static_cast<size_t>(owner)];
  uint32_t id = name.load(std::memory_order_relaxed);
  if (id == 0) {
    id = recorder().intern_string(owner_name(owner));
    name.store(id, std::memory_order_relaxed);
  }
  return id;
}

// NCCL linked into another library may export no names by which its code can be found. Then the
// NCCL call that this thread is inside, or the name of the thread, tells.
Owner owner_of(const NativeStack& stack) {
  const bool open =
      stack.owner == Owner::kUnknown || (stack.owner == Owner::kTorch && !stack.torch_allocator);
  return open && inside_nccl() ? Owner::kNccl : stack.owner;
}

Owner add_stack(DriverEvent& event) {
  if (!g_stacks.load(std::memory_order_relaxed)) return Owner::kUnknown;
  NativeStack stack;
  capture_native_stack(stack);
  // PyTorch may be loaded when CUDA is already in use: its first segment shows that it is there.
  if (stack.owner == Owner::kTorch) look_for_torch();
  FrameKey frames[kMaxNativeFrames + kMaxPythonFrames];
  std::copy(stack.frames, stack.frames + stack.count, frames);
  const size_t count = append_python_frames(frames, stack.count, std::size(frames));
  event.stack = recorder().intern_stack({frames, count});
  const Owner owner = owner_of(stack);
  event.owner = owner_string(owner);
  return owner;
}

// Asks CUPTI, which is allowed in a callback; the answer never changes for a context.
int64_t device_of(CUcontext context, uint32_t number) {
  if (context == nullptr) return kNoDevice;
  ContextTable& contexts = driver_objects().contexts;
  int64_t device = contexts.device_of(number);
  if (device != kNoDevice) return device;
  uint32_t answer = 0;
  if (g_cupti->get_device_id(context, &answer) != CUPTI_SUCCESS) return kNoDevice;
  device = answer;
  contexts.note(number, device);
  return device;
}

// The driver lists no contexts but the primary ones. That a program made one of its own before it
// was attached to shows when it allocates there.
void look_for_older_context(const CUpti_CallbackData& data, const DriverEvent& event) {
  const int64_t device = device_of(data.context, data.contextUid);
  if (!driver_objects().contexts.reveals_older(device)) return;
  DriverEvent older = older_context(device, event.time_ns);
  older.thread = event.thread;
  recorder().record(older);
}

void record_out_of_memory(const DriverEvent& event) {
  OutOfMemory row{};
  row.time_ns = event.time_ns;
  row.device = event.device;
  row.requested_bytes = event.size_bytes;
  // A call made by the task thread must not wait for the task thread.
  const DeviceMemory latest = capture_thread.own_depth > 0 ? latest_device_memory(event.device)
                                                           : fresh_device_memory(event.device);
  row.device_free_bytes = latest.free_bytes;
  row.device_total_bytes = latest.total_bytes;
  row.stream = event.stream;
  row.stack = event.stack;
  row.thread = event.thread;
  row.layer = Layer::kDriver;
  recorder().record(row);
}

// The process may end soon, so what explains the error is written to disk now. But a framework that
// empties its cache and retries fails many times in a row and must not wait each time.
void flush_for_error(int64_t time_ns) {
  constexpr int64_t kPauseNs = 1'000'000'000;
  constexpr uint32_t kPatienceMs = 500;
  static std::atomic<int64_t> next_ns{0};
  int64_t next = next_ns.load(std::memory_order_relaxed);
  if (time_ns < next || !next_ns.compare_exchange_strong(next, time_ns + kPauseNs)) return;
  recorder().flush_now(kPatienceMs);
}

// Objects that the task thread must not query any more once the call is running.
void retire_object(uint32_t id, const void* params) {
  DriverObjects& objects = driver_objects();
  if (id == CBID_cuMemPoolDestroy) {
    const auto pool = static_cast<const cuMemPoolDestroy_params*>(params)->pool;
    objects.pools.retire(reinterpret_cast<uintptr_t>(pool));
  } else if (id == CBID_cuIpcCloseMemHandle) {
    objects.imports.cancel(static_cast<const cuIpcCloseMemHandle_params*>(params)->dptr);
  }
}

// A reading of the card that overlaps with a call is taken again. So the count goes up before the
// time of ENTER and after the time of EXIT is taken.
void count_enter() {
  if (capture_thread.own_depth > 0) return;
  ++capture_thread.driver_calls;
  driver_objects().calls.enter();
}

// If we attached between ENTER and EXIT, there was no ENTER.
void count_exit() {
  if (capture_thread.own_depth > 0 || capture_thread.driver_calls == 0) return;
  --capture_thread.driver_calls;
  driver_objects().calls.leave();
}

void enter_call(uint32_t id, const CUpti_CallbackData& data) {
  if (id == CBID_cuMemPoolSetAttribute && data.functionParams != nullptr &&
      capture_thread.own_depth == 0) {
    const auto* params = static_cast<const cuMemPoolSetAttribute_params*>(data.functionParams);
    save_marks_before_reset(static_cast<uint32_t>(params->attr));
  }
  count_enter();
  capture_thread.graph_node_made = false;
  if (!counts_from_enter(id)) return;
  if (data.correlationData != nullptr) *data.correlationData = static_cast<uint64_t>(now_ns());
  if (data.functionParams != nullptr) retire_object(id, data.functionParams);
}

// The id in the trace of the pool that the memory belongs to.
uint32_t pool_of(const DriverCall& call) {
  PoolTable& pools = driver_objects().pools;
  if (call.current_pool) return pools.current_of(call.event.device);
  return pools.id_of(call.pool_handle, call.event.device);
}

void follow_up(const DriverCall& call, const DriverEvent& event, Owner owner) {
  DriverObjects& objects = driver_objects();
  if (event.result != CUDA_SUCCESS) {
    if (event.result == CUDA_ERROR_OUT_OF_MEMORY) {
      objects.refusals.note(event.device, owner == Owner::kTorch);
      request_kernels();
      record_out_of_memory(event);
      // PyTorch empties its cache and tries again; its own error is what counts.
      if (!torch_was_seen()) recorder().seal_after_error();
      flush_for_error(event.time_ns);
    }
    return;
  }
  if (call.size_missing && !objects.imports.add(event)) {
    recorder().count_dropped(BlockKind::kDriverEvents, 1);
  }
  if (objects.live.note(event, static_cast<uint8_t>(owner))) {
    ask_for_reading();
    g_highs[static_cast<size_t>(event.device)].see(objects.live.highest(event.device));
  }
  const bool on_device =
      event.device >= 0 && event.device < static_cast<int64_t>(StepLevels::kDevices);
  if (on_device && !torch_was_seen()) {
    step_levels().see(event.device, objects.live.total(event.device));
  }
  if (event.operation == DriverOperation::kPoolDestroy) objects.pools.forget(event.handle);
  if (event.kind == MemoryKind::kGraph && event.operation != DriverOperation::kGraphLaunch) {
    objects.devices.note_graph_memory(event.device);
  }
}

// Handles calls that make no row: calls that only set state, and calls that failed without
// allocating.
bool settle_without_row(const DriverCall& call) {
  if (call.sets_pool && call.event.result == CUDA_SUCCESS) {
    driver_objects().pools.set_current(call.event.device, call.pool_handle);
  }
  CapturedStreams& captures = driver_objects().captures;
  if (call.begins_capture && call.event.result == CUDA_SUCCESS) captures.begin(call.event.stream);
  if (call.ends_capture) captures.end(call.event.stream);  // even if the capture became invalid
  if (call.call_class == CallClass::kIgnored) return true;
  // cudaFree(0), the usual way to initialise the runtime.
  if (call.call_class == CallClass::kGives && call.event.address == 0 && call.event.handle == 0) {
    return true;
  }
  if (call.event.result == CUDA_SUCCESS || call.call_class == CallClass::kTakes) return false;
  if (call.event.operation == DriverOperation::kPoolDestroy) {
    driver_objects().pools.revive(call.pool_handle);
  }
  return true;
}

// The time stamp of a call. If we attached between ENTER and EXIT, there is no time of ENTER.
int64_t time_of(uint32_t id, const CUpti_CallbackData& data, int64_t now) {
  if (!counts_from_enter(id) || data.correlationData == nullptr) return now;
  const auto entered = static_cast<int64_t>(*data.correlationData);
  return entered > 0 && entered < now ? entered : now;
}

void leave_call(uint32_t id, const CUpti_CallbackData& data) {
  const int64_t now = now_ns();
  count_exit();
  if (data.functionReturnValue == nullptr) return;
  const auto result = *static_cast<const CUresult*>(data.functionReturnValue);
  DriverCall call = decode_driver_call(id, data.functionParams, result);
  DriverEvent& event = call.event;
  if (settle_without_row(call)) return;
  if (!call.device_known) event.device = device_of(data.context, data.contextUid);
  event.time_ns = time_of(id, data, now);
  event.context = data.context != nullptr ? data.contextUid : 0;
  event.correlation = data.correlationId;
  event.thread = current_thread();
  event.pool = pool_of(call);
  // cuMemAllocAsync on a stream that is being captured adds a node to a graph and allocates no
  // memory. CUPTI 13.0 does not report that node (on an H200), so stream captures are tracked as
  // well.
  if (event.kind == MemoryKind::kStreamOrdered &&
      (capture_thread.graph_node_made || driver_objects().captures.contains(event.stream))) {
    event.kind = MemoryKind::kGraph;
    event.pool = 0;
  }
  if (capture_thread.own_depth > 0) event.flags |= kDriverOwn;
  const Owner owner = call.call_class == CallClass::kTakes ? add_stack(event) : Owner::kUnknown;
  driver_objects().devices.note(event.device);
  if (call.call_class == CallClass::kTakes && result == CUDA_SUCCESS) {
    look_for_older_context(data, event);
  }
  recorder().record(event);
  follow_up(call, event, owner);
  // A program may end before the next regular sample: take one now that includes its memory.
  if (call.call_class == CallClass::kTakes &&
      driver_objects().devices.note_allocation(event.device)) {
    recorder().run_tasks_soon();
  }
  recorder().add_overhead_ns(static_cast<uint64_t>(now_ns() - now));
}

void record_context(const CUpti_ResourceData& data, DriverOperation operation) {
  DriverEvent event{};
  event.time_ns = now_ns();
  event.operation = operation;
  event.kind = MemoryKind::kContext;
  event.handle = reinterpret_cast<uintptr_t>(data.context);
  g_cupti->get_context_id(data.context, &event.context);
  event.device = device_of(data.context, event.context);
  event.thread = current_thread();
  if (capture_thread.own_depth > 0) event.flags |= kDriverOwn;
  DriverObjects& objects = driver_objects();
  if (operation == DriverOperation::kContextCreate) {
    objects.contexts.created(event.device);
    objects.devices.note(event.device);
    add_stack(event);  // shows what created an unexpected context on a card
  } else {
    objects.contexts.destroyed(event.device);
    objects.live.end_context(event.device, event.context,
                             objects.contexts.live(event.device) == 0);
  }
  recorder().record(event);
}

// The size of the code in the file: the driver does not report what it takes on the device.
void record_module(const CUpti_ResourceData& data, DriverOperation operation) {
  const auto* module = static_cast<const CUpti_ModuleResourceData*>(data.resourceDescriptor);
  if (module == nullptr) return;
  DriverEvent event{};
  event.time_ns = now_ns();
  event.operation = operation;
  event.kind = MemoryKind::kCode;
  event.handle = module->moduleId;
  event.size_bytes = module->cubinSize;
  g_cupti->get_context_id(data.context, &event.context);
  event.device = device_of(data.context, event.context);
  event.thread = current_thread();
  if (operation == DriverOperation::kModuleLoad) add_stack(event);
  recorder().record(event);
}

void on_resource(uint32_t id, const CUpti_ResourceData& data) {
  switch (id) {
    case CUPTI_CBID_RESOURCE_CU_INIT_FINISHED:
      driver_objects().driver_ready.store(true, std::memory_order_release);
      recorder().run_tasks_soon();  // opens NVML now, which is slow, not at the first query
      return;
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      driver_objects().driver_ready.store(true, std::memory_order_release);
      return record_context(data, DriverOperation::kContextCreate);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return record_context(data, DriverOperation::kContextDestroy);
    case CUPTI_CBID_RESOURCE_MODULE_LOADED:
      return record_module(data, DriverOperation::kModuleLoad);
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      return record_module(data, DriverOperation::kModuleUnload);
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED: {
      const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
      if (graph != nullptr && (graph->nodeType == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                               graph->nodeType == CU_GRAPH_NODE_TYPE_MEM_FREE)) {
        capture_thread.graph_node_made = true;
      }
      return;
    }
    default:
      return;
  }
}

void on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (data == nullptr || !recorder().on()) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (is_timed_launch(id)) return time_launch(call);
    call.callbackSite == CUPTI_API_ENTER ? enter_call(id, call) : leave_call(id, call);
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    on_resource(id, *static_cast<const CUpti_ResourceData*>(data));
  } else if (domain == CUPTI_CB_DOMAIN_STATE && id == CUPTI_CBID_STATE_FATAL_ERROR) {
    recorder().report(HealthKind::kSourceDisabled, 0,
                      "cupti: stopped after an internal error; no driver events after this point");
  }
}

// The name of the tool that holds CUPTI, if CUPTI reports it (from 13.0 on), for the message.
void name_holder(char* buffer, size_t capacity) {
  buffer[0] = '\0';
  if (g_cupti->subscribe_v2 == nullptr) return;
  CUpti_SubscriberHandle unused = nullptr;
  CUpti_SubscriberParams params{};
  params.structSize = sizeof params;
  params.subscriberName = "tidemark";
  params.oldSubscriberName = buffer;
  params.oldSubscriberSize = capacity;
  const CUptiResult result = g_cupti->subscribe_v2(&unused, on_callback, nullptr, &params);
  if (result == CUPTI_SUCCESS) g_cupti->unsubscribe(unused);
  buffer[capacity - 1] = '\0';
}

void say_refused(CUptiResult result) {
  char reason[256];
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ||
      result == CUPTI_ERROR_MAX_LIMIT_REACHED) {
    char holder[128];
    name_holder(holder, sizeof holder);
    std::snprintf(reason, sizeof reason,
                  "another tool (%s) holds CUPTI, which serves one tool at a time",
                  holder[0] != '\0' ? holder : "a profiler or debugger");
  } else {
    const char* text = nullptr;
    if (g_cupti->get_result_string != nullptr) g_cupti->get_result_string(result, &text);
    std::snprintf(reason, sizeof reason, "cuptiSubscribe failed: %s (%u)",
                  text != nullptr ? text : "error", static_cast<unsigned>(result));
  }
  complain(g_said_refused,
           "%s; driver allocations and kernels are not recorded, only device totals", reason);
  char detail[280];
  std::snprintf(detail, sizeof detail, "cupti: %s", reason);
  recorder().report(HealthKind::kSourceMissing, 0, detail);
}

uint64_t enable_callbacks() {
  const CUpti_SubscriberHandle subscriber = g_subscription.handle();
  uint64_t refused = 0;
  for (const uint32_t id : watched_driver_calls()) {
    refused +=
        g_cupti->enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id) != CUPTI_SUCCESS;
  }
  for (const uint32_t id : kResourceCallbacks) {
    refused +=
        g_cupti->enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id) != CUPTI_SUCCESS;
  }
  // Since CUDA 12.2; older versions have no such domain, and nothing is lost.
  g_cupti->enable_callback(1, subscriber, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  return refused;
}

}  // namespace

bool start_callbacks(const CuptiFunctions& functions, const Options& options) noexcept {
  // Never changes: a callback of the last subscription may still be on its way.
  if (g_cupti == nullptr) g_cupti = &functions;
  g_stacks.store(options.driver_stacks(), std::memory_order_relaxed);
  for (auto& name : g_owner_names) name.store(0);
  for (HighMark& high : g_highs) high.clear();
  const ForeignCall foreign;
  const CUptiResult result = g_subscription.open(functions, on_callback);
  if (result != CUPTI_SUCCESS) {
    say_refused(result);
    return false;
  }
  const uint64_t refused = enable_callbacks();
  // CUPTI of CUDA 12 does not know the calls of CUDA 13, but its driver does not have them either.
  if (refused > 0) {
    recorder().report(HealthKind::kSourceMissing, refused,
                      "cupti: driver calls that this version does not report");
  }
  return true;
}

const CuptiSubscription& cupti_subscription() noexcept {
  return g_subscription;
}

void stop_callbacks() noexcept {
  const OwnScope own;
  const ForeignCall foreign;
  g_subscription.close();
}

}  // namespace tidemark::injector
