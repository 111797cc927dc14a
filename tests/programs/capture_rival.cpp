// Another injection library. It prints that it was started, and uses CUPTI if asked to:
// RIVAL_SUBSCRIBES=1 takes the only subscription, RIVAL_SUBSCRIBES=shared is one subscriber among
// several and prints at the end of the process what it got.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "abi/cupti.h"
#include "abi/driver_callback_ids.h"

namespace {

using namespace tidemark::cupti;

constexpr size_t kBufferBytes = 1 << 20;
alignas(8) uint8_t g_buffer[kBufferBytes];
CUpti_SubscriberHandle g_subscriber = nullptr;
void* g_cupti = nullptr;
std::atomic<int> g_callbacks{0};
std::atomic<int> g_kernels{0};

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(g_cupti, name));
}

void on_callback(void*, CUpti_CallbackDomain, uint32_t, const void*) {
  g_callbacks.fetch_add(1);
}

void give_buffer(uint8_t** buffer, size_t* size, size_t* records, void*) {
  *buffer = g_buffer;
  *size = kBufferBytes;
  *records = 0;
}

void take_buffer(uint8_t* buffer, size_t, size_t valid, void*) {
  const auto next = find<cuptiActivityGetNextRecord_v2_fn>("cuptiActivityGetNextRecord_v2");
  CUpti_Activity* record = nullptr;
  while (next(g_subscriber, buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) g_kernels.fetch_add(1);
  }
}

void say_what_came() {
  find<cuptiActivityFlushAll_fn>("cuptiActivityFlushAll")(1);
  std::printf("rival: %d callbacks, %d kernels\n", g_callbacks.load(), g_kernels.load());
  std::fflush(stdout);
}

bool share_cupti() {
  CUpti_SubscriberParams_13_2 params{};
  params.structSize = sizeof params;
  params.subscriberName = "rival";
  params.allowMultipleSubscribers = 1;
  if (find<cuptiSubscribe_v2_fn>("cuptiSubscribe_v2")(
          &g_subscriber, on_callback, nullptr,
          reinterpret_cast<CUpti_SubscriberParams*>(&params)) != CUPTI_SUCCESS) {
    return false;
  }
  find<cuptiEnableCallback_fn>("cuptiEnableCallback")(1, g_subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                                                      CBID_cuMemAlloc_v2);
  find<cuptiActivityRegisterCallbacks_v2_fn>("cuptiActivityRegisterCallbacks_v2")(
      g_subscriber, give_buffer, take_buffer);
  return find<cuptiActivityEnable_v2_fn>("cuptiActivityEnable_v2")(
             g_subscriber, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, nullptr) == CUPTI_SUCCESS;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  std::puts("rival started");
  std::fflush(stdout);
  const char* const how = std::getenv("RIVAL_SUBSCRIBES");
  if (how == nullptr) return 1;
  g_cupti = dlopen("libcupti.so.13", RTLD_NOW);
  if (g_cupti == nullptr) return 0;
  if (std::string(how) != "shared") {
    find<cuptiSubscribe_fn>("cuptiSubscribe")(&g_subscriber, on_callback, nullptr);
    return 1;
  }
  if (share_cupti()) {
    std::atexit(say_what_came);
  } else {
    std::puts("rival: refused");
    std::fflush(stdout);
  }
  return 1;
}
