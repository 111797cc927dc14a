// The subscriber and its enabled callbacks. CUPTI 13.0 allows one subscriber.
#include <sched.h>

#include <atomic>
#include <mutex>

#include "simgpu/cupti_state.h"

namespace tidemark::simgpu {
namespace {

constexpr uint32_t kDomains = 7;
constexpr uint32_t kIds = 1024;

struct Subscriber {
  std::mutex mutex;  // for subscribing and unsubscribing
  std::atomic<CUpti_CallbackFunc> callback{nullptr};
  std::atomic<void*> userdata{nullptr};
  std::atomic<uint32_t> running{0};  // callbacks in progress
  std::atomic<bool> enabled[kDomains][kIds]{};
};

Subscriber& state() {
  static Subscriber& subscriber = *new Subscriber;
  return subscriber;
}

thread_local uint32_t t_depth = 0;

CUpti_SubscriberHandle handle() {
  return reinterpret_cast<CUpti_SubscriberHandle>(&state());
}

uint32_t id_count(CUpti_CallbackDomain domain) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      return kDriverCallbackCount;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
      return 600;
    case CUPTI_CB_DOMAIN_RESOURCE:
      return 24;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
    case CUPTI_CB_DOMAIN_STATE:
      return 4;
    case CUPTI_CB_DOMAIN_NVTX:
      return 64;
    default:
      return 0;
  }
}

void disable_all() {
  for (auto& domain : state().enabled) {
    for (auto& id : domain) id.store(false, std::memory_order_relaxed);
  }
}

// A callback in progress. Unsubscribing waits for all except those on its own thread.
class Running {
 public:
  Running() {
    ++t_depth;
    state().running.fetch_add(1);
  }
  ~Running() {
    state().running.fetch_sub(1);
    --t_depth;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

void invoke(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const Running running;
  const CUpti_CallbackFunc callback = state().callback.load();
  if (callback != nullptr) callback(state().userdata.load(), domain, id, data);
}

}  // namespace

CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata) {
  if (out == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(state().mutex);
  if (state().callback.load() != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  disable_all();
  state().userdata.store(userdata);
  state().callback.store(callback);
  *out = handle();
  return CUPTI_SUCCESS;
}

CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(state().mutex);
  if (subscriber != handle() || state().callback.load() == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  state().callback.store(nullptr);
  disable_all();
  while (state().running.load() > t_depth) sched_yield();
  return CUPTI_SUCCESS;
}

CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                            CUpti_CallbackId id) {
  if (subscriber != handle() || state().callback.load() == nullptr || id == 0 ||
      id >= id_count(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  state().enabled[domain][id].store(on);
  return CUPTI_SUCCESS;
}

CUptiResult enable_domain(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain) {
  if (subscriber != handle() || state().callback.load() == nullptr || id_count(domain) == 0) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  for (uint32_t id = 1; id < id_count(domain); ++id) state().enabled[domain][id].store(on);
  return CUPTI_SUCCESS;
}

CUptiResult callback_state(uint32_t* on, CUpti_SubscriberHandle subscriber,
                           CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (on == nullptr || subscriber != handle() || id >= id_count(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  *on = state().enabled[domain][id].load() ? 1 : 0;
  return CUPTI_SUCCESS;
}

bool callback_wanted(uint32_t driver_id) {
  return driver_id < kIds &&
         state().enabled[CUPTI_CB_DOMAIN_DRIVER_API][driver_id].load(std::memory_order_acquire);
}

void call_back(const ApiSite& site) {
  if (!callback_wanted(site.id)) return;
  CUpti_CallbackData data{};
  data.callbackSite = site.exit ? CUPTI_API_EXIT : CUPTI_API_ENTER;
  data.functionName = site.name;
  data.functionParams = site.params;
  data.functionReturnValue = site.result;
  data.symbolName = site.symbol;
  data.context = site.context;
  data.contextUid = site.context_id;
  data.correlationData = site.scratch;
  data.correlationId = site.correlation;
  invoke(CUPTI_CB_DOMAIN_DRIVER_API, site.id, &data);
}

void call_back(const ResourceEvent& event) {
  if (!state().enabled[CUPTI_CB_DOMAIN_RESOURCE][event.id].load()) return;
  if (event.id == CUPTI_CBID_RESOURCE_CU_INIT_FINISHED) {
    invoke(CUPTI_CB_DOMAIN_RESOURCE, event.id, nullptr);  // seen with CUPTI 13.0: no data
    return;
  }
  CUpti_ModuleResourceData module = event.module;
  CUpti_GraphData graph = event.graph;
  CUpti_ResourceData data{};
  data.context = event.context;
  data.resourceHandle.stream = event.stream;
  switch (event.id) {
    case CUPTI_CBID_RESOURCE_MODULE_LOADED:
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      data.resourceDescriptor = &module;
      break;
    case CUPTI_CBID_RESOURCE_GRAPH_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      data.resourceDescriptor = &graph;
      break;
    default:
      break;
  }
  invoke(CUPTI_CB_DOMAIN_RESOURCE, event.id, &data);
}

}  // namespace tidemark::simgpu
