// Listens to PyTorch's caching allocator, using PyTorch's own ABI.
//
// The virtual functions of the allocator class change with almost every release, so this file is
// compiled against the torch that the process uses (2.2 to 2.13) and must compile with all of them.
// Members that some versions lack are detected, and nothing that has moved is named.
#ifdef TIDEMARK_ANNOTATIONS
#include <ATen/record_function.h>
#endif
#include <c10/cuda/CUDACachingAllocator.h>
#if defined(TIDEMARK_ANNOTATIONS) && __has_include(<torch/csrc/api/include/torch/version.h>)
#include <torch/csrc/api/include/torch/version.h>
// From 2.13 on a node counts its own references, and only this large header can release one.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
#define TIDEMARK_AUTOGRAD
#include <torch/csrc/autograd/function.h>

#include <typeinfo>
#endif
#endif

// Statistics of pinned memory that can be asked for without Python.
#if defined(TIDEMARK_ANNOTATIONS) && defined(TORCH_VERSION_MAJOR) && \
    __has_include(<ATen/core/CachingHostAllocator.h>)
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
#define TIDEMARK_PINNED
#include <ATen/core/CachingHostAllocator.h>
#endif
#endif

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "torch_bridge_abi.h"

namespace {

namespace allocator_space = c10::cuda::CUDACachingAllocator;

const TidemarkBridgeHost* g_host = nullptr;

template <typename T, typename = void>
struct has_mempool : std::false_type {};
template <typename T>
struct has_mempool<T, std::void_t<decltype(std::declval<const T&>().mempool_)>> : std::true_type {};

template <typename T, typename = void>
struct has_compile_context : std::false_type {};
template <typename T>
struct has_compile_context<T, std::void_t<decltype(std::declval<const T&>().compile_context_)>>
    : std::true_type {};

template <typename T, typename = void>
struct has_metadata : std::false_type {};
template <typename T>
struct has_metadata<T, std::void_t<decltype(std::declval<const T&>().user_metadata_)>>
    : std::true_type {};

template <typename T, typename = void>
struct has_config : std::false_type {};
template <typename T>
struct has_config<T, std::void_t<decltype(std::declval<const T&>().config_metadata)>>
    : std::true_type {};

template <typename T, typename = void>
struct has_is_expandable : std::false_type {};
template <typename T>
struct has_is_expandable<T, std::void_t<decltype(std::declval<const T&>().is_expandable)>>
    : std::true_type {};

template <typename Entry>
uint32_t action_of(const Entry& entry) {
  switch (entry.action_) {
    case Entry::ALLOC:
      return TIDEMARK_TORCH_ALLOC;
    case Entry::FREE_REQUESTED:
      return TIDEMARK_TORCH_FREE_REQUESTED;
    case Entry::FREE_COMPLETED:
      return TIDEMARK_TORCH_FREE_COMPLETED;
    case Entry::SEGMENT_ALLOC:
      return TIDEMARK_TORCH_SEGMENT_ALLOC;
    case Entry::SEGMENT_FREE:
      return TIDEMARK_TORCH_SEGMENT_FREE;
    case Entry::SEGMENT_MAP:
      return TIDEMARK_TORCH_SEGMENT_MAP;
    case Entry::SEGMENT_UNMAP:
      return TIDEMARK_TORCH_SEGMENT_UNMAP;
    case Entry::OOM:
      return TIDEMARK_TORCH_OOM;
    case Entry::SNAPSHOT:
      return TIDEMARK_TORCH_SNAPSHOT;
  }
  return TIDEMARK_TORCH_NONE;
}

// Under the allocator's lock: no CUDA, no torch, no Python, no exception.
struct Listener {
  template <typename Entry>
  void operator()(const Entry& entry) const noexcept {
    TidemarkTorchEvent event{};
    event.address = static_cast<uint64_t>(entry.addr_);
    event.size_bytes = static_cast<uint64_t>(entry.size_);
    event.stream = reinterpret_cast<uintptr_t>(static_cast<const void*>(entry.stream_));
    event.device = entry.device_;
    event.action = action_of(entry);
    if constexpr (has_mempool<Entry>::value) {
      event.pool_first = entry.mempool_.first;
      event.pool_second = entry.mempool_.second;
    }
    if constexpr (has_compile_context<Entry>::value) {
      if (!entry.compile_context_.empty()) event.compile_context = entry.compile_context_.c_str();
    }
    if constexpr (has_metadata<Entry>::value) {
      if (!entry.user_metadata_.empty()) event.metadata = entry.user_metadata_.c_str();
    }
    g_host->on_event(&event);
  }
};

template <typename Snapshot>
void report_settings(const Snapshot& snapshot) {
  if constexpr (has_config<Snapshot>::value) {
    const auto& config = snapshot.config_metadata;
    const auto say = [](const char* key, const std::string& value) {
      g_host->on_setting(key, value.c_str());
    };
    say("PYTORCH_CUDA_ALLOC_CONF", config.last_allocator_settings);
    say("max_split_size", std::to_string(static_cast<long long>(config.max_split_size)));
    say("garbage_collection_threshold", std::to_string(config.garbage_collection_threshold));
    say("expandable_segments", config.expandable_segments ? "True" : "False");
    size_t step = 1;
    for (const size_t divisions : config.roundup_power2_divisions) {
      say(("roundup_power2_divisions." + std::to_string(step)).c_str(), std::to_string(divisions));
      step *= 2;
    }
  }
}

template <typename Segment>
void report_segment(const Segment& segment) {
  TidemarkTorchState state{};
  state.address = static_cast<uint64_t>(segment.address);
  state.size_bytes = segment.total_size;
  state.allocated_bytes = segment.allocated_size;
  state.active_bytes = segment.active_size;
  state.requested_bytes = segment.requested_size;
  state.stream = reinterpret_cast<uintptr_t>(static_cast<const void*>(segment.stream));
  state.pool_first = segment.owner_private_pool_id.first;
  state.pool_second = segment.owner_private_pool_id.second;
  state.device = segment.device;
  if constexpr (has_is_expandable<Segment>::value) state.flags |= segment.is_expandable ? 1u : 0u;
  state.flags |= segment.is_large ? 0u : 2u;
  g_host->on_state(&state);
  uint64_t address = state.address;
  for (const auto& block : segment.blocks) {
    TidemarkTorchState part{};
    part.is_block = 1;
    part.address = address;
    part.size_bytes = block.size;
    part.requested_bytes = block.requested_size;
    part.device = segment.device;
    part.condition = block.allocated ? 1u : block.active ? 2u : 3u;
    g_host->on_state(&part);
    address += block.size;
  }
}

#ifdef TIDEMARK_ANNOTATIONS
std::unique_ptr<at::ObserverContext> begin_annotation(const at::RecordFunction& function) {
  g_host->on_annotation(function.name(), 1);
  return nullptr;
}

void end_annotation(const at::RecordFunction& function, at::ObserverContext*) {
  g_host->on_annotation(function.name(), 0);
}
#endif

#ifdef TIDEMARK_PINNED
// From 2.10 on "allocated" are all blocks and "active" those in use; before, "reserved" and
// "allocated". The second number is only right from 2.13 on (pytorch#171662). Before, a block that
// comes back after an event is not subtracted, and from 2.10 on no block is: it grows without end.
//
// The first number is read before the others, under other locks, so a block that is made meanwhile
// is only part of the second.
template <typename Stats>
auto read_pinned(const Stats& stats, uint64_t* held, uint64_t* in_use, int)
    -> decltype(stats.active_bytes.current, void()) {
  *held = static_cast<uint64_t>(stats.allocated_bytes.current);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  *in_use = std::min(static_cast<uint64_t>(stats.active_bytes.current), *held);
#else
  *in_use = TIDEMARK_TORCH_UNKNOWN;
#endif
}
template <typename Stats>
void read_pinned(const Stats& stats, uint64_t* held, uint64_t* in_use, long) {
  *held = static_cast<uint64_t>(stats.reserved_bytes.current);
  *in_use = TIDEMARK_TORCH_UNKNOWN;
}
#endif

// The backend cudaMallocAsync has nothing to listen to: its allocator is the driver.
template <typename Allocator>
auto is_driver(Allocator* allocator, int) -> decltype(allocator->name() == "cudaMallocAsync") {
  return allocator->name() == "cudaMallocAsync";
}
template <typename Allocator>
bool is_driver(Allocator*, long) {
  return false;
}

// The part of the device's memory that the allocator may reserve; 1 if it has no limit. Takes no
// lock (from torch 2.6 on).
template <typename Allocator>
auto read_fraction(Allocator* allocator, int device, int)
    -> decltype(static_cast<double>(allocator->getMemoryFraction(c10::DeviceIndex{}))) {
  return allocator->getMemoryFraction(static_cast<c10::DeviceIndex>(device));
}
template <typename Allocator>
double read_fraction(Allocator*, int, long) {
  return 1;
}

// The first entry of each statistic is the sum over small and large blocks.
template <typename Allocator>
auto read_numbers(Allocator* allocator, int device, TidemarkTorchNumbers* out, int)
    -> decltype(allocator->getDeviceStats(c10::DeviceIndex{}).reserved_bytes[0].current, 1) {
  const auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  out->allocated = static_cast<uint64_t>(stats.allocated_bytes[0].current);
  out->requested = static_cast<uint64_t>(stats.requested_bytes[0].current);
  out->reserved = static_cast<uint64_t>(stats.reserved_bytes[0].current);
  out->retries = static_cast<uint64_t>(stats.num_alloc_retries);
  out->ooms = static_cast<uint64_t>(stats.num_ooms);
  return 1;
}
template <typename Allocator>
int read_numbers(Allocator*, int, TidemarkTorchNumbers*, long) {
  return 0;
}

template <typename Allocator>
uint64_t read_largest_free(Allocator* allocator, int device) {
  size_t largest = 1;  // 0 would make torch query the driver
  allocator->cacheInfo(static_cast<c10::DeviceIndex>(device), &largest);
  return largest == 1 ? 0 : largest;
}

}  // namespace

extern "C" {

#ifdef TIDEMARK_ANNOTATIONS
// User scopes only: operators must not be slowed down by a callback that ignores them.
__attribute__((visibility("default"))) int tidemark_torch_annotate(const TidemarkBridgeHost* host) {
  if (host == nullptr || host->version != TIDEMARK_BRIDGE_VERSION) return -1;
  try {
    g_host = host;
    at::addGlobalCallback(at::RecordFunctionCallback(begin_annotation, end_annotation)
                              .scopes({at::RecordScope::USER_SCOPE}));
    return 1;
  } catch (...) {
    return -1;
  }
}
#endif

#ifdef TIDEMARK_PINNED
__attribute__((visibility("default"))) int tidemark_torch_pinned(uint64_t* held, uint64_t* in_use) {
  try {
    auto* const allocator = at::getHostAllocator(at::DeviceType::CUDA);
    if (allocator == nullptr) return 0;
    read_pinned(allocator->get_stats(), held, in_use, 0);
    return 1;
  } catch (...) {
    return 0;
  }
}
#endif

#ifdef TIDEMARK_AUTOGRAD
__attribute__((visibility("default"))) const char* tidemark_torch_node(uint64_t* sequence,
                                                                       uint64_t* thread) {
  try {
    const auto node = torch::autograd::get_current_node();
    if (!node) return nullptr;
    const torch::autograd::Node& running = *node;
    *sequence = running.sequence_nr();
    *thread = running.thread_id();
    return typeid(running).name();
  } catch (...) {
    return nullptr;
  }
}
#endif

__attribute__((visibility("default"))) int tidemark_torch_attach(const TidemarkBridgeHost* host) {
  if (host == nullptr || host->version != TIDEMARK_BRIDGE_VERSION) return -1;
  try {
    auto* const allocator = allocator_space::get();
    if (allocator == nullptr || !allocator->initialized()) return 0;
    if (is_driver(allocator, 0)) return TIDEMARK_TORCH_IS_DRIVER;
    g_host = host;
    allocator->attachAllocatorTraceTracker(Listener());
    return 1;
  } catch (...) {
    return -1;
  }
}

__attribute__((visibility("default"))) int tidemark_torch_read_state(int with_state) {
  try {
    const auto snapshot = allocator_space::get()->snapshot();
    report_settings(snapshot);
    if (with_state != 0) {
      for (const auto& segment : snapshot.segments) report_segment(segment);
    }
    return 1;
  } catch (...) {
    return -1;
  }
}

__attribute__((visibility("default"))) int tidemark_torch_numbers(int device,
                                                                  TidemarkTorchNumbers* out) {
  try {
    auto* const allocator = allocator_space::get();
    if (allocator == nullptr || !allocator->initialized()) return 0;
    if (read_numbers(allocator, device, out, 0) == 0) return 0;
    // With cudaMallocAsync the free memory is the driver's, and the rest is not counted: it is 0.
    if (is_driver(allocator, 0)) {
      out->requested = out->largest_free = TIDEMARK_TORCH_UNKNOWN;
      out->retries = out->ooms = TIDEMARK_TORCH_UNKNOWN;
    } else {
      out->largest_free = read_largest_free(allocator, device);
    }
    return 1;
  } catch (...) {
    return 0;
  }
}

__attribute__((visibility("default"))) double tidemark_torch_fraction(int device) {
  try {
    auto* const allocator = allocator_space::get();
    return allocator != nullptr ? read_fraction(allocator, device, 0) : 1;
  } catch (...) {
    return 1;
  }
}

__attribute__((visibility("default"))) uint64_t tidemark_torch_largest_free(int device) {
  try {
    return read_largest_free(allocator_space::get(), device);
  } catch (...) {
    return 0;
  }
}

}  // extern "C"
