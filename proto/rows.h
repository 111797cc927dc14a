// The rows of a trace: one struct per table of tidemark.proto.
//
// A recorder fills in rows and a reader gets them back; on disk the members of many rows are stored
// together as columns (see FORMAT.md). Members are unsigned or signed integers and enums only, so
// that one codec serves every table (tables.h). 0 means "none" or "unknown" in every id and handle,
// and a column of zeros is not stored. `tidemark.proto` declares the same in a language-neutral
// way; a test compares the two field by field.
#pragma once

#include <cstdint>

namespace tidemark {

// Identity of a table in a frame header. Numbers are part of the format: never reuse one.
enum class BlockKind : uint16_t {
  kNone = 0,
  kProcesses = 1,
  kDevices = 2,
  kSettings = 3,
  kStrings = 4,
  kModules = 5,
  kFrames = 6,
  kStacks = 7,
  kThreads = 8,
  kPools = 9,
  kNnModules = 10,
  kDriverEvents = 16,
  kFrameworkEvents = 17,
  kOutOfMemory = 18,
  kSegmentStates = 19,
  kBlockStates = 20,
  kCounters = 21,
  kKernels = 22,
  kCopies = 23,
  kCommunicators = 24,
  kNcclOperations = 25,
  kMarks = 26,
  kTensorTags = 27,
  kClockSamples = 28,
  kAlignments = 29,
  kHealth = 30,
  kSummaries = 31,
  kIndex = 63,
};

enum class Source : uint8_t { kNone, kCapture, kTorchSnapshot, kSynthetic };

struct Process {
  int64_t start_ns;
  uint64_t pid;
  int64_t rank;  // -1: not part of a ranked job
  int64_t local_rank;
  uint64_t world_size;
  uint64_t parent_pid;
  uint32_t host;     // string
  uint32_t command;  // string
  uint32_t job;      // string
  uint32_t tool_version;
  uint32_t driver_version;
  uint32_t framework;  // string, "torch 2.11.0"
  Source source;
};

struct Device {
  int64_t ordinal;
  uint64_t total_bytes;
  uint64_t reserved_bytes;  // by driver and firmware (NVML)
  uint32_t name;            // string
  uint32_t uuid;            // string
  uint32_t bus;             // string
  uint32_t compute_major;
  uint32_t compute_minor;
};

enum class SettingScope : uint8_t { kNone, kEnvironment, kAllocator, kTool, kImported };

struct Setting {
  uint32_t key;    // string
  uint32_t value;  // string
  SettingScope scope;
};

struct Module {
  uint32_t id;
  uint64_t base;
  uint64_t size_bytes;
  uint32_t path;      // string
  uint32_t build_id;  // string, hexadecimal
};

enum class FrameKind : uint8_t { kNone, kPython, kNative, kTorchScript, kAutograd, kThread };

struct Frame {
  uint32_t id;
  uint32_t function;  // string
  uint32_t file;      // string
  uint32_t module;
  int64_t line;
  uint64_t offset;  // in the module, for native frames
  uint32_t detail;  // string: further "key=value" lines from the source
  FrameKind kind;
};

// A node of the tree of stacks: the stack `parent` with `frame` called from its innermost frame.
//
// A stack of a running nn.Module is a node of its own, next to the plain one that has the same
// parent and frame and no nn.Module. Only such a node has one: it is nobody's parent.
struct Stack {
  uint32_t id;
  uint32_t parent;
  uint32_t frame;
  uint32_t nn_module = 0;
};

// An nn.Module of the program. It is defined without a path when it first runs, and again when its
// path is known.
struct NnModule {
  uint32_t id;
  uint32_t path;        // string, in the tree of its root: "layers.3.mlp"; empty: the root itself
  uint32_t class_name;  // string
  uint32_t root;        // of its tree: an nn.Module; 0: its path is not known
};

struct Thread {
  uint32_t tid;
  uint32_t name;  // string
};

// A private pool of the framework (CUDA graphs, MemPool) or a pool of the driver.
struct Pool {
  uint32_t id;
  uint64_t first;   // framework: first half of the id; driver: handle
  uint64_t second;  // framework: second half of the id
  uint32_t name;    // string
};

enum class DriverOperation : uint8_t {
  kNone,
  kAllocate,
  kFree,
  kCreate,   // VMM physical memory
  kRelease,  // VMM
  kRetain,   // VMM
  kMap,      // VMM
  kUnmap,    // VMM
  kReserveAddress,
  kFreeAddress,
  kImport,
  kExport,
  kRegister,
  kUnregister,
  kPoolCreate,
  kPoolDestroy,
  kPoolTrim,
  kContextCreate,
  kContextDestroy,
  kModuleLoad,
  kModuleUnload,
  kGraphLaunch,
};

enum class MemoryKind : uint8_t {
  kNone,
  kDevice,
  kPitched,
  kManaged,
  kPinned,
  kArray,
  kStreamOrdered,
  kVirtual,
  kIpc,
  kExternal,
  kStatic,
  kGraph,
  kMulticast,
  kContext,
  kCode,
};

// Bits of DriverEvent::flags.
inline constexpr uint32_t kDriverHostLocated = 1;  // VMM memory located in host memory
inline constexpr uint32_t kDriverRemote = 2;       // bytes of another process
inline constexpr uint32_t kDriverOwn = 4;          // tidemark's own footprint
inline constexpr uint32_t kDriverSeeded = 8;       // existed before the recording began

struct DriverEvent {
  int64_t time_ns;
  uint64_t address;
  uint64_t size_bytes;
  uint64_t handle;  // VMM handle, pool, array or context
  uint64_t stream;
  uint64_t offset;  // of a mapping in its handle
  int64_t device;
  uint32_t context;
  uint32_t pool;
  uint32_t thread;
  uint32_t stack;
  uint32_t owner;   // string: torch, nccl, cublas …
  uint32_t result;  // CUresult; not 0: the call failed and nothing changed
  uint32_t flags;
  uint32_t correlation;
  DriverOperation operation;
  MemoryKind kind;
};

enum class FrameworkAction : uint8_t {
  kNone,
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory,
  kSnapshot,
};

enum class Category : uint8_t {
  kUnknown,
  kParameter,
  kGradient,
  kOptimizerState,
  kActivation,
  kInput,
  kTemporary,
  kCommunication,
  kAutogradDetail,
  kKvCache,    // keys and values that a text generation keeps between tokens
  kWorkspace,  // of a library such as cuBLAS
};

struct FrameworkEvent {
  int64_t time_ns;
  uint64_t address;      // out of memory: bytes free on the device
  uint64_t size_bytes;   // as the framework reports it: requested size of blocks, size of segments
  uint64_t block_bytes;  // size of the block, where the recorder knew it
  uint64_t stream;
  int64_t device;
  uint32_t stack;
  uint32_t forward_stack;  // of the forward operation that a backward allocation belongs to
  uint32_t pool;           // 0: default pool
  uint32_t thread;
  uint32_t compile_context;  // string
  uint32_t metadata;         // string
  FrameworkAction action;
  Category category;
};

enum class Layer : uint8_t { kNone, kFramework, kDriver };

// The state that explains an allocation that failed.
struct OutOfMemory {
  int64_t time_ns;
  int64_t device;
  uint64_t requested_bytes;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t device_free_bytes;
  uint64_t device_total_bytes;
  uint64_t limit_bytes;
  uint64_t largest_hole_bytes;
  uint64_t stream;
  uint32_t stack;
  uint32_t thread;
  Layer layer;
};

// Bits of SegmentState::flags.
inline constexpr uint32_t kSegmentExpandable = 1;
inline constexpr uint32_t kSegmentSmall = 2;

// A segment that existed at `time_ns`, and its blocks: a full picture at one instant.
struct SegmentState {
  int64_t time_ns;
  uint64_t address;
  uint64_t size_bytes;
  uint64_t allocated_bytes;
  uint64_t active_bytes;
  uint64_t requested_bytes;
  uint64_t stream;
  int64_t device;
  uint32_t pool;
  uint32_t stack;
  uint32_t flags;
};

enum class BlockCondition : uint8_t { kNone, kAllocated, kPendingFree, kFree };

struct BlockState {
  int64_t time_ns;
  uint64_t address;
  uint64_t size_bytes;
  uint64_t requested_bytes;
  int64_t device;
  uint32_t stack;
  BlockCondition condition;
};

enum class CounterKind : uint8_t {
  kNone,
  kDeviceUsed,      // NVML, whole card
  kDeviceFree,      // NVML
  kDeviceReserved,  // NVML: driver and firmware
  kProcessUsed,     // NVML; subject: pid
  kPoolReserved,    // driver pool; subject: pool
  kPoolUsed,        // driver pool; subject: pool
  kGraphReserved,
  kGraphUsed,
  kTorchAllocated,
  kTorchReserved,
  kHostResident,
  kHostPinned,
  kOwnDevice,      // tidemark's own
  kOwnHost,        // tidemark's own
  kReadingAtRest,  // 1: no driver call of the process ran while kDeviceUsed of this time was read
  kPoolReservedHigh,  // driver pool; the most since the marks were last reset; subject: pool
  kPoolUsedHigh,
  kGraphReservedHigh,
  kGraphUsedHigh,
  kTorchPinned,       // blocks of PyTorch's allocator of pinned host memory
  kTorchPinnedInUse,  // of them given out
};

struct Counter {
  int64_t time_ns;
  uint64_t value;
  uint64_t subject;
  int64_t device;
  CounterKind kind;
};

struct Kernel {
  int64_t start_ns;
  uint64_t duration_ns;
  uint64_t stream;
  uint64_t graph_node;
  uint64_t local_memory_bytes;
  int64_t device;
  uint32_t name;  // string
  uint32_t context;
  uint32_t correlation;
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  uint32_t registers;
};

enum class CopyKind : uint8_t {
  kNone,
  kHostToDevice,
  kDeviceToHost,
  kDeviceToDevice,
  kPeer,
  kHostToHost,
  kSet,
  kOther,
};

struct Copy {
  int64_t start_ns;
  uint64_t duration_ns;
  uint64_t size_bytes;
  uint64_t stream;
  int64_t device;
  uint32_t context;
  uint32_t correlation;
  CopyKind kind;
};

struct Communicator {
  int64_t time_ns;
  uint64_t id;  // NCCL's hash, the same on every rank
  uint64_t ranks;
  int64_t rank;
  uint64_t nodes;
  int64_t device;
  uint32_t name;  // string
};

enum class NcclKind : uint8_t { kNone, kCollective, kPointToPoint, kCopyEngine };

struct NcclOperation {
  int64_t start_ns;
  uint64_t duration_ns;  // of the call
  int64_t gpu_start_ns;
  uint64_t gpu_duration_ns;
  uint64_t communicator;
  uint64_t sequence;
  uint64_t count;
  uint64_t size_bytes;
  uint64_t send_address;
  uint64_t receive_address;
  uint64_t stream;
  int64_t peer;  // or root
  int64_t device;
  uint32_t function;   // string
  uint32_t datatype;   // string
  uint32_t algorithm;  // string
  uint32_t protocol;   // string
  uint32_t channels;
  uint32_t thread;
  NcclKind kind;
  uint64_t group;  // operations of one group run in one kernel; 0: unknown
};

enum class MarkPhase : uint8_t { kNone, kBegin, kEnd, kInstant };
enum class MarkKind : uint8_t {
  kNone,
  kNvtx,
  kAnnotation,
  kOptimizerStep,
  kIteration,
  kCompiledRegion,
  kUser,
  kNotRecorded,  // a range in which the recorder left something out: its name
};

// A range is a begin and an end with the same name, thread and kind; or, if ranges do not nest,
// with the same correlation and kind (the end may then be on another thread and have no name). A
// killed process leaves begins without an end.
struct Mark {
  int64_t time_ns;
  uint64_t correlation;  // pairs ranges that do not nest; of a kIteration instant: its number + 1
  int64_t device;
  uint32_t name;    // string
  uint32_t domain;  // string
  uint32_t thread;
  MarkPhase phase;
  MarkKind kind;
};

// The block at `address` belongs to `category` (0: not said) and is called `name` from now on.
struct TensorTag {
  int64_t time_ns;
  uint64_t address;
  uint64_t size_bytes;
  int64_t device;  // -1: any
  uint32_t name;   // string, as the program calls it
  Category category;
  uint32_t nn_module = 0;  // whose parameter it is, or belongs to
};

struct ClockSample {
  int64_t realtime_ns;
  int64_t monotonic_ns;
  uint64_t uncertainty_ns;
};

enum class AlignmentMethod : uint8_t { kNone, kHostClock, kCollectives };

// aligned = raw + offset_ns + (raw - reference_ns) * drift_ppb / 1e9
struct Alignment {
  int64_t reference_ns;
  int64_t offset_ns;
  int64_t drift_ppb;
  uint64_t residual_ns;
  uint64_t samples;
  AlignmentMethod method;
};

enum class HealthKind : uint8_t {
  kNone,
  kEventsDropped,
  kRecordsDroppedByCupti,
  kBytesUnwritten,
  kOverheadNs,
  kSourceMissing,     // detail: which, and why
  kSourceDisabled,    // detail: which, and why
  kHistoryTruncated,  // value: frees whose allocation was not recorded
  kRecovered,         // value: events taken from the ring of a killed process
  kInputSkipped,      // value: entries of an import that were not understood
};

struct Health {
  int64_t time_ns;
  uint64_t value;
  uint32_t detail;  // string
  HealthKind kind;
};

// One point of the curve that a recording with a limited window keeps of the whole run, about one
// per second and device; fewer where the run is long.
struct Summary {
  int64_t time_ns;  // end of the interval that the point stands for
  int64_t device;
  uint64_t allocated_bytes;  // at its end
  uint64_t reserved_bytes;   // the most in the interval
  // Whole card: the highest NVML reading in the interval (in older files the latest) or, if more,
  // what the driver had allocated for this process.
  uint64_t device_used_bytes;
  uint64_t lowest_bytes;  // allocated in the interval
  uint64_t highest_bytes;
  uint64_t steps;  // optimizer steps since the beginning: the lowest of one step is its low-water mark
};

// The position of each block: the last block of a finished file.
struct IndexEntry {
  uint64_t offset;
  uint64_t stored_bytes;
  int64_t first_ns;
  int64_t last_ns;
  uint32_t block_rows;
  uint32_t process;
  uint32_t block_kind;
};

}  // namespace tidemark
