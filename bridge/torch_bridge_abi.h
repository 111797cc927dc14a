// The interface between libtidemark.so and the bridge.
//
// The bridge is compiled on the user's machine, by another compiler and with another C++ ABI, so
// this is plain C with fixed layouts. The file is also written to the cache next to the bridge's
// source, so it includes none of our headers.
#ifndef TIDEMARK_TORCH_BRIDGE_ABI_H
#define TIDEMARK_TORCH_BRIDGE_ABI_H

#include <stdint.h>

#define TIDEMARK_BRIDGE_VERSION 1u

// Same values as tidemark::FrameworkAction.
enum TidemarkTorchAction {
  TIDEMARK_TORCH_NONE = 0,
  TIDEMARK_TORCH_ALLOC = 1,
  TIDEMARK_TORCH_FREE_REQUESTED = 2,
  TIDEMARK_TORCH_FREE_COMPLETED = 3,
  TIDEMARK_TORCH_SEGMENT_ALLOC = 4,
  TIDEMARK_TORCH_SEGMENT_FREE = 5,
  TIDEMARK_TORCH_SEGMENT_MAP = 6,
  TIDEMARK_TORCH_SEGMENT_UNMAP = 7,
  TIDEMARK_TORCH_OOM = 8,
  TIDEMARK_TORCH_SNAPSHOT = 9
};

// An entry of the allocator's trace. Strings are valid during the call.
struct TidemarkTorchEvent {
  uint64_t address;  // OOM: bytes free on the device
  uint64_t size_bytes;
  uint64_t stream;
  uint64_t pool_first;
  uint64_t pool_second;
  const char* compile_context;  // may be null
  const char* metadata;         // may be null
  int32_t device;
  uint32_t action;
};

// One segment or one block of the allocator's current state.
struct TidemarkTorchState {
  uint64_t address;
  uint64_t size_bytes;
  uint64_t allocated_bytes;  // segments
  uint64_t active_bytes;     // segments
  uint64_t requested_bytes;
  uint64_t stream;
  uint64_t pool_first;
  uint64_t pool_second;
  int32_t device;
  uint32_t is_block;
  uint32_t condition;  // blocks: as tidemark::BlockCondition
  uint32_t flags;      // segments: as tidemark::SegmentState::flags
};

struct TidemarkBridgeHost {
  uint32_t version;
  // Called under the allocator's device lock.
  void (*on_event)(const struct TidemarkTorchEvent* event);
  void (*on_state)(const struct TidemarkTorchState* state);
  void (*on_setting)(const char* key, const char* value);
  // A range named by the program (record_function), on the calling thread.
  void (*on_annotation)(const char* name, int begins);
};

// Functions exported by the bridge.
//
// tidemark_torch_attach: 1 attached, 0 the allocator is not initialised yet, -1 not possible,
// TIDEMARK_TORCH_IS_DRIVER: not needed, because every allocation is one of the driver's
// (cudaMallocAsync).
#define TIDEMARK_TORCH_IS_DRIVER (-2)
typedef int (*TidemarkTorchAttach)(const struct TidemarkBridgeHost* host);
// Reports the current settings through on_setting and, if `with_state`, everything that exists now
// through on_state.
typedef int (*TidemarkTorchReadState)(int with_state);
// Size of the largest free block; takes the device's lock.
typedef uint64_t (*TidemarkTorchLargestFree)(int device);

// The fraction of the device's memory that the allocator may reserve; 1: no limit, or a torch
// before 2.6, which does not tell. Takes no lock.
typedef double (*TidemarkTorchFraction)(int device);

#define TIDEMARK_TORCH_UNKNOWN UINT64_MAX

// The allocator's statistics of a device now; each of them may be TIDEMARK_TORCH_UNKNOWN.
struct TidemarkTorchNumbers {
  uint64_t allocated;
  uint64_t requested;
  uint64_t reserved;
  uint64_t largest_free;
  uint64_t retries;  // since the program began
  uint64_t ooms;
};
// Takes the device lock for a moment. 1 if they are known. Works without being attached.
typedef int (*TidemarkTorchAskNumbers)(int device, struct TidemarkTorchNumbers* out);

// Pinned host memory: bytes of all blocks of torch's allocator, and of those given out or waiting
// for a stream, which are at most as many, or TIDEMARK_TORCH_UNKNOWN. 1 if the first is known.
// Takes locks of that allocator for a moment, not the GIL. Missing in a bridge for a torch
// before 2.8, or compiled without annotations.
typedef int (*TidemarkTorchPinned)(uint64_t* held, uint64_t* in_use);

// Mangled name of the type of the autograd node that runs on the calling thread, its sequence
// number and the number of the thread that made it; null if there is none. The same pointer for the
// same type. Missing in a bridge for a torch before 2.13, which is asked without it, or compiled
// without annotations.
typedef const char* (*TidemarkTorchNode)(uint64_t* sequence, uint64_t* thread);

// Reports ranges from now on through on_annotation. Missing in a bridge compiled without
// annotations.
typedef int (*TidemarkTorchAnnotate)(const struct TidemarkBridgeHost* host);

#endif
