// The subscribers and their enabled callbacks: one, as up to CUDA 13.2, or several that asked for
// it, as from 13.3 on.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "simgpu/cupti_state.h"

namespace tidemark::simgpu {
namespace {

constexpr uint32_t kDomains = 7;
constexpr uint32_t kIds = 1024;

struct Subscriber {
  std::atomic<CUpti_CallbackFunc> callback{nullptr};  // nullptr: not in use
  std::atomic<void*> userdata{nullptr};
  std::atomic<uint32_t> running{0};  // callbacks in progress
  std::atomic<bool> enabled[kDomains][kIds]{};
};

struct Subscribers {
  std::mutex mutex;  // for subscribing and unsubscribing
  bool shared = false;
  Subscriber all[kMostSubscribers];
};

Subscribers& state() {
  static Subscribers& subscribers = *new Subscribers;
  return subscribers;
}

// Of this thread: callbacks in progress, and what they keep from ENTER to EXIT of one call.
thread_local uint32_t t_depth[kMostSubscribers] = {};
thread_local uint64_t t_scratch[kMostSubscribers] = {};

CUpti_SubscriberHandle handle_of(size_t slot) {
  return reinterpret_cast<CUpti_SubscriberHandle>(&state().all[slot]);
}

bool anybody_subscribed() {
  return std::any_of(std::begin(state().all), std::end(state().all),
                     [](const Subscriber& s) { return s.callback.load() != nullptr; });
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

void disable_all(Subscriber& subscriber) {
  for (auto& domain : subscriber.enabled) {
    for (auto& id : domain) id.store(false, std::memory_order_relaxed);
  }
}

void invoke(size_t slot, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  Subscriber& subscriber = state().all[slot];
  ++t_depth[slot];
  subscriber.running.fetch_add(1);
  const CUpti_CallbackFunc callback = subscriber.callback.load();
  if (callback != nullptr) callback(subscriber.userdata.load(), domain, id, data);
  subscriber.running.fetch_sub(1);
  --t_depth[slot];
}

Subscriber* find(CUpti_SubscriberHandle handle) {
  const size_t slot = slot_of(handle);
  return slot < kMostSubscribers ? &state().all[slot] : nullptr;
}

bool is_enabled(size_t slot, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  return state().all[slot].enabled[domain][id].load(std::memory_order_acquire);
}

}  // namespace

size_t slot_of(CUpti_SubscriberHandle handle) {
  size_t slot = 0;
  while (slot < kMostSubscribers &&
         (handle != handle_of(slot) || state().all[slot].callback.load() == nullptr)) {
    ++slot;
  }
  return slot;
}

bool is_shared() {
  const std::lock_guard lock(state().mutex);
  return state().shared && anybody_subscribed();
}

CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata,
                      bool shared) {
  if (out == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(state().mutex);
  if (anybody_subscribed() && !(shared && state().shared)) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    Subscriber& subscriber = state().all[slot];
    if (subscriber.callback.load() != nullptr) continue;
    state().shared = shared;
    disable_all(subscriber);
    subscriber.userdata.store(userdata);
    subscriber.callback.store(callback);
    *out = handle_of(slot);
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_MAX_LIMIT_REACHED;
}

CUptiResult unsubscribe(CUpti_SubscriberHandle handle) {
  const std::lock_guard lock(state().mutex);
  const size_t slot = slot_of(handle);
  if (slot == kMostSubscribers) return CUPTI_ERROR_INVALID_PARAMETER;
  Subscriber& subscriber = state().all[slot];
  subscriber.callback.store(nullptr);
  disable_all(subscriber);
  while (subscriber.running.load() > t_depth[slot]) sched_yield();
  if (state().shared) forget_activity(slot);
  return CUPTI_SUCCESS;
}

CUptiResult enable_callback(bool on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                            CUpti_CallbackId id) {
  Subscriber* const subscriber = find(handle);
  if (subscriber == nullptr || id == 0 || id >= id_count(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && id == CBID_cuLaunchKernel &&
      driver_variable("SIMGPU_NO_LAUNCH_CALLBACKS") != nullptr) {
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  subscriber->enabled[domain][id].store(on);
  return CUPTI_SUCCESS;
}

CUptiResult enable_domain(bool on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain) {
  Subscriber* const subscriber = find(handle);
  if (subscriber == nullptr || id_count(domain) == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  for (uint32_t id = 1; id < id_count(domain); ++id) subscriber->enabled[domain][id].store(on);
  return CUPTI_SUCCESS;
}

CUptiResult callback_state(uint32_t* on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                           CUpti_CallbackId id) {
  Subscriber* const subscriber = find(handle);
  if (on == nullptr || subscriber == nullptr || id >= id_count(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  *on = subscriber->enabled[domain][id].load() ? 1 : 0;
  return CUPTI_SUCCESS;
}

bool callback_wanted(uint32_t driver_id) {
  if (driver_id >= kIds) return false;
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (is_enabled(slot, CUPTI_CB_DOMAIN_DRIVER_API, driver_id)) return true;
  }
  return false;
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
  data.correlationId = site.correlation;
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (!is_enabled(slot, CUPTI_CB_DOMAIN_DRIVER_API, site.id)) continue;
    // Of the first subscriber it lives in the call, of the others in the thread.
    if (slot > 0 && !site.exit) t_scratch[slot] = 0;
    data.correlationData = slot == 0 ? site.scratch : &t_scratch[slot];
    invoke(slot, CUPTI_CB_DOMAIN_DRIVER_API, site.id, &data);
  }
}

static void call_back(uint32_t id, const void* data) {
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (is_enabled(slot, CUPTI_CB_DOMAIN_RESOURCE, id)) {
      invoke(slot, CUPTI_CB_DOMAIN_RESOURCE, id, data);
    }
  }
}

void call_back(const ResourceEvent& event) {
  if (event.id == CUPTI_CBID_RESOURCE_CU_INIT_FINISHED) {
    call_back(event.id, nullptr);  // seen with CUPTI 13.0: no data
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
  call_back(event.id, &data);
}

}  // namespace tidemark::simgpu
