#include "injector/torch/events.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "injector/driver/objects.h"
#include "injector/marks/step_levels.h"
#include "injector/process/hook_time.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/python/stack.h"
#include "injector/recorder/hashed_ids.h"
#include "injector/recorder/recorder.h"
#include "injector/sampling/fresh_reading.h"
#include "injector/sampling/kernel_request.h"
#include "injector/sampling/nvml_sampler.h"
#include "injector/stacks/owner.h"
#include "injector/stacks/unwinder.h"
#include "injector/trace/live_state.h"

namespace tidemark::injector {
namespace {

constexpr size_t kMaxDevices = 64;
// An out-of-memory error may wait for the disk, but not for long.
constexpr uint32_t kFlushTimeoutMs = 900;

// Protected by the allocator's device lock, except the atomics.
struct DeviceState {
  int64_t last_ns = 0;
  std::atomic<uint64_t> reserved{0};
  std::atomic<uint64_t> device_free{0};  // from the last out-of-memory entry
  std::atomic<uint32_t> tier{0};
  std::atomic<bool> began_late{false};
  std::atomic<bool> awaited{false};  // waiting for its state; until then its events do not count
  std::atomic<int64_t> state_ns{0};  // when its state was read
  std::atomic<uint64_t> allocated_now{0};
  std::atomic<uint64_t> reserved_now{0};
  std::atomic<bool> totals_known{false};
  HighMark allocated_high;
  HighMark reserved_high;
  std::atomic<uint64_t> errors{0};  // out-of-memory errors that were reported
};
DeviceState g_devices[kMaxDevices];

// The allocation or free in progress on this thread: tier 2 begins it, tier 1 completes it. Small,
// and initial-exec for the reason given in recorder/thread_writer.h.
struct TorchThread {
  uint64_t address;
  uint64_t size_bytes;
  uint64_t stream;
  uint32_t pool;
  uint32_t stack;  // captured when the allocation began
  uint32_t compile_context;
  uint32_t metadata;
  uint32_t session;  // of the ids above
  uint8_t open;      // TidemarkTorchAction; 0: none
  bool has_stack;
};
thread_local constinit TorchThread t_torch __attribute__((tls_model("initial-exec"))) = {};

std::atomic<bool> g_stacks{true};
std::atomic<bool> g_native{false};
std::atomic<TorchListening> g_listening{TorchListening::kAll};
std::atomic<TidemarkTorchLargestFree> g_largest_free{nullptr};
std::atomic<TidemarkTorchFraction> g_fraction{nullptr};

// The thread that reads the state; and 1 until all of the state was read.
std::atomic<uint32_t> g_reader{0};
std::atomic<uint32_t> g_awaited{0};

bool listens_to(TorchListening tier) {
  if (g_listening.load(std::memory_order_relaxed) < tier || !recorder().on()) return false;
  // Leftovers of an earlier recording on this thread have the ids of that recording.
  const uint32_t session = capture_session.load(std::memory_order_relaxed);
  if (t_torch.session != session) {
    t_torch = TorchThread{};
    t_torch.session = session;
  }
  return true;
}

DeviceState* state_of(int64_t device) {
  return device >= 0 && device < static_cast<int64_t>(kMaxDevices) ? &g_devices[device] : nullptr;
}

// Events of a device have strictly increasing times, even if the clock is coarse or steps back:
// readers use the times to order the rows of different threads.
int64_t next_time(DeviceState& device) {
  device.last_ns = std::max(now_ns(), device.last_ns + 1);
  return device.last_ns;
}

// Private pools of torch by their pair of ids.
HashedIds g_pools;
std::atomic<bool> g_have_pools{false};

uint32_t pool_id(uint64_t first, uint64_t second) {
  if ((first | second) == 0 || !g_have_pools.load(std::memory_order_relaxed)) return 0;
  Hasher hasher(capture_session.load(std::memory_order_relaxed));
  hasher.take(first, second);
  return g_pools.find_or_add(hasher.finish(), [&]() -> uint32_t {
    Pool pool{};
    pool.id = next_pool_id();
    pool.first = first;
    pool.second = second;
    pool.name = recorder().intern_string("torch");
    return recorder().record(pool) ? pool.id : 0;
  });
}

uint32_t take_stack(bool may_take_gil) {
  if (!g_native.load(std::memory_order_relaxed)) return capture_python_stack(may_take_gil);
  FrameKey keys[kMaxStackFrames];
  NativeStack native;
  capture_native_stack(native);
  std::copy(native.frames, native.frames + native.count, keys);
  uint32_t nn_module = 0;
  const size_t count = append_python_frames(keys, native.count, kMaxStackFrames, &nn_module);
  return recorder().intern_stack({keys, count}, nn_module);
}

// The stack captured before the lock was taken; if nothing announced the allocation, the stack now.
uint32_t stack_of_allocation() {
  if (!g_stacks.load(std::memory_order_relaxed)) return 0;
  if (t_torch.has_stack) {
    t_torch.has_stack = false;
    return t_torch.stack;
  }
  return take_stack(false);
}

uint32_t intern_text(const char* text) {
  if (text == nullptr || std::strcmp(text, "N/A") == 0) return 0;
  return recorder().intern_string(text);
}

FrameworkEvent row_of(FrameworkAction action, uint64_t address, int64_t device,
                      DeviceState& state) {
  FrameworkEvent row{};
  row.time_ns = next_time(state);
  row.address = address;
  row.device = device;
  row.thread = current_thread();
  row.action = action;
  return row;
}

void record_open_allocation(uint64_t block_bytes, int64_t device, DeviceState& state) {
  FrameworkEvent row = row_of(FrameworkAction::kAlloc, t_torch.address, device, state);
  row.size_bytes = t_torch.size_bytes;
  row.block_bytes = block_bytes;
  row.stream = t_torch.stream;
  row.pool = t_torch.pool;
  row.compile_context = t_torch.compile_context;
  row.metadata = t_torch.metadata;
  row.stack = stack_of_allocation();
  t_torch.open = TIDEMARK_TORCH_NONE;
  recorder().record(row);
}

void record_open_free(FrameworkAction action, int64_t device, DeviceState& state) {
  FrameworkEvent row = row_of(action, t_torch.address, device, state);
  row.size_bytes = t_torch.size_bytes;
  row.stream = t_torch.stream;
  row.pool = t_torch.pool;
  t_torch.open = TIDEMARK_TORCH_NONE;
  recorder().record(row);
}

// Tier 1 was missing between two trace entries: records what is known of the open row.
void close_open(int64_t device, DeviceState& state) {
  if (t_torch.open == TIDEMARK_TORCH_ALLOC) record_open_allocation(0, device, state);
  if (t_torch.open == TIDEMARK_TORCH_FREE_REQUESTED) {
    record_open_free(FrameworkAction::kFreeRequested, device, state);
  }
}

void open_row(const TidemarkTorchEvent& event) {
  t_torch.address = event.address;
  t_torch.size_bytes = event.size_bytes;
  t_torch.stream = event.stream;
  t_torch.pool = pool_id(event.pool_first, event.pool_second);
  t_torch.compile_context = intern_text(event.compile_context);
  t_torch.metadata = intern_text(event.metadata);
  t_torch.open = static_cast<uint8_t>(event.action);
}

std::atomic<bool> g_state_unmarked{false};

void record_own_mark(const char* name, int64_t device, int64_t time_ns) {
  Mark mark{};
  mark.time_ns = time_ns;
  mark.device = device;
  mark.name = recorder().intern_string(name);
  mark.domain = recorder().intern_string("tidemark");
  mark.thread = current_thread();
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kUser;
  recorder().record(mark);
}

void mark_state(int64_t device, DeviceState& state) {
  const int64_t time_ns = next_time(state);
  record_own_mark(kTorchStateMark, device, time_ns);
  state.state_ns.store(time_ns, std::memory_order_relaxed);
}

// The allocator's trace entry about its own snapshot, under the device lock: the state contains
// everything before it, and events count from here on.
void begin_events_here(int64_t device, DeviceState& state) {
  if (g_reader.load(std::memory_order_relaxed) != current_thread())
    return;  // a snapshot taken by the host
  mark_state(device, state);
  state.tier.store(2, std::memory_order_relaxed);
  state.awaited.store(false, std::memory_order_relaxed);
}

// The driver allocated the segment before the recording began; its free will be recorded.
void record_driver_seed(const SegmentState& segment) {
  DriverEvent event{};
  event.time_ns = segment.time_ns;
  event.address = segment.address;
  event.size_bytes = segment.size_bytes;
  event.device = segment.device;
  event.owner = recorder().intern_string("torch");
  event.flags = kDriverSeeded;
  event.operation = DriverOperation::kAllocate;
  const bool expandable = (segment.flags & kSegmentExpandable) != 0;
  event.kind = expandable ? MemoryKind::kVirtual : MemoryKind::kDevice;
  recorder().record(event);
  driver_objects().live.note(event, static_cast<uint8_t>(Owner::kTorch));
}

// What the program allowed the allocator (set_per_process_memory_fraction); 0: everything, or not
// known. The product is exact: the allocator derives its fraction from the bytes.
uint64_t limit_of(int64_t device) {
  const auto ask = g_fraction.load(std::memory_order_acquire);
  const double fraction = ask != nullptr ? ask(static_cast<int>(device)) : 1;
  if (!(fraction > 0 && fraction < 1)) return 0;
  // The device is described by the task thread, in its first round.
  uint64_t total = driver_objects().devices.total_bytes(device);
  if (total == 0) {
    fresh_device_memory(device);
    total = driver_objects().devices.total_bytes(device);
  }
  return static_cast<uint64_t>(std::llround(fraction * static_cast<double>(total)));
}

void record_plain(const TidemarkTorchEvent& event, DeviceState& state) {
  FrameworkEvent row =
      row_of(static_cast<FrameworkAction>(event.action), event.address, event.device, state);
  row.size_bytes = event.size_bytes;
  row.stream = event.stream;
  row.pool = pool_id(event.pool_first, event.pool_second);
  const bool takes = event.action == TIDEMARK_TORCH_SEGMENT_ALLOC ||
                     event.action == TIDEMARK_TORCH_SEGMENT_MAP ||
                     event.action == TIDEMARK_TORCH_OOM;
  // The stack is kept for the allocation that caused this entry.
  if (takes && g_stacks.load(std::memory_order_relaxed)) {
    if (!t_torch.has_stack) {
      t_torch.stack = take_stack(false);
      t_torch.has_stack = true;
    }
    row.stack = t_torch.stack;
  }
  // Of empty_cache(), or of the request that needed the memory. It is rare and waits for the
  // driver.
  const bool gives_back =
      event.action == TIDEMARK_TORCH_SEGMENT_FREE || event.action == TIDEMARK_TORCH_SEGMENT_UNMAP;
  if (gives_back && g_stacks.load(std::memory_order_relaxed)) row.stack = take_stack(false);
  recorder().record(row);
}

}  // namespace

void await_torch_state() noexcept {
  for (DeviceState& device : g_devices) {
    device.state_ns.store(0);
    device.awaited.store(true);
  }
  g_awaited.store(1);
}

void begin_torch_state() noexcept {
  g_reader.store(current_thread());
}

void end_torch_state(const char* reason) noexcept {
  g_reader.store(0);
  if (g_awaited.load() == 0) return;
  if (reason != nullptr) {
    char detail[640];
    std::snprintf(detail, sizeof detail,
                  "torch: memory allocated before the recording began is not known: %s", reason);
    recorder().report(HealthKind::kSourceMissing, 0, detail);
  }
  if (g_state_unmarked.exchange(false)) {
    recorder().report(HealthKind::kSourceMissing, 0,
                      "torch: allocations made while its state was read may be missing");
  }
  // A kept window waits for the rows of the state, which come later than the first events.
  if (recorder().on()) record_own_mark(kTorchStateReadMark, -1, now_ns());
  for (DeviceState& device : g_devices) device.awaited.store(false);
  g_awaited.store(0);
  wake_all(g_awaited);
}

bool torch_state_awaited() noexcept {
  return g_awaited.load() != 0;
}

void wait_for_torch_state(uint32_t timeout_ms) noexcept {
  const int64_t deadline = monotonic_ms() + timeout_ms;
  for (int64_t left = timeout_ms; left > 0 && g_awaited.load() != 0;
       left = deadline - monotonic_ms()) {
    wait_while(g_awaited, 1, static_cast<uint32_t>(left));
  }
}

bool latest_torch_numbers(int64_t device, TidemarkTorchNumbers& out) noexcept {
  const DeviceState* const state = state_of(device);
  if (state == nullptr || !state->totals_known.load(std::memory_order_relaxed)) return false;
  out = {TIDEMARK_TORCH_UNKNOWN, TIDEMARK_TORCH_UNKNOWN, TIDEMARK_TORCH_UNKNOWN,
         TIDEMARK_TORCH_UNKNOWN, TIDEMARK_TORCH_UNKNOWN, TIDEMARK_TORCH_UNKNOWN};
  out.allocated = state->allocated_now.load(std::memory_order_relaxed);
  out.reserved = state->reserved_now.load(std::memory_order_relaxed);
  out.ooms = state->errors.load(std::memory_order_relaxed);
  return true;
}

void start_torch_events(const TorchEventOptions& options) noexcept {
  for (DeviceState& device : g_devices) {
    device.reserved.store(0);
    device.device_free.store(0);
    device.tier.store(0);
    device.began_late.store(false);
    device.errors.store(0);
    device.allocated_high.clear();
    device.reserved_high.clear();
  }
  if (g_have_pools.load()) g_pools.clear();
  g_stacks.store(options.stacks);
  g_native.store(options.native_stacks);
  if (!g_have_pools.load() && g_pools.create(12)) g_have_pools.store(true);
}

void reset_torch_events() noexcept {
  for (DeviceState& device : g_devices) {
    device.last_ns = 0;
    device.reserved.store(0);
    device.tier.store(0);
    device.began_late.store(false);
    device.awaited.store(false);
    device.totals_known.store(false);
  }
  g_awaited.store(0);
  g_reader.store(0);
  t_torch = TorchThread{};
}

void set_torch_listening(TorchListening listening, bool stacks) noexcept {
  g_listening.store(listening);
  g_stacks.store(stacks);
  if (listening == TorchListening::kAll) return;
  for (DeviceState& device : g_devices) device.tier.store(0);
}

void answer_at_errors(const TorchQuestions& questions) noexcept {
  g_largest_free.store(questions.largest_free, std::memory_order_release);
  g_fraction.store(questions.fraction, std::memory_order_release);
}

bool torch_was_seen() noexcept {
  return std::any_of(std::begin(g_devices), std::end(g_devices),
                     [](const DeviceState& d) { return d.tier.load() != 0; });
}

bool torch_began_late() noexcept {
  return std::any_of(std::begin(g_devices), std::end(g_devices),
                     [](const DeviceState& d) { return d.began_late.load(); });
}

void begin_torch_allocation() noexcept {
  if (!g_stacks.load(std::memory_order_relaxed) || !listens_to(TorchListening::kTier1)) return;
  const HookTime time;
  t_torch.stack = take_stack(true);
  t_torch.has_stack = true;
}

void on_torch_usage(uintptr_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                    TorchDevice device) noexcept {
  DeviceState* const state = device.type == kTorchCuda ? state_of(device.index) : nullptr;
  if (state == nullptr || !listens_to(TorchListening::kTier1)) return;
  const HookTime time;
  state->allocated_high.see(allocated);
  state->reserved_high.see(reserved);
  state->allocated_now.store(allocated, std::memory_order_relaxed);
  state->reserved_now.store(reserved, std::memory_order_relaxed);
  state->totals_known.store(true, std::memory_order_relaxed);
  if (state->awaited.load(std::memory_order_relaxed)) return;
  step_levels().see(device.index, allocated);
  if (state->tier.load(std::memory_order_relaxed) == 2) {
    if (t_torch.open == TIDEMARK_TORCH_ALLOC && t_torch.address == address && bytes > 0) {
      record_open_allocation(static_cast<uint64_t>(bytes), device.index, *state);
    } else {
      close_open(device.index, *state);  // a free that has to wait for other streams
    }
    return;
  }
  if (state->tier.load(std::memory_order_relaxed) == 0) {
    const uint64_t others = bytes > 0 ? allocated - static_cast<uint64_t>(bytes) : allocated;
    state->began_late.store(others != 0, std::memory_order_relaxed);
    state->tier.store(1, std::memory_order_relaxed);
  }
  const FrameworkAction action =
      bytes > 0 ? FrameworkAction::kAlloc : FrameworkAction::kFreeCompleted;
  FrameworkEvent row = row_of(action, address, device.index, *state);
  row.block_bytes = static_cast<uint64_t>(bytes > 0 ? bytes : -bytes);
  if (bytes > 0) row.stack = stack_of_allocation();
  recorder().record(row);
  if (reserved == state->reserved.load(std::memory_order_relaxed)) return;
  state->reserved.store(reserved, std::memory_order_relaxed);
  recorder().record(Counter{row.time_ns, reserved, 0, device.index, CounterKind::kTorchReserved});
  recorder().record(Counter{row.time_ns, allocated, 0, device.index, CounterKind::kTorchAllocated});
}

void on_torch_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved,
                            TorchDevice device) noexcept {
  DeviceState* const state = device.type == kTorchCuda ? state_of(device.index) : nullptr;
  if (state == nullptr || !listens_to(TorchListening::kTier1)) return;
  request_kernels();
  state->errors.fetch_add(1, std::memory_order_relaxed);
  OutOfMemory row{};
  row.time_ns = next_time(*state);
  row.device = device.index;
  row.requested_bytes = static_cast<uint64_t>(bytes);
  row.allocated_bytes = allocated;
  row.reserved_bytes = reserved;
  DeviceMemory latest = latest_device_memory(device.index);
  if (latest.total_bytes == 0) latest = fresh_device_memory(device.index);  // the first reading
  const uint64_t told = state->device_free.load(std::memory_order_relaxed);
  row.device_free_bytes = told != 0 ? told : latest.free_bytes;
  row.device_total_bytes = latest.total_bytes;
  if (const auto ask = g_largest_free.load(std::memory_order_acquire)) {
    row.largest_hole_bytes = ask(device.index);
  }
  row.limit_bytes = limit_of(device.index);
  ask_for_reading();
  row.stack = g_stacks.load(std::memory_order_relaxed)
                  ? (t_torch.has_stack ? t_torch.stack : take_stack(false))
                  : 0;
  row.thread = current_thread();
  row.layer = Layer::kFramework;
  recorder().record(row);
  if (state->tier.load(std::memory_order_relaxed) != 2) {
    FrameworkEvent event =
        row_of(FrameworkAction::kOutOfMemory, row.device_free_bytes, device.index, *state);
    event.size_bytes = row.requested_bytes;
    event.stack = row.stack;
    recorder().record(event);
  }
  recorder().seal_after_error();
  // The process may end soon: what explains the error must be on disk before the exception is
  // thrown.
  recorder().flush_now(kFlushTimeoutMs);
}

void on_torch_event(const TidemarkTorchEvent& event) noexcept {
  DeviceState* const state = state_of(event.device);
  if (state == nullptr || !listens_to(TorchListening::kAll)) return;
  const HookTime time;
  if (state->awaited.load(std::memory_order_relaxed)) {
    if (event.action == TIDEMARK_TORCH_SNAPSHOT) begin_events_here(event.device, *state);
    return;
  }
  state->tier.store(2, std::memory_order_relaxed);
  switch (event.action) {
    case TIDEMARK_TORCH_ALLOC:
    case TIDEMARK_TORCH_FREE_REQUESTED:
      close_open(event.device, *state);
      open_row(event);
      return;
    case TIDEMARK_TORCH_FREE_COMPLETED:
      // A free usually completes at once and becomes one row.
      if (t_torch.open == TIDEMARK_TORCH_FREE_REQUESTED && t_torch.address == event.address) {
        record_open_free(FrameworkAction::kFreeCompleted, event.device, *state);
      } else {
        record_plain(event, *state);
      }
      return;
    case TIDEMARK_TORCH_SNAPSHOT:
    case TIDEMARK_TORCH_NONE:
      return;
    case TIDEMARK_TORCH_OOM:
      state->device_free.store(event.address, std::memory_order_relaxed);
      record_plain(event, *state);
      return;
    default:
      record_plain(event, *state);
  }
}

void on_torch_state(const TidemarkTorchState& state) noexcept {
  DeviceState* const device = state_of(state.device);
  if (device == nullptr) return;
  // An allocator without the snapshot entry (none is known).
  if (device->awaited.load() && device->state_ns.load() == 0) {
    mark_state(state.device, *device);
    g_state_unmarked.store(true);
  }
  int64_t now = device->state_ns.load(std::memory_order_relaxed);
  if (now == 0) now = now_ns();  // read in the middle of a recording
  if (state.is_block != 0) {
    recorder().record(BlockState{now, state.address, state.size_bytes, state.requested_bytes,
                                 state.device, 0, static_cast<BlockCondition>(state.condition)});
    return;
  }
  SegmentState row{};
  row.time_ns = now;
  row.address = state.address;
  row.size_bytes = state.size_bytes;
  row.allocated_bytes = state.allocated_bytes;
  row.active_bytes = state.active_bytes;
  row.requested_bytes = state.requested_bytes;
  row.stream = state.stream;
  row.device = state.device;
  row.pool = pool_id(state.pool_first, state.pool_second);
  row.flags = state.flags;
  recorder().record(row);
  if (device->state_ns.load(std::memory_order_relaxed) != 0) record_driver_seed(row);
}

}  // namespace tidemark::injector
