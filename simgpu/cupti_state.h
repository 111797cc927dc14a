// The two parts of the stand-in CUPTI: the subscriber, and the activity records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "abi/cupti.h"
#include "simgpu/hooks.h"

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::simgpu {

using namespace cupti;  // NOLINT: the stand-in uses CUPTI's names throughout

// The driver's table; loads libcuda.so.1 and installs our hooks on first use. nullptr: no driver.
const TracingTable* driver_table();

// A Lookup in the driver's copy of the environment.
const char* driver_variable(const char* name);

// CLOCK_REALTIME, or the clock that the client registered.
int64_t clock_ns();
// Converts a time of the driver to the clock of the client.
uint64_t client_time(int64_t driver_ns);

// ---- callbacks (cupti_subscriber.cpp) ----
// Each subscriber has a slot. Slot 0 also has the activity records of clients that use the calls
// without a subscriber.
inline constexpr size_t kMostSubscribers = 4;
size_t slot_of(CUpti_SubscriberHandle subscriber);  // kMostSubscribers: there is no such one
// Whether the process uses the calls that name a subscriber: then all others are refused.
bool is_shared();
CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata,
                      bool shared);
CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                            CUpti_CallbackId id);
CUptiResult enable_domain(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain);
CUptiResult callback_state(uint32_t* on, CUpti_SubscriberHandle subscriber,
                           CUpti_CallbackDomain domain, CUpti_CallbackId id);
bool callback_wanted(uint32_t driver_id);
void call_back(const ApiSite& site);
void call_back(const ResourceEvent& event);

// ---- activity (cupti_activity.cpp) ----
using BufferRequest = std::function<void(uint8_t** buffer, size_t* size, size_t* max_records)>;
using BufferComplete = std::function<void(uint8_t* buffer, size_t size, size_t valid)>;

CUptiResult enable_kind(size_t slot, CUpti_ActivityKind kind, bool on);
bool kind_enabled(CUpti_ActivityKind kind);  // by anybody
CUptiResult register_buffers(size_t slot, BufferRequest request, BufferComplete complete);
// The subscriber has gone.
void forget_activity(size_t slot);
// Delivers buffers with complete records; `forced`: also work that is still running, without its
// times.
CUptiResult flush(bool forced);
CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record);
size_t take_dropped(size_t slot);
CUptiResult attribute(CUpti_ActivityAttribute attribute, size_t* size, void* value, bool set);
uint32_t thread_id();
void set_thread_id_type(CUpti_ActivityThreadIdType type);
CUpti_ActivityThreadIdType thread_id_type();

void record(const ApiSite& site);
void record(const MemoryEvent& event);
void record(const PoolEvent& event);
void record(const WorkEvent& event);
// A context was created: kernel tracing allocates its buffers there.
void prepare_context(cuda::CUcontext context);

}  // namespace tidemark::simgpu
