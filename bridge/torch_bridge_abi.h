// What libtidemark.so and the bridge say to each other.
//
// The bridge is compiled on the user's machine, by another compiler and against another C++ ABI, so
// this is plain C with fixed layouts. The file is also written beside the bridge's source in the
// cache, and therefore includes nothing of ours.
#ifndef TIDEMARK_TORCH_BRIDGE_ABI_H
#define TIDEMARK_TORCH_BRIDGE_ABI_H

#include <stdint.h>

#define TIDEMARK_BRIDGE_VERSION 1u

// Same order as tidemark::FrameworkAction.
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

// An entry of the allocator's trace. Texts live as long as the call.
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

// One segment or one block of the allocator's present state.
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
  // Called under the allocator's lock of that device.
  void (*on_event)(const struct TidemarkTorchEvent* event);
  void (*on_state)(const struct TidemarkTorchState* state);
  void (*on_setting)(const char* key, const char* value);
  // A range that the program named (record_function), on the calling thread.
  void (*on_annotation)(const char* name, int begins);
};

// What the bridge exports.
//
// tidemark_torch_attach: 1 attached, 0 the allocator is not initialised yet, -1 it cannot be.
typedef int (*TidemarkTorchAttach)(const struct TidemarkBridgeHost* host);
// The settings in force, through on_setting; and, if asked, everything that exists now, through
// on_state.
typedef int (*TidemarkTorchReadState)(int with_state);
// Size of the largest free block; takes the device's lock.
typedef uint64_t (*TidemarkTorchLargestFree)(int device);

// Bytes that are handed out and bytes of all segments now; takes the device's lock for a moment. 1
// when they are known. No attachment is needed.
typedef int (*TidemarkTorchTotals)(int device, uint64_t* allocated, uint64_t* reserved);

// Ranges from here on, through on_annotation. Missing in a bridge that had to do without them.
typedef int (*TidemarkTorchAnnotate)(const struct TidemarkBridgeHost* host);

#endif
